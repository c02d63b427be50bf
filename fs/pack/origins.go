package pack

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// origins chooses for each data region of a file the region of an earlier one that it is stored against.
// Regions that the same sources have are decided together: by the sources' order where they are known to be
// versions before, by samples where there are several, or where it is only their names that speak for them.
type origins struct {
	tensors []formats.Tensor
	regions []formats.Region
	first   []int // the first tensors of regions, or -1
	// head reads the first bytes of a region; nil when they cannot be read.
	head func(r *formats.Region, n int) ([]byte, error)
	// holds says of chunks whether others may be stored against them, and plain whether they need no base.
	holds, plain func(chunks []manifest.Span) bool

	sources []source
	samples int // that may still be taken
}

// source is a file with earlier versions of tensors, under one way to name them.
type source struct {
	of      *earlier
	at      []int32
	doubted bool  // only samples make it one
	lost    bool  // they did not
	won     int64 // bytes of which it has the version before
}

// origin is a region of an earlier file.
type origin struct {
	of *earlier // nil: there is none
	r  *formats.Region
	// doubted: only samples of some regions speak for it.
	doubted bool
}

// chunks are those of the region; nil unless they lie on the grid.
func (o origin) chunks() []manifest.Span {
	if o.of == nil {
		return nil
	}
	return o.of.grid(o.r)
}

// contest is some regions that the same sources have.
type contest struct {
	sources []int
	regions []int
	bytes   int64
}

const (
	sampled    = 2       // regions of a contest of which samples are taken
	minSamples = 16      // chunks of sources that are read for a file, at least
	maxSamples = 64      // and at most
	perSample  = 2 << 20 // one more for so many bytes of the file
	worth      = 0.95    // the share of what is taken alone below which a doubted source is one
	further    = 1.03    // times the difference from what is itself a difference, from which less may go on
)

// lookBack finds what stood before in the data regions of a file, from which head reads.
func (j *job) lookBack(rel Related, tensors []formats.Tensor, regions []formats.Region, first []int,
	head func(r *formats.Region, n int) ([]byte, error)) error {
	j.origins = make([]origin, len(regions))
	if len(rel.Before)+len(rel.Alike) == 0 {
		return nil
	}
	o := &origins{tensors: tensors, regions: regions, first: first, head: head,
		holds: j.hold, plain: j.baseless}
	sought := Seek(tensors)
	for i, m := range slices.Concat(rel.Before, rel.Alike) {
		e := newEarlier(j.store, m)
		e.lists = j.lists
		if i == 0 && len(rel.Before) > 0 {
			j.before = e
		}
		o.add(e, sought, i >= len(rel.Before))
	}
	if err := o.choose(j.origins); err != nil {
		return err
	}
	if !rel.NoRecipes {
		j.mixer = newMixer(o, j.areBases)
	}
	if s := o.most(); j.before == nil && s != nil {
		j.before = s.of
	}
	return nil
}

// add adds a file as sources.
func (o *origins) add(e *earlier, sought *Sought, doubted bool) {
	for _, f := range sought.In(e.m) {
		o.sources = append(o.sources, source{of: e, at: f.At, doubted: doubted || f.Renamed})
	}
}

// origin is where source s has region i: a tensor of the same place in a region as long. Its chunks lie on
// the grid then, as do i's.
func (o *origins) origin(s, i int) (at origin, ok bool) {
	src, r, k := &o.sources[s], &o.regions[i], o.first[i]
	if src.at[k] < 0 {
		return at, false
	}
	was := &src.of.m.Tensors[src.at[k]]
	old := &src.of.m.Regions[was.Region]
	if was.Offset != o.tensors[k].Offset || old.Len != r.Len || old.Kind != r.Kind {
		return at, false
	}
	return origin{src.of, old, src.doubted}, true
}

// choose says for each region where it was.
func (o *origins) choose(to []origin) error {
	contests, all := o.contests()
	o.samples = int(min(minSamples+all/perSample, maxSamples))
	for _, c := range contests {
		winner := c.sources[0]
		if len(c.sources) > 1 || o.sources[winner].doubted {
			var err error
			if winner, err = o.decide(c); err != nil {
				return err
			}
		}
		if winner < 0 {
			continue
		}
		for _, i := range c.regions {
			to[i], _ = o.origin(winner, i)
		}
		o.sources[winner].won += c.bytes
	}
	return nil
}

// contests are those of all data regions that any source has, the one of most bytes first; all is the sum of
// these.
func (o *origins) contests() (list []*contest, all int64) {
	bySources := map[string]*contest{}
	var having []int
	var key []byte
	for i := range o.regions {
		if o.regions[i].Kind != formats.Data || o.first[i] < 0 {
			continue
		}
		having, key = having[:0], key[:0]
		for s := range o.sources {
			if _, ok := o.origin(s, i); ok {
				having = append(having, s)
				key = binary.AppendUvarint(key, uint64(s))
			}
		}
		if len(having) == 0 {
			continue
		}
		c := bySources[string(key)]
		if c == nil {
			c = &contest{sources: slices.Clone(having)}
			bySources[string(key)] = c
		}
		c.regions = append(c.regions, i)
		c.bytes += o.regions[i].Len
		all += o.regions[i].Len
	}
	return slices.SortedFunc(maps.Values(bySources), func(a, b *contest) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), slices.Compare(a.sources, b.sources))
	}), all
}

// decide tells which source of a contest is the nearest, by samples of the beginnings of two of its larger
// regions; -1: none is of use. What is found to be no source is none for the rest of the file. Where samples
// tell nothing, or no more are to be taken, it is the source that has won most so far.
func (o *origins) decide(c *contest) (winner int, err error) {
	rivals := slices.DeleteFunc(slices.Clone(c.sources), func(s int) bool { return o.sources[s].lost })
	if len(rivals) == 0 {
		return -1, nil
	}
	slices.SortStableFunc(rivals, func(s, t int) int {
		return cmp.Compare(o.sources[t].won, o.sources[s].won)
	})
	if o.samples == 0 {
		return rivals[0], nil
	}
	larger := slices.Clone(c.regions)
	slices.SortStableFunc(larger, func(i, k int) int {
		return cmp.Compare(o.regions[k].Len, o.regions[i].Len)
	})
	if held := o.holding(rivals, larger[0]); len(held) > 0 {
		rivals = held
	}
	rivals = rivals[:min(len(rivals), o.samples)]
	small := slices.IndexFunc(larger, func(i int) bool {
		return o.regions[i].Len < o.regions[larger[0]].Len/2
	})
	if small > 0 {
		larger = larger[:small]
	}
	var alone float64
	shares := make([]float64, len(rivals))
	for n := 0; n < min(sampled, len(larger)) && len(rivals) <= o.samples; n++ {
		own, err := o.compare(larger[n*len(larger)/sampled], rivals, shares)
		if err != nil {
			return -1, err
		}
		alone += own
	}
	if alone == 0 {
		return rivals[0], nil
	}
	winner = -1
	var least float64
	for x, s := range rivals {
		src := &o.sources[s]
		share := shares[x]
		if src.doubted && !o.alone(s, larger[0]) {
			share *= further
		}
		if src.lost = src.doubted && shares[x] > worth*alone; !src.lost && (winner < 0 || share < least) {
			winner, least = s, share
		}
	}
	return winner, nil
}

// holding are those rivals whose region i others may be stored against, as far as only samples speak for
// them: a merge is nearer than what it was merged of, and of no use if it is computed of that.
func (o *origins) holding(rivals []int, i int) []int {
	return slices.DeleteFunc(slices.Clone(rivals), func(s int) bool {
		if !o.sources[s].doubted {
			return false
		}
		at, _ := o.origin(s, i)
		return !o.holds(at.chunks())
	})
}

// alone reports whether region i of a source needs no base.
func (o *origins) alone(s, i int) bool {
	at, _ := o.origin(s, i)
	return o.plain(at.chunks())
}

// compare adds to shares what the beginning of region i takes as a difference from each rival's, and tells
// what it takes alone; nothing, and 0, where that cannot be told.
func (o *origins) compare(i int, rivals []int, shares []float64) (alone float64, err error) {
	r := &o.regions[i]
	head, err := o.head(r, int(min(r.Len, cas.ChunkSize)))
	if err != nil || head == nil {
		return 0, err
	}
	hint := hintOf(&o.tensors[o.first[i]])
	own, same := codec.Estimate(head, head, hint)
	if own == 1 && same == 1 {
		return 0, nil
	}
	o.samples -= len(rivals)
	for x, s := range rivals {
		share := own
		was, _ := o.origin(s, i)
		if base := was.of.begin(was.r, len(head)); base != nil {
			_, share = codec.Estimate(head, base, hint)
		}
		shares[x] += share
	}
	return own, nil
}

// most is the source that won most bytes; nil: none did.
func (o *origins) most() (most *source) {
	for i := range o.sources {
		if s := &o.sources[i]; s.won > 0 && (most == nil || s.won > most.won) {
			most = s
		}
	}
	return most
}

// firsts are the first tensors of regions; -1 for those that have none.
func firsts(tensors []formats.Tensor, regions int) []int {
	first := make([]int, regions)
	for i := range first {
		first[i] = -1
	}
	for k := range tensors {
		if r := tensors[k].Region; r >= 0 && first[r] < 0 {
			first[r] = k
		}
	}
	return first
}
