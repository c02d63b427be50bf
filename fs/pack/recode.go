package pack

import (
	"context"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// Recode calls recode for the chunks of a packed file, on as many workers as packing has, each with what is
// known of its numbers and with the chunks that it is related to. recode reports whether it tried, and
// whether that paid: of a region where it mostly does not, only now and then a chunk is tried, as in packing.
// What cannot be read of the file is passed over.
func (p *Packer) Recode(ctx context.Context, m *manifest.Manifest, rel Related,
	recode func(h cas.Hash, hint codec.Hint, rel cas.Related) (tried, saved bool, err error)) error {
	j := newJob(ctx, p, nil, nil)
	defer j.cancel()
	own := newEarlier(p.store, m)
	j.masters.addFile(own)
	j.masters.addFiles(j.store, rel.Masters)
	first := firsts(m.Tensors, len(m.Regions))
	begin := func(r *formats.Region, n int) ([]byte, error) { return own.begin(r, n), nil }
	if err := j.lookBack(rel, m.Tensors, m.Regions, first, begin); err != nil {
		return err
	}
	return j.finish(j.recode(own, first, recode))
}

func (j *job) recode(own *earlier, first []int,
	recode func(cas.Hash, codec.Hint, cas.Related) (bool, bool, error)) error {
	blobs := &odds{} // they are many and small
	for i := range own.m.Regions {
		r, chances := &own.m.Regions[i], blobs
		var hint codec.Hint
		var kin relatives
		var low *lowRank
		var spans []manifest.Span
		if first[i] >= 0 && r.Kind == formats.Data {
			t := &own.m.Tensors[first[i]]
			hint, chances = hintOf(t), &odds{}
			if spans = own.grid(r); spans != nil {
				if kin = j.kin(own, t, i); kin.masters == nil {
					low = lowRankOf(t, r, kin.prev, func(k int64) ([]byte, error) {
						return j.storedChunk(spans, k)
					})
				}
			}
		}
		if spans == nil {
			spans = own.within(r)
		}
		for k, s := range spans {
			rel := kin.of(int64(k))
			if !chances.good() {
				continue
			}
			if err := j.do(func() error {
				read := func() ([]byte, error) { return j.storedChunk(spans, int64(k)) }
				if err := low.relate(j, int64(k), s.Hash, read, &rel); err != nil {
					return err
				}
				tried, saved, err := recode(s.Hash, hint, rel)
				if tried {
					chances.tell(saved)
				}
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// kin is what the chunks of region i of a packed file, whose first tensor is t, may be stored with the help
// of.
func (j *job) kin(own *earlier, t *formats.Tensor, i int) relatives {
	r := &own.m.Regions[i]
	kin := relatives{prev: j.origins[i].chunks()}
	m, err := j.masters.of(t, r,
		func() ([]byte, error) { return own.begin(r, int(min(r.Len, probe))), nil },
		func(m *master, n int) ([]byte, error) { return m.of.begin(m.r, n), nil })
	if err == nil && m != nil {
		kin.masters = m.of.grid(m.r)
	}
	return kin
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
