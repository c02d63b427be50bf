package manifest

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/formats"
)

// Part is a range of a file's bytes, as a piece of another file.
type Part struct {
	From *Manifest // nil: zeros
	Off  int64     // bytes from the start of From's file; 0 for zeros
	Len  int64     // bytes, more than 0
}

// Splice is the manifest of the file that the parts make up, one after the other. It costs no byte of data:
// the objects are shared. With l it says what is known of the new bytes; without, a file that is the whole of
// another keeps what was known of that, and every other is a blob.
func Splice(parts []Part, l *formats.Layout) (*Manifest, error) {
	if l == nil && len(parts) == 1 && parts[0].From != nil && parts[0].Off == 0 &&
		parts[0].Len == parts[0].From.Size {
		whole := *parts[0].From
		return &whole, whole.Check()
	}
	m := &Manifest{}
	number := map[Object]int32{}
	for i, p := range parts {
		if p.Len <= 0 || p.Off < 0 || p.From == nil && p.Off != 0 ||
			p.From != nil && p.Off > p.From.Size-p.Len {
			return nil, fmt.Errorf("splice: part %d: bytes %d+%d: %w", i, p.Off, p.Len, cas.ErrCorrupt)
		}
		if p.From == nil {
			m.extend(Extent{Len: p.Len, Object: -1})
		} else {
			m.share(number, p)
		}
		m.Size += p.Len
	}
	if l == nil {
		l = formats.BlobLayout(m.Size)
	}
	m.Format, m.Regions, m.Tensors, m.Partial = l.Format, l.Regions, l.Tensors, l.Partial
	return m, m.Check()
}

// share appends the extents that p's bytes lie in.
func (m *Manifest) share(number map[Object]int32, p Part) {
	var at int64 // of the extent in p.From
	for _, x := range p.From.Extents {
		from, to := max(at, p.Off), min(at+x.Len, p.Off+p.Len)
		if at >= p.Off+p.Len {
			return
		}
		if from < to {
			e := Extent{Len: to - from, Object: -1}
			if x.Object >= 0 {
				o := p.From.Objects[x.Object]
				k, ok := number[o]
				if !ok {
					k = int32(len(m.Objects))
					number[o] = k
					m.Objects = append(m.Objects, o)
				}
				e.Object, e.ObjOff = k, x.ObjOff+from-at
			}
			m.extend(e)
		}
		at += x.Len
	}
}

// extend appends e, or makes the last extent longer when e goes on where that ends.
func (m *Manifest) extend(e Extent) {
	if k := len(m.Extents) - 1; k >= 0 && m.Extents[k].Object == e.Object {
		last := &m.Extents[k]
		if e.Object < 0 || last.ObjOff+last.Len == e.ObjOff {
			last.Len += e.Len
			return
		}
	}
	m.Extents = append(m.Extents, e)
}
