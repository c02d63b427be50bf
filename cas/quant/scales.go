package quant

import (
	"math"

	"ckptfs/cas/half"
)

// Slab is how many elements are taken at a time: whole blocks of every format.
const Slab = 2048

// extremes are the least and greatest numbers of parts of a slab. A part that has an infinity or none at all
// has an infinite greatest number.
type extremes struct {
	min, max [Slab / 16]float32
}

// factors are what the codes of parts of a slab are computed from: (x+b)/a where a format divides, else x*a,
// or (x-b)*a where it has both. Where a is no number all codes are 0.
type factors struct {
	a, b [Slab / 16]float32
}

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

func bits(x float32) uint32 { return math.Float32bits(x) }

// extremesPortable sets e, from one on, to those of parts of sub numbers of x.
func extremesPortable(e *extremes, x []float32, sub, from int) {
	for i := from; i < len(x)/sub; i++ {
		// Bits as whole numbers order numbers of one sign; those of negative ones are turned around.
		lo, hi := int32(math.MaxInt32), int32(math.MinInt32)
		for _, v := range x[i*sub : (i+1)*sub] {
			b := int32(bits(v))
			b ^= b >> 31 & math.MaxInt32
			lo, hi = min(lo, b), max(hi, b)
		}
		const infinity = 0x7f800000
		if hi >= infinity || lo < -infinity {
			e.min[i], e.max[i] = 0, inf
			continue
		}
		e.min[i] = math.Float32frombits(uint32(lo^lo>>31&math.MaxInt32)) + 0 // never -0
		e.max[i] = math.Float32frombits(uint32(hi^hi>>31&math.MaxInt32)) + 0
	}
}

// finite reports whether part i is all numbers.
func (e *extremes) finite(i int) bool { return e.max[i] != inf }

// greatest is the first of the numbers of greatest magnitude of part i, x; 0 of one that is not all numbers.
func (e *extremes) greatest(i int, x []float32) float32 {
	lo, hi := e.min[i], e.max[i]
	if hi == inf {
		return 0
	}
	first, below, above := bits(hi), bits(lo)&math.MaxInt32, bits(hi)&math.MaxInt32
	if below > above {
		first = bits(lo)
	}
	if below != above || lo == hi {
		return math.Float32frombits(first)
	}
	for _, v := range x {
		if v == lo || v == hi {
			return v
		}
	}
	return hi
}

// round is the whole number next to v, the even one of two, at least lo and at most hi; lo of what is none.
func round(v, lo, hi float32) int32 {
	if !(v > lo) {
		v = lo
	}
	if v > hi {
		v = hi
	}
	return int32(bits(v+magic)) - magicBits
}

// magic makes the fraction of what it is added to rounded off: its last bit is 1.
const (
	magic     = 3 << 22
	magicBits = 0x4b400000
)

// fields takes the scales of block i of a slab, of which p begins with the bytes, or, where c reads, makes
// them; and sets the factors of its parts.
func (q *Quantiser) fields(c *coder, p []byte, e *extremes, f *factors, i int, x []float32) {
	switch q.Format {
	case Q4_K, Q5_K, Q2_K:
		q.ranges(c, p, e, f, i)
	case Q6_K, Q3_K, IQ4_XS:
		if c.reads && q.Format == Q6_K && q.restoreMagnitudes(c, p, e, f, i, x) {
			return
		}
		q.magnitudes(c, p, e, f, i, x)
	case Q4_1, Q5_1:
		q.affine(c, p, e, f, i)
	case MXFP4:
		powers(c, p, e, f, i)
	default:
		q.linear(c, p, e, f, i, x)
	}
}

// ranges are the fields of formats with a scale and an offset for each part.
func (q *Quantiser) ranges(c *coder, p []byte, e *extremes, f *factors, i int) {
	n, levels, field, width := 8, float32(15), float32(63), uint(6)
	switch q.Format {
	case Q5_K:
		levels = 31
	case Q2_K:
		n, levels, field, width = 16, 3, 15, 4
	}
	var rg, lo [16]float32
	var mostRange, mostLow float32
	least, most := e.min[i*n:][:n], e.max[i*n:][:n]
	for j, hi := range most {
		if hi == inf {
			continue
		}
		low := least[j]
		if low > 0 {
			low = 0
		}
		rg[j], lo[j] = hi-low, 0-low
		if rg[j] > mostRange {
			mostRange = rg[j]
		}
		if lo[j] > mostLow {
			mostLow = lo[j]
		}
	}
	d := c.half(dStream, q.get16(p, 0), f16(mostRange/levels/field))
	m := c.half(mStream, q.get16(p, 1), f16(mostLow/field))
	step, low := half.FromF16(d), half.FromF16(m)
	var sc, mn, group [16]byte
	if !c.reads {
		q.split(p, &sc, &mn)
	}
	predicted := steady(rg[:n], reciprocal(float32(step*levels)), 0, field)
	c.fields(scaleStream, sc[:n], &predicted, width, &group)
	predicted = steady(lo[:n], reciprocal(low), 0, field)
	c.grouped(groupStream, mn[:n], &predicted, width, &group)
	as, bs := f.a[i*n:][:n], f.b[i*n:][:n]
	for j := range as {
		a, b := float32(step*float32(sc[j])), float32(low*float32(mn[j]))
		if a == 0 {
			a, b = rg[j]/levels, lo[j]
		}
		if a == 0 || most[j] == inf {
			a = nan
		}
		as[j], bs[j] = a, b
	}
	q.put16(p, 0, d)
	q.put16(p, 1, m)
	q.join(p, &sc, &mn)
}

// steady are v times by, each rounded as round has it, eight or sixteen.
func steady(v []float32, by, lo, hi float32) (all [16]byte) {
	for j := 0; j+8 <= len(v); j += 8 {
		le.PutUint64(all[j:], steady8((*[8]float32)(v[j:]), by, lo, hi))
	}
	return all
}

// reciprocal is 1/x, or 0 of 0.
func reciprocal(x float32) float32 {
	if x == 0 {
		return 0
	}
	return 1 / x
}

// magnitudes are the fields of formats with a signed scale for each part.
func (q *Quantiser) magnitudes(c *coder, p []byte, e *extremes, f *factors, i int, x []float32) {
	n, levels, least, most, width := 16, float32(32), float32(-128), float32(127), uint(8)
	switch q.Format {
	case Q3_K:
		levels, least, most, width = 4, -32, 31, 6
	case IQ4_XS:
		n, levels, least, most, width = 8, 127, -32, 31, 6
	}
	size := shapes[q.Format].sub
	var s [16]float32
	var top float32
	for j := range n {
		s[j] = e.greatest(i*n+j, x[j*size:(j+1)*size])
		if bits(s[j])<<1 > bits(top)<<1 {
			top = s[j]
		}
	}
	d := c.half(dStream, q.get16(p, 0), f16(top/float32(-least*levels)))
	step := half.FromF16(d)
	predicted := steady(s[:n], -reciprocal(float32(step*levels)), least, most)
	if width == 6 {
		for j := range predicted {
			predicted[j] += 32
		}
	}
	if step == 0 && q.Format != IQ4_XS {
		predicted = [16]byte{}
	}
	var sc, group [16]byte
	if !c.reads {
		q.split(p, &sc, nil)
	}
	if q.Format == Q6_K {
		for j, v := range predicted {
			group[j] = (v ^ byte(int8(v)>>7)) >> 4
		}
		c.grouped(groupStream, sc[:], &predicted, width, &group)
	} else {
		c.fields(scaleStream, sc[:n], &predicted, width, &group)
	}
	as, bs := f.a[i*n:][:n], f.b[i*n:][:n]
	for j := range as {
		scale := int32(int8(sc[j]))
		if width == 6 {
			scale -= 32
		}
		a := float32(step * float32(scale))
		if q.Format == IQ4_XS {
			a = reciprocal(a)
		} else if a == 0 {
			a = s[j] / -levels
		}
		if a == 0 && q.Format != IQ4_XS || !e.finite(i*n+j) {
			a = nan
		}
		as[j], bs[j] = a, 0
	}
	q.put16(p, 0, d)
	q.join(p, &sc, nil)
}

// affine are the fields of formats whose blocks have a scale and a least number.
func (q *Quantiser) affine(c *coder, p []byte, e *extremes, f *factors, i int) {
	levels := float32(15)
	if q.Format == Q5_1 {
		levels = 31
	}
	var step, least float32
	if e.finite(i) {
		step, least = (e.max[i]-e.min[i])/levels, e.min[i]
	}
	d := c.half(dStream, q.get16(p, 0), f16(step))
	m := c.half(mStream, q.get16(p, 1), f16(least))
	if q.Variant == Stored {
		step, least = half.FromF16(d), half.FromF16(m)
	}
	f.a[i], f.b[i] = reciprocal(step), least
	if !e.finite(i) {
		f.a[i] = nan
	}
	q.put16(p, 0, d)
	q.put16(p, 1, m)
}

// linear are the fields of formats whose blocks have a scale.
func (q *Quantiser) linear(c *coder, p []byte, e *extremes, f *factors, i int, x []float32) {
	var step float32
	switch q.Format {
	case Q8_0:
		if e.finite(i) {
			step = max(e.max[i], -e.min[i]) / 127
		}
	case Q4_0:
		step = e.greatest(i, x) / -8
	case Q5_0:
		step = e.greatest(i, x) / -16
	case IQ4_NL:
		step = e.greatest(i, x) / -127
	}
	d := c.half(dStream, q.get16(p, 0), f16(step))
	if q.Variant == Stored || q.Format == IQ4_NL {
		step = half.FromF16(d)
	}
	f.a[i] = reciprocal(step)
	if !e.finite(i) || q.Variant == Stored && q.Format != Q8_0 && q.Format != IQ4_NL && step == 0 {
		f.a[i] = nan
	}
	q.put16(p, 0, d)
}

// powers are the fields of MXFP4, whose scale is a power of two.
func powers(c *coder, p []byte, e *extremes, f *factors, i int) {
	var predicted byte
	if e.finite(i) {
		if top := bits(max(e.max[i], -e.min[i])) >> 23 & 0xff; top > 2 {
			predicted = byte(top - 2)
		}
	}
	p[0], _ = c.field(scaleStream, p[0], predicted, 8, false)
	// Codes are twice the numbers, so what is multiplied is 2^(128-e).
	exp := 255 - int(p[0])
	switch {
	case !e.finite(i):
		f.a[i] = nan
	case exp > 254:
		f.a[i] = inf
	default:
		f.a[i] = math.Float32frombits(uint32(exp) << 23)
	}
}
