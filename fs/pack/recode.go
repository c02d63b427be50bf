package pack

import (
	"context"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// Recode calls recode for the chunks of a packed file, on as many workers as packing has, each with what is known of its
// numbers and, where before is not nil, with the chunk that stood there in that earlier version. recode reports whether it
// tried, and whether that paid: of a region where it mostly does not, only now and then a chunk is tried, as in packing. What cannot be read
// of the file is passed over.
func (p *Packer) Recode(ctx context.Context, m, before *manifest.Manifest, recode func(h cas.Hash, hint codec.Hint, prev cas.Hash) (tried, saved bool, err error)) error {
	j := newJob(ctx, p, nil, nil)
	defer j.cancel()
	if before != nil {
		j.before = newEarlier(p.store, before)
	}
	return j.finish(j.recode(newEarlier(p.store, m), recode))
}

func (j *job) recode(own *earlier, recode func(cas.Hash, codec.Hint, cas.Hash) (bool, bool, error)) error {
	first := make([]*formats.Tensor, len(own.m.Regions))
	for i := range own.m.Tensors {
		if t := &own.m.Tensors[i]; t.Region >= 0 && first[t.Region] == nil {
			first[t.Region] = t
		}
	}
	blobs := &odds{} // they are many and small
	for i := range own.m.Regions {
		r, t, chances := &own.m.Regions[i], first[i], blobs
		var hint codec.Hint
		spans, prev := own.chunks(r, t), j.before.chunks(r, t)
		if t != nil && r.Kind == formats.Data {
			hint, chances = hintOf(t), &odds{}
		}
		if spans == nil {
			spans, prev = own.within(r), nil
		}
		for k, s := range spans {
			var h cas.Hash
			if k < len(prev) {
				h = prev[k].Hash
			}
			if !chances.good() {
				continue
			}
			if err := j.do(func() error {
				tried, saved, err := recode(s.Hash, hint, h)
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
