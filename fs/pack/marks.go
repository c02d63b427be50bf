package pack

import (
	"context"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
	"ckptfs/index/anchors"
	"ckptfs/index/manifest"
)

// Anchors knows stored tensors by their anchors (package cas/anchor).
type Anchors interface {
	// Find is anchors.Index.Find.
	Find(keys []anchor.Key, least, most int) []anchors.Hit
	// Of is a manifest of which tensors may be stored with the help of those that it names, quantised ones
	// or others; nil: it is gone, or they may not.
	Of(h cas.Hash, quantised bool) *manifest.Manifest
}

// sketch is for the anchors of t, which fills its region; nil: it has none, or nobody asks for them.
func sketch(t *formats.Tensor) *anchor.Sketch {
	if !recipes.MayBeSource(t) || !t.Contiguous() || t.NumElements() < anchor.MinElements {
		return nil
	}
	n, ok := anchor.NumbersOf(string(t.DType))
	if !ok {
		return nil
	}
	return anchor.New(n, t.NumElements(), recipes.Columns(t))
}

// sketches begins the anchors of the regions, if they are asked for.
func (c *cutter) sketches(p *plan) {
	if c.anchors == nil {
		return
	}
	for i := range p.regions {
		if r := &p.regions[i]; r.tensor != nil && !r.small && fills(r.tensor, &r.Region) {
			r.sketch = sketch(r.tensor)
		}
	}
}

// mark adds a chunk that is new to the anchors of its tensor. What is the function of another is found by the
// anchors of that.
func (p *piece) mark(b *batch, raw []byte, id byte) {
	if r := p.o.of; r != nil && r.sketch != nil && id != codec.Recipe && id != codec.Rounded {
		r.sketch.Add(raw, b.off+int64(p.at)-r.Off)
	}
}

// marks are the anchors of the tensors that have something new.
func (p *plan) marks(l *formats.Layout) (all []anchors.Tensor) {
	var first []int
	for i := range p.regions {
		s := p.regions[i].sketch
		if s == nil {
			continue
		}
		if keys := keysOf(s); len(keys) > 0 {
			if first == nil {
				first = firsts(l.Tensors, len(l.Regions))
			}
			all = append(all, anchors.Tensor{Index: uint32(first[i]), Keys: keys})
		}
	}
	return all
}

func keysOf(s *anchor.Sketch) []anchor.Key {
	return append(s.Keys(anchor.Windows), s.Keys(anchor.Groups)...)
}

// perTurn is how many chunks are read in one turn: each turn may wait for other programs.
const perTurn = 16

// Anchors are those of the tensors of a packed file that are wanted. What cannot be read is left out.
func (p *Packer) Anchors(ctx context.Context, m *manifest.Manifest, wanted func(i int) bool) (
	all []anchors.Tensor, err error) {
	j := newJob(ctx, p, nil, nil)
	defer j.cancel()
	own := newEarlier(p.store, m)
	own.lists = p.lists
	j.alone = m.Size <= batchBytes
	var sketches []*anchor.Sketch
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if t.Region < 0 || !fills(t, &m.Regions[t.Region]) {
			continue
		}
		s := sketch(t)
		if s == nil || !wanted(i) {
			continue
		}
		spans := own.grid(&m.Regions[t.Region])
		if len(spans) == 0 || !j.plain(spans[0].Hash) {
			continue
		}
		all, sketches = append(all, anchors.Tensor{Index: uint32(i)}), append(sketches, s)
		for first := 0; first < len(spans); first += perTurn {
			if err := j.do(func() error {
				var p []byte
				for k := first; k < min(first+perTurn, len(spans)) && j.ctx.Err() == nil; k++ {
					var err error
					if p, err = j.store.Get(spans[k].Hash, p[:0]); err == nil {
						s.Add(p, int64(k)*cas.ChunkSize)
					}
				}
				return nil
			}); err != nil {
				return nil, j.finish(err)
			}
		}
	}
	if err := j.finish(nil); err != nil {
		return nil, err
	}
	for i, s := range sketches {
		all[i].Keys = keysOf(s)
	}
	return all, nil
}

// plain reports whether a chunk is in the store, and not as a function of others.
func (j *job) plain(h cas.Hash) bool {
	var at [1]cas.Location
	return j.store.Locate([]cas.Hash{h}, at[:]) == nil && at[0].Segment != 0 &&
		at[0].Codec != codec.Recipe && at[0].Codec != codec.Rounded
}
