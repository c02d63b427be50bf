package manifest

import (
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/document"
	"ckptfs/formats"
)

// Decode reads what Encode wrote and nothing else. The error wraps cas.ErrCorrupt, or cas.ErrNewer for a
// later version. It takes up to 200 bytes of memory for each of p, and for names that share their beginnings
// 128 MiB at most.
func Decode(p []byte) (*Manifest, error) {
	d, m := newDecoder(p), &Manifest{}
	flags := d.begin(m)
	if d.Err != nil {
		return nil, d.Err
	}
	d.extents(m, flags == 0)
	if flags != 0 {
		d.regions(m)
	}
	d.tensors(m)
	if err := d.End(); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	if flags != 0 && m.regionsImplied() {
		return nil, fmt.Errorf("manifest: regions written out without need: %w", cas.ErrCorrupt)
	}
	return m, nil
}

// Objects are those of a manifest, for a caller that does not ask what its bytes mean. The rest of it is not
// looked at.
func Objects(p []byte) ([]Object, error) {
	d, m := newDecoder(p), &Manifest{}
	d.begin(m)
	return m.Objects, d.Err
}

// decoder is a document.Reader of a manifest.
type decoder struct{ document.Reader }

func newDecoder(p []byte) decoder { return decoder{document.Reader{P: p, Of: "manifest"}} }

// begin reads all before the extents. flags says whether regions follow these.
func (d *decoder) begin(m *Manifest) (flags int64) {
	if d.Magic(magic); d.Err != nil {
		return 0
	}
	if flags = d.Num(); flags > flagRegions|flagPartial {
		d.Fail("flags %#x", flags)
	}
	m.Partial = flags&flagPartial != 0
	m.Format = d.String()
	m.Size = d.Num()
	d.objects(m)
	return flags & flagRegions
}

func (d *decoder) objects(m *Manifest) {
	n := d.Count(cas.HashSize + 1)
	if n == 0 {
		return
	}
	m.Objects = make([]Object, n)
	for i := range m.Objects {
		o := &m.Objects[i]
		copy(o.Digest[:], d.Take(cas.HashSize))
		v := d.Num()
		o.Len, o.List = v>>1, v&1 != 0
	}
}

func (d *decoder) extents(m *Manifest, implied bool) {
	n := d.Count(1)
	if n == 0 {
		return
	}
	m.Extents = make([]Extent, 0, n)
	cur := newCursor(m.Objects)
	var off int64
	for range n {
		op := d.Byte()
		if op > srcAny<<2|3 {
			d.Fail("extent op %#x", op)
		}
		e, src := Extent{}, op>>2
		switch src {
		case srcZeros:
			e.Object, e.Len = -1, d.Num()
		case srcNext:
			if cur.fresh >= len(m.Objects) {
				d.Fail("extent past the last object")
				break
			}
			e.Object, e.Len = int32(cur.fresh), m.Objects[cur.fresh].Len
		default:
			o := d.Num()
			if o >= int64(len(m.Objects)) {
				d.Fail("extent of object %d of %d", o, len(m.Objects))
				break
			}
			e.Object, e.ObjOff = int32(o), cur.end[o]
			if src == srcAny {
				e.ObjOff = d.Num()
			}
			e.Len = d.Num()
		}
		if d.Err != nil {
			return
		}
		if e.Len <= 0 || e.Len > m.Size-off {
			d.Fail("extent of %d bytes at %d of %d", e.Len, off, m.Size)
			return
		}
		if src != cur.source(e) {
			d.Fail("extent at %d with op %#x, not its shortest", off, op)
			return
		}
		if e.Object >= 0 && (e.ObjOff > MaxObject || e.Len > MaxObject) {
			d.Fail("extent at %d outside its object", off)
			return
		}
		cur.used(e)
		m.Extents = append(m.Extents, e)
		switch kind := op & 3; {
		case kind == regionGoesOn && !implied:
		case kind == regionGoesOn && len(m.Regions) > 0:
			m.Regions[len(m.Regions)-1].Len += e.Len
		case kind != regionGoesOn && implied:
			m.Regions = append(m.Regions, formats.Region{Off: off, Len: e.Len, Kind: formats.Kind(kind)})
		default:
			d.Fail("extent at %d with region bits %d", off, kind)
			return
		}
		off += e.Len
	}
}

func (d *decoder) regions(m *Manifest) {
	n := d.Count(2)
	m.Regions = make([]formats.Region, 0, n)
	var off int64
	for range n {
		r := formats.Region{Off: off, Len: d.Num(), Kind: formats.Kind(d.Byte())}
		if d.Err != nil {
			return
		}
		if r.Len > m.Size-off {
			d.Fail("region of %d bytes at %d of %d", r.Len, off, m.Size)
			return
		}
		off += r.Len
		m.Regions = append(m.Regions, r)
	}
}

// tensorBytes is the least a tensor takes: prefix, suffix length, type, dimensions, region, offset.
const tensorBytes = 6

// maxTypes is more element types than there are.
const maxTypes = 256

func (d *decoder) tensors(m *Manifest) {
	n := d.Num()
	if n == 0 || d.Err != nil {
		return
	}
	if n > int64(len(d.P)/tensorBytes) {
		d.Fail("%d tensors in %d bytes", n, len(d.P))
		return
	}
	k := d.Count(1)
	if k > maxTypes {
		d.Fail("%d element types", k)
		return
	}
	types := make([]formats.DType, k)
	seen := make(map[formats.DType]bool, len(types))
	for i := range types {
		types[i] = formats.DType(d.String())
		if seen[types[i]] {
			d.Fail("type %q twice", types[i])
		}
		seen[types[i]] = true
	}
	m.Tensors = make([]formats.Tensor, n)
	name, region, used, names := "", 0, 0, 0
	for i := range m.Tensors {
		t := &m.Tensors[i]
		t.Name = d.name(name)
		if names += len(t.Name); names > maxNames {
			d.Err = errors.Join(d.Err, fmt.Errorf("manifest: tensor names: %w", cas.ErrTooLarge))
		}
		v := d.Num()
		typ, mode := v>>2, v&3
		switch {
		case d.Err != nil:
			return
		case typ >= int64(len(types)) || typ > int64(used):
			d.Fail("tensor %q: type %d", t.Name, typ)
			return
		case typ == int64(used):
			used++
		}
		t.DType = types[typ]
		d.shape(t)
		t.Region = int(int64(region) + d.Zigzag())
		t.Offset = d.Num()
		d.strides(t, mode)
		if d.Err != nil {
			return
		}
		if t.Region < -1 || t.Region >= len(m.Regions) {
			d.Fail("tensor %q: region %d of %d", t.Name, t.Region, len(m.Regions))
			return
		}
		name, region = t.Name, t.Region
	}
	if used != len(types) {
		d.Fail("%d types, %d used", len(types), used)
	}
}

// name reads a name that begins as prev does.
func (d *decoder) name(prev string) string {
	n := d.Num()
	if n > int64(len(prev)) {
		d.Fail("name prefix of %d of %d bytes", n, len(prev))
		return ""
	}
	rest := d.Take(d.Count(1))
	if len(rest) == 0 {
		return prev[:n]
	}
	if n < int64(len(prev)) && rest[0] == prev[n] {
		d.Fail("name prefix of %d bytes, not its longest", n)
		return ""
	}
	return prev[:n] + string(rest)
}

func (d *decoder) shape(t *formats.Tensor) {
	n := d.Count(1)
	if n == 0 {
		return
	}
	t.Shape = make([]int64, n)
	for i := range t.Shape {
		t.Shape[i] = d.Num()
	}
}

func (d *decoder) strides(t *formats.Tensor, mode int64) {
	switch mode {
	case strideNone:
		return
	case strideRowMajor:
		t.Stride = make([]int64, len(t.Shape))
		s := int64(1)
		for i := len(t.Shape) - 1; i >= 0; i-- {
			t.Stride[i] = s
			s *= max(t.Shape[i], 1)
		}
	case strideGiven:
		if len(t.Shape) > len(d.P) {
			d.Fail("strides cut short")
			return
		}
		t.Stride = make([]int64, len(t.Shape))
		for i := range t.Stride {
			t.Stride[i] = d.Zigzag()
		}
		if rowMajor(t.Shape, t.Stride) {
			d.Fail("tensor %q: row-major strides written out", t.Name)
		}
	default:
		d.Fail("tensor %q: stride mode %d", t.Name, mode)
	}
}
