package bases

import (
	"context"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/fs/pack"
	"ckptfs/index/anchors"
	"ckptfs/index/manifest"
)

// marked looks for tensors by their anchors, among the manifests that are named, or all where that is nil;
// not, if not nil, says of one that nothing but what is quantised may be stored with its help.
type marked struct {
	f          *Finder
	named, not func(cas.Hash) bool
}

func (a marked) Find(keys []anchor.Key, least, most int) []anchors.Hit {
	return a.f.o.Anchors.Find(keys, least, most)
}

func (a marked) Of(h cas.Hash, quantised bool) *manifest.Manifest {
	if !quantised && a.not != nil && a.not(h) || a.named != nil && !a.named(h) {
		return nil
	}
	m, err := a.f.o.Store.Manifest(h)
	if err != nil {
		return nil
	}
	return m
}

// anchors is nil where there are none.
func (f *Finder) anchors(named, not func(cas.Hash) bool) pack.Anchors {
	if f.o.Anchors == nil {
		return nil
	}
	return marked{f, named, not}
}

// NoteAnchors notes the anchors of a file that was packed. What cannot be noted is not found by them.
func (f *Finder) NoteAnchors(h cas.Hash, tensors []anchors.Tensor) {
	if f == nil || f.o.Anchors == nil || len(tensors) == 0 {
		return
	}
	if err := f.o.Anchors.Note(h, tensors); err != nil && f.o.Failed != nil {
		f.o.Failed(err)
	}
}

// AnchorsLost reports whether tensors may have no anchors that had some, or never had any.
func (f *Finder) AnchorsLost() bool {
	if f == nil || f.o.Anchors == nil {
		return false
	}
	tensors, _ := f.o.Anchors.Sizes()
	return tensors == 0 || f.o.Anchors.Dropped()
}

// Anchored calls f with all tensors whose anchors are noted, until it returns false. kept is false where none
// are.
func (f *Finder) Anchored(each func(m cas.Hash, tensor uint32) bool) (kept bool) {
	if f == nil || f.o.Anchors == nil {
		return false
	}
	f.o.Anchors.Each(each)
	return true
}

// Anchor notes the anchors of the tensors of a packed file that are wanted.
func (f *Finder) Anchor(ctx context.Context, p *pack.Packer, h cas.Hash, m *manifest.Manifest,
	wanted func(i int) bool) error {
	if f == nil || f.o.Anchors == nil {
		return nil
	}
	all, err := p.Anchors(ctx, m, wanted)
	if err != nil {
		return err
	}
	f.NoteAnchors(h, all)
	return nil
}
