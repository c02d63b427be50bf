package pack

import (
	"slices"

	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// masters finds, for a tensor in half precision, those in single precision of which it may be the rounding:
// of the same shape and name, or whose names end alike, as model.a.b and optimizer.master.a.b do.
type masters struct{ byName map[string][]master }

// master is a tensor in single precision that fills a region.
type master struct {
	t   *formats.Tensor
	r   *formats.Region
	of  *earlier // the packed file that it lies in, or
	own *region  // the region of the file that is being packed
}

const (
	maxAlike  = 16 // masters whose names end alike
	maxProbes = 4  // that are compared with a tensor

	// minRounded is the length of a tensor, in bytes, below which a record that names its bases is no gain.
	minRounded = 256
	// probe is how much of a tensor is compared before it is taken for the rounding of another.
	probe = 4 << 10
)

// fills reports whether t is all of r.
func fills(t *formats.Tensor, r *formats.Region) bool {
	return r.Kind == formats.Data && t.Offset == 0 && r.Len > 0 && t.NumBytes() == r.Len
}

func (m *masters) add(c master) {
	if c.t.DType != "F32" || !fills(c.t, c.r) {
		return
	}
	if m.byName == nil {
		m.byName = map[string][]master{}
	}
	for _, name := range endings(c.t.Name, 2) {
		if l := m.byName[name]; len(l) < maxAlike {
			m.byName[name] = append(l, c)
		}
	}
}

func (m *masters) addFile(e *earlier) {
	for i := range e.m.Tensors {
		if t := &e.m.Tensors[i]; t.Region >= 0 {
			m.add(master{t: t, r: &e.m.Regions[t.Region], of: e})
		}
	}
}

func (m *masters) addFiles(st Store, files []*manifest.Manifest) {
	for _, f := range files {
		m.addFile(newEarlier(st, f))
	}
}

// of is the first master of which t, all of r, which begins with head, may be the rounding; nil when there is
// none. read gives the beginning of one.
func (m *masters) of(t *formats.Tensor, r *formats.Region, head func() ([]byte, error),
	read func(c *master, n int) ([]byte, error)) (*master, error) {
	if len(m.byName) == 0 || t == nil || r.Len < minRounded || !codec.MayBeRounded(hintOf(t)) ||
		!fills(t, r) {
		return nil, nil
	}
	var half []byte
	var seen []*formats.Tensor
	for _, name := range endings(t.Name, 2) {
		for i := range m.byName[name] {
			c := &m.byName[name][i]
			if c.r.Len != 2*r.Len || !slices.Equal(c.t.Shape, t.Shape) || slices.Contains(seen, c.t) {
				continue
			}
			if seen = append(seen, c.t); len(seen) > maxProbes {
				return nil, nil
			}
			if half == nil {
				var err error
				if half, err = head(); err != nil {
					return nil, err
				}
			}
			full, err := read(c, 2*len(half))
			if err != nil {
				return nil, err
			}
			if codec.IsRounded(half, full, hintOf(t)) {
				return c, nil
			}
		}
	}
	return nil, nil
}

// begin reads the first n bytes of a region that e had; nil when they cannot be read.
func (e *earlier) begin(r *formats.Region, n int) []byte {
	spans := e.grid(r)
	if len(spans) == 0 {
		return nil
	}
	p, err := e.store.Get(spans[0].Hash, nil)
	if err != nil || len(p) < n {
		return nil
	}
	return p[:n]
}
