// Package codectest has what the tests of the codecs share: bytes such as checkpoints have, and kernels
// beside twins.
package codectest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"ckptfs/cas/simd"
)

// Levels runs f with the kernels of each level that this processor has, the highest first. The last are the
// twins in Go. No test may run beside it.
func Levels(f func(how string)) {
	simd.Each(func(l simd.Level) { f(l.String()) })
}

// Same reports whether all are the same bytes, as kernels of all levels and their twins are to make.
func Same(all [][]byte) bool {
	return !slices.ContainsFunc(all, func(p []byte) bool { return !bytes.Equal(p, all[0]) })
}

// Random are n random bytes, always the same.
func Random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	return p
}

// Weights are n bytes of float32, normally distributed as a layer's are. Of each the keep most significant
// bytes are kept: 4 is fp32, 2 is bf16.
func Weights(n, keep int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, 0, n+4)
	for len(p) < n {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(float32(r.NormFloat64()*0.02)))
		p = append(p, b[4-keep:]...)
	}
	return p[:n]
}

// Skewed are n bytes around 100, normally distributed.
func Skewed(n int, spread float64) []byte {
	r := rand.New(rand.NewPCG(13, 14))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(100 + int(math.Round(spread*r.NormFloat64())))
	}
	return p
}

// HalfOf rounds x by the values of a type, of which inf is infinity: to the nearer of the two neighbours, or
// to the even one where both are as near.
func HalfOf(x float32, value func(h uint16) float64, inf uint16) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	f := math.Abs(float64(x))
	lo, hi := uint16(0), inf
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; value(mid) <= f {
			lo = mid
		} else {
			hi = mid
		}
	}
	top := value(hi)
	if hi == inf { // as if the exponents went on
		top = value(inf-1) + (value(inf-1) - value(inf-2))
	}
	if math.IsInf(f, 1) || f >= top || f-value(lo) > top-f || f-value(lo) == top-f && lo&1 != 0 {
		return sign | hi
	}
	return sign | lo
}

// BF16Value is the number h of bfloat16, without its sign.
func BF16Value(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }

// F16Value is the number h of binary16, without its sign.
func F16Value(h uint16) float64 {
	exp, m := int(h>>10&31), float64(h&1023)
	if exp == 0 {
		return math.Ldexp(m, -24)
	}
	return math.Ldexp(1024+m, exp-25)
}

// Merged is a tensor of type "BF16", "F16" or "F32" into which an adapter of rank r was merged, which moves
// weights by some units of the last place, and what it was before.
func Merged(rows, cols, r int, dtype string, ulps float64) (raw, base []byte) {
	rng := rand.New(rand.NewPCG(uint64(r), 5))
	mantissa := map[string]int{"BF16": 7, "F16": 10, "F32": 23}[dtype]
	size := ulps * math.Ldexp(1, -6-mantissa) / math.Sqrt(float64(r))
	a, b := make([]float64, r*cols), make([]float64, r)
	for i := range a {
		a[i] = rng.NormFloat64()
	}
	for range rows {
		for j := range b {
			b[j] = rng.NormFloat64() * size
		}
		for k := range cols {
			var x float64
			base, x = appendRounded(base, rng.NormFloat64()*0.02, dtype)
			for j, b := range b {
				x += b * a[j*cols+k]
			}
			raw, _ = appendRounded(raw, x, dtype)
		}
	}
	return raw, base
}

// appendRounded appends x as a number of a type, and returns that number.
func appendRounded(p []byte, x float64, dtype string) ([]byte, float64) {
	le := binary.LittleEndian
	switch dtype {
	case "BF16":
		h := HalfOf(float32(x), BF16Value, 0x7f80)
		return le.AppendUint16(p, h), BF16Value(h&0x7fff) * (1 - 2*float64(h>>15))
	case "F16":
		h := HalfOf(float32(x), F16Value, 0x7c00)
		return le.AppendUint16(p, h), F16Value(h&0x7fff) * (1 - 2*float64(h>>15))
	}
	return le.AppendUint32(p, math.Float32bits(float32(x))), float64(float32(x))
}
