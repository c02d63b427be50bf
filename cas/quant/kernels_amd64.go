package quant

import "ckptfs/cas/simd"

// infinity is what twice the bits of an infinity are; of what is no number they are more.
const infinity = 0xff << 24

// extremesOf is extremesPortable.
func extremesOf(e *extremes, x []float32, sub int) {
	parts := len(x) / sub
	lanes := simd.Widest(8, 16)
	if n := parts / lanes; n > 0 && simd.Has(simd.AVX2) {
		_, _ = e.min[:parts], e.max[:parts] // the kernels check nothing
		kernel := simd.Widest(extremes32AVX2, extremes32AVX512)
		if sub == 16 {
			kernel = simd.Widest(extremes16AVX2, extremes16AVX512)
		}
		if kernel(&e.min[0], &e.max[0], &x[0], n) < infinity {
			extremesPortable(e, x, sub, n*lanes)
			return
		}
	}
	extremesPortable(e, x, sub, 0)
}

// steady8 is steady8Portable.
func steady8(v *[8]float32, by, lo, hi float32) uint64 {
	if simd.Has(simd.AVX2) {
		return steady8AVX2(&v[0], by, lo, hi)
	}
	return steady8Portable(v, by, lo, hi)
}

// spread is spreadPortable.
func (r *ranges) spread(e *extremes, blocks int) {
	if blocks == 0 || !simd.Has(simd.AVX2) {
		r.spreadPortable(e, blocks)
		return
	}
	_ = r.step[:blocks] // the kernels check nothing
	spreadAVX2(&r.rg[0], &e.min[0], &e.max[0], blocks)
}

// factors is factorsPortable.
func (r *ranges) factors(f *factors, levels float32, blocks int) {
	if blocks == 0 || !simd.Has(simd.AVX2) {
		r.factorsPortable(f, levels, blocks)
		return
	}
	_ = r.step[:blocks] // the kernels check nothing
	factorsAVX2(&r.rg[0], &f.a[0], &f.b[0], levels, blocks)
}

// magnitude is magnitudePortable.
func magnitude(x []float32) uint32 {
	n := len(x) / 64
	if n == 0 || !simd.Has(simd.AVX2) {
		return magnitudePortable(x)
	}
	top := simd.Widest(magnitudeAVX2, magnitudeAVX512)(&x[0], n)
	if top >= infinity {
		return magnitudePortable(x)
	}
	return max(top>>1, magnitudePortable(x[64*n:]))
}

// predict is predictPortable.
func (q *Quantiser) predict(dst []byte, x []float32, f *factors) {
	s := &shapes[q.Format]
	n := len(x) / s.elems
	if n == 0 || q.Variant == Fused || !simd.Has(simd.AVX2) {
		q.predictPortable(dst, x, f)
		return
	}
	_, _ = dst[:n*s.bytes], f.a[:len(x)/s.sub] // the kernels check nothing
	switch q.Format {
	case Q4_K:
		simd.Widest(predictQ4KAVX2, predictQ4KAVX512)(&dst[0], &x[0], &f.a[0], &f.b[0], n)
	case Q5_K:
		simd.Widest(predictQ5KAVX2, predictQ5KAVX512)(&dst[0], &x[0], &f.a[0], &f.b[0], n)
	case Q6_K:
		simd.Widest(predictQ6KAVX2, predictQ6KAVX512)(&dst[0], &x[0], &f.a[0], n)
	case Q4_0:
		simd.Widest(predictQ40AVX2, predictQ40AVX512)(&dst[0], &x[0], &f.a[0], &f.b[0], n)
	case Q4_1:
		simd.Widest(predictQ41AVX2, predictQ41AVX512)(&dst[0], &x[0], &f.a[0], &f.b[0], n)
	case Q5_0:
		simd.Widest(predictQ50AVX2, predictQ50AVX512)(&dst[0], &x[0], &f.a[0], &f.b[0], n)
	case Q5_1:
		simd.Widest(predictQ51AVX2, predictQ51AVX512)(&dst[0], &x[0], &f.a[0], &f.b[0], n)
	case MXFP4:
		simd.Widest(predictMXFP4AVX2, predictMXFP4AVX512)(&dst[0], &x[0], &f.a[0], &f.b[0], n)
	case Q8_0:
		simd.Widest(predictQ80AVX2, predictQ80AVX512)(&dst[0], &x[0], &f.a[0], n)
	default:
		q.predictPortable(dst, x, f)
	}
}

// f8Types are what the kernels know of F8E4M3 and F8E5M2: the greatest number; the least that is not
// subnormal; what to add to those below it, so that the last bit is their unit; what to add to round; what to
// subtract after that; how many bits are dropped.
var f8Types = [2][6]uint32{
	{0x43e00000, 121 << 23, 0x46800000, 1<<19 - 1, 120 << 3, 20},
	{0x47600000, 113 << 23, 0x43000000, 1<<20 - 1, 112 << 2, 21},
}

// f8 is f8Portable.
func (q *Quantiser) f8(codes []byte, x []float32, s float32) {
	n := len(codes) / 32
	if n == 0 || !simd.Has(simd.AVX2) || q.Variant == DivideF16 {
		q.f8Portable(codes, x, s)
		return
	}
	_ = x[:len(codes)] // the kernels check nothing
	kernel := simd.Widest(f8DivideAVX2, f8DivideAVX512)
	switch q.Variant {
	case DivideBF16:
		kernel = simd.Widest(f8DivideBF16AVX2, f8DivideBF16AVX512)
	case Times:
		kernel = simd.Widest(f8TimesAVX2, f8TimesAVX512)
	case TimesBF16:
		kernel = simd.Widest(f8TimesBF16AVX2, f8TimesBF16AVX512)
	}
	kernel(&codes[0], &x[0], n, q.factor8(s), &f8Types[q.Format-F8E4M3][0])
	q.f8Portable(codes[32*n:], x[32*n:len(codes)], s)
}

// predict is predictPortable.
func (r *row) predict(variant uint8, codes []byte, x []float32, s float32, t []float32) {
	n := len(codes) / 32
	if n == 0 || variant != HalfF16 || !simd.Has(simd.AVX2) {
		r.predictPortable(variant, codes, x, s, t)
		return
	}
	m := 32 * n
	_, _, _ = x[:m], r.scales[:m], r.zeros[:m] // the kernels check nothing
	if t == nil {
		awqF16AVX2(&codes[0], &x[0], &r.scales[0], nil, &r.zeros[0], n, s)
	} else {
		_ = t[r.output:][:m]
		awqOutputsF16AVX2(&codes[0], &x[0], &r.scales[0], &t[r.output], &r.zeros[0], n, s)
	}
	if m < len(codes) {
		rest := row{output: r.output + m, scales: r.scales[m:], zeros: r.zeros[m:]}
		rest.predictPortable(variant, codes[m:], x[m:], s, t)
	}
}
