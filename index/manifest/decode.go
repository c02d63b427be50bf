package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"ckptfs/cas"
	"ckptfs/formats"
)

// Decode reads what Encode wrote and nothing else. The error wraps cas.ErrCorrupt, or cas.ErrNewer for a later version.
// It takes up to 200 bytes of memory for each of p, and for names that share their beginnings 128 MiB at most.
func Decode(p []byte) (*Manifest, error) {
	d := decoder{p: p}
	if err := d.magic(magic); err != nil {
		return nil, err
	}
	m := &Manifest{}
	flags := d.num()
	if flags > flagRegions|flagPartial {
		d.fail("flags %#x", flags)
	}
	m.Partial = flags&flagPartial != 0
	flags &= flagRegions
	m.Format = d.str()
	m.Size = d.num()
	d.objects(m)
	d.extents(m, flags == 0)
	if flags != 0 {
		d.regions(m)
	}
	d.tensors(m)
	if d.err == nil && len(d.p) > 0 {
		d.fail("%d bytes after the end", len(d.p))
	}
	if d.err != nil {
		return nil, d.err
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	if flags != 0 && m.regionsImplied() {
		return nil, fmt.Errorf("manifest: regions written out without need: %w", cas.ErrCorrupt)
	}
	return m, nil
}

// decoder eats p. After the first error all reads return zero values and every loop ends.
type decoder struct {
	p   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("manifest: %s: %w", fmt.Sprintf(format, args...), cas.ErrCorrupt)
		d.p = nil
	}
}

// magic reads three letters and a version digit.
func (d *decoder) magic(want string) error {
	n := len(want) - 1
	got := string(d.take(len(want)))
	switch {
	case got == want:
		return nil
	case len(got) == len(want) && got[:n] == want[:n] && got[n] > want[n] && got[n] <= '9':
		return fmt.Errorf("manifest: version %q: %w", got, cas.ErrNewer)
	}
	return fmt.Errorf("manifest: no %s: %w", want, cas.ErrCorrupt)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.p) {
		d.fail("cut short")
		return nil
	}
	q := d.p[:n]
	d.p = d.p[n:]
	return q
}

func (d *decoder) byte() byte {
	if q := d.take(1); q != nil {
		return q[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.p)
	if n <= 0 || n > 1 && d.p[n-1] == 0 {
		d.fail("bad number")
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) num() int64 {
	v := d.uvarint()
	if v > math.MaxInt64 {
		d.fail("number past 2^63")
		return 0
	}
	return int64(v)
}

func (d *decoder) zigzag() int64 {
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// count reads how many items of at least size bytes follow.
func (d *decoder) count(size int) int {
	n := d.num()
	if n > int64(len(d.p)/size) {
		d.fail("count %d in %d bytes", n, len(d.p))
		return 0
	}
	return int(n)
}

func (d *decoder) str() string { return string(d.take(d.count(1))) }

func (d *decoder) objects(m *Manifest) {
	n := d.count(cas.HashSize + 1)
	if n == 0 {
		return
	}
	m.Objects = make([]Object, n)
	for i := range m.Objects {
		o := &m.Objects[i]
		copy(o.Digest[:], d.take(cas.HashSize))
		v := d.num()
		o.Len, o.List = v>>1, v&1 != 0
	}
}

func (d *decoder) extents(m *Manifest, implied bool) {
	n := d.count(1)
	if n == 0 {
		return
	}
	m.Extents = make([]Extent, 0, n)
	cur := newCursor(m.Objects)
	var off int64
	for range n {
		op := d.byte()
		if op > srcAny<<2|3 {
			d.fail("extent op %#x", op)
		}
		e, src := Extent{}, op>>2
		switch src {
		case srcZeros:
			e.Object, e.Len = -1, d.num()
		case srcNext:
			if cur.fresh >= len(m.Objects) {
				d.fail("extent past the last object")
				break
			}
			e.Object, e.Len = int32(cur.fresh), m.Objects[cur.fresh].Len
		default:
			o := d.num()
			if o >= int64(len(m.Objects)) {
				d.fail("extent of object %d of %d", o, len(m.Objects))
				break
			}
			e.Object, e.ObjOff = int32(o), cur.end[o]
			if src == srcAny {
				e.ObjOff = d.num()
			}
			e.Len = d.num()
		}
		if d.err != nil {
			return
		}
		if e.Len <= 0 || e.Len > m.Size-off {
			d.fail("extent of %d bytes at %d of %d", e.Len, off, m.Size)
			return
		}
		if src != cur.source(e) {
			d.fail("extent at %d with op %#x, not its shortest", off, op)
			return
		}
		if e.Object >= 0 && (e.ObjOff > MaxObject || e.Len > MaxObject) {
			d.fail("extent at %d outside its object", off)
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
			d.fail("extent at %d with region bits %d", off, kind)
			return
		}
		off += e.Len
	}
}

func (d *decoder) regions(m *Manifest) {
	n := d.count(2)
	m.Regions = make([]formats.Region, 0, n)
	var off int64
	for range n {
		r := formats.Region{Off: off, Len: d.num(), Kind: formats.Kind(d.byte())}
		if d.err != nil {
			return
		}
		if r.Len > m.Size-off {
			d.fail("region of %d bytes at %d of %d", r.Len, off, m.Size)
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
	n := d.num()
	if n == 0 || d.err != nil {
		return
	}
	if n > int64(len(d.p)/tensorBytes) {
		d.fail("%d tensors in %d bytes", n, len(d.p))
		return
	}
	k := d.count(1)
	if k > maxTypes {
		d.fail("%d element types", k)
		return
	}
	types := make([]formats.DType, k)
	seen := make(map[formats.DType]bool, len(types))
	for i := range types {
		types[i] = formats.DType(d.str())
		if seen[types[i]] {
			d.fail("type %q twice", types[i])
		}
		seen[types[i]] = true
	}
	m.Tensors = make([]formats.Tensor, n)
	name, region, used, names := "", 0, 0, 0
	for i := range m.Tensors {
		t := &m.Tensors[i]
		t.Name = d.name(name)
		if names += len(t.Name); names > maxNames {
			d.err = errors.Join(d.err, fmt.Errorf("manifest: tensor names: %w", cas.ErrTooLarge))
		}
		v := d.num()
		typ, mode := v>>2, v&3
		switch {
		case d.err != nil:
			return
		case typ >= int64(len(types)) || typ > int64(used):
			d.fail("tensor %q: type %d", t.Name, typ)
			return
		case typ == int64(used):
			used++
		}
		t.DType = types[typ]
		d.shape(t)
		t.Region = int(int64(region) + d.zigzag())
		t.Offset = d.num()
		d.strides(t, mode)
		if d.err != nil {
			return
		}
		if t.Region < -1 || t.Region >= len(m.Regions) {
			d.fail("tensor %q: region %d of %d", t.Name, t.Region, len(m.Regions))
			return
		}
		name, region = t.Name, t.Region
	}
	if used != len(types) {
		d.fail("%d types, %d used", len(types), used)
	}
}

// name reads a name that begins as prev does.
func (d *decoder) name(prev string) string {
	n := d.num()
	if n > int64(len(prev)) {
		d.fail("name prefix of %d of %d bytes", n, len(prev))
		return ""
	}
	rest := d.take(d.count(1))
	if len(rest) == 0 {
		return prev[:n]
	}
	if n < int64(len(prev)) && rest[0] == prev[n] {
		d.fail("name prefix of %d bytes, not its longest", n)
		return ""
	}
	return prev[:n] + string(rest)
}

func (d *decoder) shape(t *formats.Tensor) {
	n := d.count(1)
	if n == 0 {
		return
	}
	t.Shape = make([]int64, n)
	for i := range t.Shape {
		t.Shape[i] = d.num()
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
		if len(t.Shape) > len(d.p) {
			d.fail("strides cut short")
			return
		}
		t.Stride = make([]int64, len(t.Shape))
		for i := range t.Stride {
			t.Stride[i] = d.zigzag()
		}
		if rowMajor(t.Shape, t.Stride) {
			d.fail("tensor %q: row-major strides written out", t.Name)
		}
	default:
		d.fail("tensor %q: stride mode %d", t.Name, mode)
	}
}
