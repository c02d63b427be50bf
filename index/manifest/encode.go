package manifest

import (
	"encoding/binary"

	"ckptfs/formats"
)

const (
	magic = "CKM1"

	flagRegions = 1 // the regions are written out
	flagPartial = 2 // the layout is partial

	regionGoesOn = 3 // region bits of an op at which no region starts

	srcZeros = 0
	srcNext  = 1 // the whole of the next unused object
	srcOn    = 2 // on from where the object's last extent ended
	srcAny   = 3

	strideNone     = 0
	strideRowMajor = 1
	strideGiven    = 2
)

// Encode returns the manifest's one encoding, or an error when Check does.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	p := make([]byte, 0, 64+len(m.Objects)*38+len(m.Extents)*4+len(m.Tensors)*24)
	p = append(p, magic...)
	implied := m.regionsImplied()
	flags := int64(0)
	if !implied {
		flags |= flagRegions
	}
	if m.Partial {
		flags |= flagPartial
	}
	p = num(p, flags)
	p = str(p, m.Format)
	p = num(p, m.Size)
	p = num(p, int64(len(m.Objects)))
	for _, o := range m.Objects {
		p = append(p, o.Digest[:]...)
		n := o.Len << 1
		if o.List {
			n |= 1
		}
		p = num(p, n)
	}
	p = m.appendExtents(p, implied)
	if !implied {
		p = num(p, int64(len(m.Regions)))
		for _, r := range m.Regions {
			p = append(num(p, r.Len), byte(r.Kind))
		}
	}
	return appendTensors(p, m.Tensors), nil
}

func (m *Manifest) appendExtents(p []byte, implied bool) []byte {
	p = num(p, int64(len(m.Extents)))
	cur := newCursor(m.Objects)
	var off int64
	r := 0
	for _, e := range m.Extents {
		op := byte(regionGoesOn)
		if implied && r < len(m.Regions) && m.Regions[r].Off == off {
			op = byte(m.Regions[r].Kind)
			r++
		}
		src := cur.source(e)
		p = append(p, op|src<<2)
		switch src {
		case srcZeros:
			p = num(p, e.Len)
		case srcOn:
			p = num(num(p, int64(e.Object)), e.Len)
		case srcAny:
			p = num(num(num(p, int64(e.Object)), e.ObjOff), e.Len)
		}
		cur.used(e)
		off += e.Len
	}
	return p
}

func appendTensors(p []byte, ts []formats.Tensor) []byte {
	p = num(p, int64(len(ts)))
	if len(ts) == 0 {
		return p
	}
	e := newTensorEncoder(ts)
	p = e.types(p)
	for i := range ts {
		p = e.append(p, &ts[i])
	}
	return p
}

// TensorsSize is the length in bytes of what a manifest says of ts.
func TensorsSize(ts []formats.Tensor) int {
	e := newTensorEncoder(ts)
	p := e.types(num(nil, int64(len(ts))))
	n := len(p)
	for i := range ts {
		p = e.append(p[:0], &ts[i])
		n += len(p)
	}
	return n
}

// tensorEncoder follows the tensors, each of which is written as it differs from the one before.
type tensorEncoder struct {
	index  map[formats.DType]int64
	order  []formats.DType // of first use
	name   string
	region int
}

func newTensorEncoder(ts []formats.Tensor) *tensorEncoder {
	e := &tensorEncoder{index: map[formats.DType]int64{}}
	for i := range ts {
		if _, ok := e.index[ts[i].DType]; !ok {
			e.index[ts[i].DType] = int64(len(e.order))
			e.order = append(e.order, ts[i].DType)
		}
	}
	return e
}

func (e *tensorEncoder) types(p []byte) []byte {
	p = num(p, int64(len(e.order)))
	for _, d := range e.order {
		p = str(p, string(d))
	}
	return p
}

func (e *tensorEncoder) append(p []byte, t *formats.Tensor) []byte {
	n := shared(e.name, t.Name)
	p = str(num(p, int64(n)), t.Name[n:])
	mode := int64(strideNone)
	switch {
	case t.Stride == nil:
	case rowMajor(t.Shape, t.Stride):
		mode = strideRowMajor
	default:
		mode = strideGiven
	}
	p = num(p, e.index[t.DType]<<2|mode)
	p = num(p, int64(len(t.Shape)))
	for _, d := range t.Shape {
		p = num(p, d)
	}
	p = binary.AppendVarint(p, int64(t.Region-e.region))
	p = num(p, t.Offset)
	if mode == strideGiven {
		for _, s := range t.Stride {
			p = binary.AppendVarint(p, s)
		}
	}
	e.name, e.region = t.Name, t.Region
	return p
}

// cursor follows the extents so that the writer and the reader agree on what an op leaves unsaid.
type cursor struct {
	objects []Object
	fresh   int     // one above the highest object used so far
	end     []int64 // where the last extent of each object ended
}

func newCursor(objects []Object) *cursor {
	return &cursor{objects: objects, end: make([]int64, len(objects))}
}

// source is the first source form that fits e.
func (c *cursor) source(e Extent) byte {
	switch {
	case e.Object < 0:
		return srcZeros
	case int(e.Object) == c.fresh && e.ObjOff == 0 && e.Len == c.objects[c.fresh].Len:
		return srcNext
	case e.ObjOff == c.end[e.Object]:
		return srcOn
	}
	return srcAny
}

func (c *cursor) used(e Extent) {
	if e.Object >= 0 {
		c.end[e.Object] = e.ObjOff + e.Len
		c.fresh = max(c.fresh, int(e.Object)+1)
	}
}

func num(p []byte, v int64) []byte { return binary.AppendUvarint(p, uint64(v)) }

func str(p []byte, s string) []byte { return append(num(p, int64(len(s))), s...) }

// shared is the length of the longest common prefix.
func shared(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
