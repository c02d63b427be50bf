package estimate

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

// known are the manifests that were made or read last, in so much memory. The last one is kept, whatever it
// takes.
type known struct {
	last  *simplelru.LRU[cas.Hash, *manifest.Manifest]
	bytes int64
	most  int64
}

// mostKnown bounds their number.
const mostKnown = 256

func newKnown(most int64) known {
	if most == 0 {
		most = math.MaxInt64
	}
	last, _ := simplelru.NewLRU[cas.Hash, *manifest.Manifest](mostKnown, nil) // the size is positive
	return known{last: last, most: most}
}

// bytesOf is about what a manifest takes in memory.
func bytesOf(m *manifest.Manifest) int64 {
	return 160*int64(len(m.Tensors)) + 24*int64(len(m.Regions)+len(m.Extents)) + 48*int64(len(m.Objects))
}

func (k *known) add(h cas.Hash, m *manifest.Manifest) {
	if k.last.Contains(h) {
		return
	}
	for k.last.Len() > 0 && (k.last.Len() == mostKnown || k.bytes+bytesOf(m) > k.most) {
		_, old, _ := k.last.RemoveOldest()
		k.bytes -= bytesOf(old)
	}
	k.last.Add(h, m)
	k.bytes += bytesOf(m)
}

// Manifest reads a manifest.
func (e *estimator) Manifest(h cas.Hash) (*manifest.Manifest, error) {
	if m, ok := e.known.last.Get(h); ok {
		return m, nil
	}
	p, err := e.store.Get(h, nil)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Decode(p)
	if err == nil {
		e.known.add(h, m)
	}
	return m, err
}

// Latest lists nothing: there was no store before.
func (e *estimator) Latest(int) []cas.Hash { return nil }
