package pack

import (
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// masters finds, for a tensor in half precision, those in single precision of which it may be the rounding: of the same shape and
// name, or whose names end alike, as model.a.b and optimizer.master.a.b do.
type masters struct{ byName map[string][]master }

// master is a tensor in single precision that fills a region.
type master struct {
	t   *formats.Tensor
	r   *formats.Region
	of  *earlier // the packed file that it lies in, or
	own *region  // the region of the file that is being packed
}

const (
	maxEndings = 8  // of a name that are looked at
	maxAlike   = 16 // masters whose names end alike
	maxProbes  = 4  // that are compared with a tensor

	// minRounded is the length of a tensor, in bytes, below which a record that names its bases is no gain.
	minRounded = 256
	// probe is how much of a tensor is compared before it is taken for the rounding of another.
	probe = 4 << 10
)

// endings are the names by which a tensor is looked for, the longest first: all of its name, and the ends of it that have two
// parts at least.
func endings(name string) []string {
	ends := []string{name}
	for rest := name; len(ends) < maxEndings; {
		i := strings.IndexAny(rest, "./")
		if i < 0 || !strings.ContainsAny(rest[i+1:], "./") {
			break
		}
		rest = rest[i+1:]
		ends = append(ends, rest)
	}
	return ends
}

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
	for _, name := range endings(c.t.Name) {
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

// of is the first master of which t, all of r, which begins with head, may be the rounding; nil when there is none. read gives the
// beginning of one.
func (m *masters) of(t *formats.Tensor, r *formats.Region, head func() ([]byte, error), read func(c *master, n int) ([]byte, error)) (*master, error) {
	if len(m.byName) == 0 || t == nil || r.Len < minRounded || !codec.MayBeRounded(hintOf(t)) || !fills(t, r) {
		return nil, nil
	}
	var half []byte
	var seen []*formats.Tensor
	for _, name := range endings(t.Name) {
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

// begin reads the first n bytes of a region that e had; nil when they are not to be had.
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

// relatives are the chunks that those of a region may be stored with the help of, in order.
type relatives struct {
	prev    []manifest.Span
	masters []manifest.Span // two for each chunk of the region, but perhaps the last
}

func (l *relatives) of(i int64) (rel cas.Related) {
	if i < int64(len(l.prev)) {
		rel.Prev = l.prev[i].Hash
	}
	for k := range rel.Masters {
		if at := 2*i + int64(k); at < int64(len(l.masters)) {
			rel.Masters[k] = l.masters[at].Hash
		}
	}
	return rel
}
