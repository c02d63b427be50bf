package quant

import "math"

// FMA is x*a + c rounded once, on every processor.
func FMA(x, a, c float32) float32 { return fma(x, a, c) }

// fma is x*a + c rounded once, as processors compute it that multiply and add in one. The product is exact in
// double precision. The sum is rounded to odd there, so that rounding it again to single precision is as if
// it had been rounded once (Boldo and Melquiond 2008).
func fma(x, a, c float32) float32 {
	p, w := float64(float64(x)*float64(a)), float64(c)
	s := p + w
	back := s - p
	rest := (p - (s - back)) + (w - back)
	if b := math.Float64bits(s); rest != 0 && b&1 == 0 && rest == rest {
		if rest > 0 == (s > 0) {
			b++
		} else {
			b--
		}
		s = math.Float64frombits(b)
	}
	return float32(s)
}
