package pack

import (
	"context"
	"errors"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// Recoding says how the chunks of a packed file are tried again.
type Recoding struct {
	// Series is as in Related.
	Series string
	// Trials tell of the series' short tensors whether that paid in the steps before.
	Trials *Trials
	// Related is what the file may be stored with the help of. It is called once a chunk is to be tried.
	Related func() Related
	// Claim reports whether a chunk is to be tried: whether no other file had it.
	Claim func(h cas.Hash) bool
	// Chunk tries one, with what is known of its numbers and with the chunks that it is related to. It
	// reports whether that paid.
	Chunk func(h cas.Hash, hint codec.Hint, rel cas.Related) (saved bool, err error)
}

// Recode tries the chunks of a packed file, on as many workers as packing has: of a region where it mostly
// does not pay only now and then one, as in packing. What cannot be read of the file is passed over.
func (p *Packer) Recode(ctx context.Context, m *manifest.Manifest, r Recoding) error {
	j := &recoding{job: newJob(ctx, p, nil, nil), Recoding: r, own: newEarlier(p.store, m)}
	j.file = j.own.reader()
	j.series, j.alone = r.Series, m.Size <= batchBytes
	defer j.cancel()
	return j.finish(j.regions())
}

// recoding is a job that goes through a packed file.
type recoding struct {
	*job
	Recoding
	own     *earlier
	file    *reader
	first   []int // the first tensors of regions, or -1
	related bool
	seeker  *seeker
}

func (j *recoding) regions() error {
	m := j.own.m
	j.first = firsts(m.Tensors, len(m.Regions))
	blobs := &odds{} // they are many and small
	done := int32(-1)
	for i := range m.Regions {
		if j.ctx.Err() != nil {
			return j.ctx.Err()
		}
		r := &m.Regions[i]
		if o := j.own.objectAt(r.Off); r.Kind == formats.Data {
			if o >= 0 && o == done { // of short data in a row
				continue
			}
			done = o
		}
		var t *formats.Tensor
		if j.first[i] >= 0 && r.Kind == formats.Data {
			t = &m.Tensors[j.first[i]]
		}
		var c chances = blobs
		if t != nil || m.Size <= shortTensor {
			c = j.Trials.chancesOf(j.Series, r, t)
		}
		if err := j.region(i, t, c); err != nil {
			return err
		}
	}
	return nil
}

// region tries the chunks of region i, whose first tensor is t, if it has one.
func (j *recoding) region(i int, t *formats.Tensor, c chances) error {
	r := &j.own.m.Regions[i]
	var grid, spans []manifest.Span
	if t != nil {
		grid = j.own.stepped(r, stepOf(t, r))
	}
	if spans = grid; grid == nil {
		spans = j.own.within(r)
	}
	var kin *relatives
	var low *lowRank
	for k, s := range spans {
		if !c.good() || !j.Claim(s.Hash) {
			continue
		}
		if kin == nil {
			err := searching(func() (err error) {
				kin, low, err = j.kinOf(i, t, grid)
				return err
			})
			if errors.As(err, new(*SearchError)) {
				kin, low, err = &relatives{}, nil, nil
			}
			if err != nil {
				return err
			}
		}
		rel := kin.of(int64(k))
		if err := j.do(func() error {
			read := func() ([]byte, error) { return j.storedChunk(spans, int64(k)) }
			if err := low.relate(j.job, int64(k), s.Hash, read, &rel); err != nil {
				return err
			}
			var hint codec.Hint
			if t != nil {
				hint = hintOf(t)
			}
			saved, err := j.Chunk(s.Hash, hint, rel)
			if err == nil {
				c.tell(saved)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// kinOf is what the chunks of region i may be stored with the help of: of its grid, or nothing.
func (j *recoding) kinOf(i int, t *formats.Tensor, grid []manifest.Span) (*relatives, *lowRank, error) {
	if err := j.relate(); err != nil || grid == nil {
		return &relatives{}, nil, err
	}
	kin := j.kin(j.own, t, i)
	if kin.masters != nil {
		return &kin, nil, nil
	}
	if plan, _ := j.recipeOf(t, &j.own.m.Regions[i], j.file); plan != nil {
		kin.recipe = plan
		return &kin, nil, nil
	}
	if mixed, _ := j.mixer.of(i); mixed != nil {
		kin.recipe = mixed
		return &kin, nil, nil
	}
	far, _ := j.seeker.far(t, &j.own.m.Regions[i], j.origins[i])
	if kin.prev == nil || far {
		recipe, prev, _ := j.seeker.region(t, &j.own.m.Regions[i])
		if recipe != nil {
			kin.recipe = recipe
			return &kin, nil, nil
		}
		if prev != nil {
			j.comeAfter(&kin, prev, true)
		}
	}
	return &kin, lowRankOf(t, &j.own.m.Regions[i], &kin, func(k int64) ([]byte, error) {
		return j.storedChunk(grid, k)
	}), nil
}

// relate finds out, once, what the file's chunks are related to.
func (j *recoding) relate() error {
	if j.related {
		return nil
	}
	j.related = true
	rel := j.Related()
	j.masters.addFile(j.own)
	j.masters.addFiles(j.store, rel.Masters)
	j.addSources(rel.Sources)
	j.anchors, j.noRecipes = rel.Anchors, rel.NoRecipes
	j.seeker = j.job.seeker(j.file, j.own.m.Size, hashOf(j.own))
	begin := func(r *formats.Region, n int) ([]byte, error) { return j.own.begin(r, n), nil }
	return j.lookBack(rel, j.own.m.Tensors, j.own.m.Regions, j.first, begin)
}

// kin is what the chunks of region i of a packed file, whose first tensor is t, may be stored with the help
// of.
func (j *job) kin(own *earlier, t *formats.Tensor, i int) relatives {
	r := &own.m.Regions[i]
	var kin relatives
	j.comeAfter(&kin, j.origins[i].chunks(), j.origins[i].doubted)
	m, err := j.masters.of(t, r,
		func() ([]byte, error) { return own.begin(r, int(min(r.Len, probe))), nil },
		func(m *master, n int) ([]byte, error) { return m.of.begin(m.r, n), nil })
	if err == nil && m != nil && j.areBases(m.of.grid(m.r)) {
		kin.masters = m.of.grid(m.r)
	}
	return kin
}

// objectAt is the object in which the byte at off lies; -1: none.
func (e *earlier) objectAt(off int64) int32 {
	i, found := slices.BinarySearch(e.starts, off)
	if !found {
		i--
	}
	if i < 0 {
		return -1
	}
	return e.m.Extents[i].Object
}

// within are the chunks of all objects that have a part of the region.
func (e *earlier) within(r *formats.Region) (spans []manifest.Span) {
	i, found := slices.BinarySearch(e.starts, r.Off)
	if !found && i > 0 {
		i--
	}
	seen := map[int32]bool{}
	for ; i < len(e.starts) && e.starts[i] < r.Off+r.Len; i++ {
		if o := e.m.Extents[i].Object; o >= 0 && !seen[o] {
			seen[o] = true
			part, _ := e.list(e.m.Objects[o])
			spans = append(spans, part...)
		}
	}
	return spans
}
