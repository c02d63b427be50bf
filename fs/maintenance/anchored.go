package maintenance

import (
	"context"
	"encoding/binary"

	"ckptfs/cas"
	"ckptfs/cas/spilled"
	"ckptfs/index/manifest"
)

// anchored are the tensors whose anchors are noted, as those of a store are that was filled before there were
// any, or whose index of anchors was lost, once a compaction was there. A nil anchored notes none.
type anchored struct {
	passes  *Passes
	tensors *spilled.Set
	objects *spilled.Set // whose tensors are
}

func newAnchored(p *Passes) *anchored {
	a := &anchored{p, spilled.NewSet(p.Spill), spilled.NewSet(p.Spill)}
	if !p.Bases.Anchored(func(m cas.Hash, tensor uint32) bool {
		a.tensors.Add(tensorKey(m, tensor))
		return true
	}) {
		return nil
	}
	return a
}

// tensorKey is a key for a tensor of a manifest, which is spread as a hash is.
func tensorKey(m cas.Hash, tensor uint32) [16]byte {
	k := short(m)
	binary.LittleEndian.PutUint32(k[:], binary.LittleEndian.Uint32(k[:])+tensor*0x9e3779b1)
	return k
}

// file notes the anchors of the tensors of a file whose objects have none.
func (a *anchored) file(ctx context.Context, h cas.Hash, m *manifest.Manifest) error {
	if a == nil {
		return nil
	}
	digests := m.Digests()
	return a.passes.Bases.Anchor(ctx, a.passes.Pack, h, m, func(i int) bool {
		fresh := a.tensors.Add(tensorKey(h, uint32(i)))
		if digests[i].IsZero() { // it is several objects
			return fresh
		}
		return a.objects.Add(short(digests[i])) && fresh
	})
}
