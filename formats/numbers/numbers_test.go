package numbers

import (
	"encoding/binary"
	"math"
	"testing"

	"ckptfs/formats"
)

// The special values and corners of the small floats, by the specifications (OCP 8-bit floats, IEEE 754).
func TestSmallFloats(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		d    formats.DType
		bits uint16
		want float64
	}{
		{formats.F16, 0x3c00, 1}, {formats.F16, 0xc000, -2}, {formats.F16, 0x7bff, 65504},
		{formats.F16, 0x0001, math.Ldexp(1, -24)},
		{formats.F16, 0x7c00, inf}, {formats.F16, 0xfc00, -inf}, {formats.F16, 0x7e00, nan},
		{formats.BF16, 0x3f80, 1}, {formats.BF16, 0xff80, -inf}, {formats.BF16, 0x4049, 3.140625},
		{formats.F8E4M3, 0x7e, 448}, {formats.F8E4M3, 0x7f, nan}, {formats.F8E4M3, 0x01, math.Ldexp(1, -9)},
		{formats.F8E4M3, 0xb8, -1},
		{formats.F8E5M2, 0x7b, 57344}, {formats.F8E5M2, 0x7c, inf}, {formats.F8E5M2, 0x7d, nan},
		{formats.F8E5M2, 0x01, math.Ldexp(1, -16)},
		{formats.F8E4M3FZ, 0x80, nan}, {formats.F8E4M3FZ, 0x7f, 240}, {formats.F8E4M3FZ, 0x40, 1},
		{formats.F8E4M3FZ, 0x01, math.Ldexp(1, -10)},
		{formats.F8E5M2FZ, 0x80, nan}, {formats.F8E5M2FZ, 0x7f, 57344}, {formats.F8E5M2FZ, 0x40, 1},
		{formats.F8E8M0, 127, 1}, {formats.F8E8M0, 0, math.Ldexp(1, -127)}, {formats.F8E8M0, 255, nan},
		{formats.I8, 0xff, -1}, {formats.Bool, 1, 1}, {formats.I16, 0xffff, -1}, {formats.U16, 0xffff, 65535},
	} {
		p := binary.LittleEndian.AppendUint16(nil, tc.bits)
		if got := decoders[tc.d](p[:tc.d.Bits()/8]); got != tc.want &&
			!(math.IsNaN(got) && math.IsNaN(tc.want)) {
			t.Errorf("%s %#x is %v, want %v", tc.d, tc.bits, got, tc.want)
		}
	}
	for _, d := range []formats.DType{formats.F4, formats.F6E2M3, "Q4_0", "", "?"} {
		if Known(d) {
			t.Errorf("%s is known", d)
		}
	}
}

func floats(x ...float64) (p []byte) {
	for _, v := range x {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(v)))
	}
	return p
}

func TestComparison(t *testing.T) {
	var c Comparison
	c.Add(formats.F32, floats(3, 4, 0, 1), formats.F32, floats(3, 4, 0, 1))
	if c.Elements != 4 || c.Changed != 0 || c.RelNorm() != 0 {
		t.Errorf("%+v", c)
	}
	c.Add(formats.F32, floats(0, math.NaN(), math.Inf(1)), formats.F32, floats(-2, 1, math.Inf(1)))
	if c.Elements != 7 || c.Changed != 2 || c.Special != 1 || c.MaxAbs != 2 ||
		math.Abs(c.RelNorm()-2/math.Sqrt(26)) > 1e-12 {
		t.Errorf("%+v, %v", c, c.RelNorm())
	}
	// A long stretch that is equal counts as its elements do one by one.
	long := make([]float64, 5000)
	for i := range long {
		long[i] = 1
	}
	a := floats(long...)
	long[4999] = 3
	c = Comparison{}
	c.Add(formats.F32, a, formats.F32, floats(long...))
	if c.Elements != 5000 || c.Changed != 1 || math.Abs(c.RelNorm()-2/math.Sqrt(5000)) > 1e-12 {
		t.Errorf("%+v, %v", c, c.RelNorm())
	}
	// Of other types values count, not bits.
	c = Comparison{}
	c.Add(formats.F32, floats(1, -2, math.NaN(), 0.1), formats.BF16,
		[]byte{0x80, 0x3f, 0, 0xc0, 0xc0, 0x7f, 0xcd, 0x3d})
	if c.Changed != 1 || c.MaxAbs > 0.001 || c.MaxAbs == 0 {
		t.Errorf("%+v", c)
	}
	c = Comparison{}
	c.Add(formats.C64, floats(0, 0), formats.C64, floats(3, 4))
	if c.Elements != 1 || c.Changed != 1 || c.MaxAbs != 5 || !math.IsInf(c.RelNorm(), 1) {
		t.Errorf("%+v", c)
	}
	c = Comparison{}
	c.Add(formats.F32, floats(0), formats.F32, floats(math.Copysign(0, -1)))
	if c.Changed != 1 || c.MaxAbs != 0 || c.RelNorm() != 0 {
		t.Errorf("%+v", c)
	}
}

// Integers that are the same number as float64 are not the same.
func TestCompareIntegers(t *testing.T) {
	words := func(x ...uint64) (p []byte) {
		for _, v := range x {
			p = binary.LittleEndian.AppendUint64(p, v)
		}
		return p
	}
	minus := func(x int64) uint64 { return uint64(-x) }
	for _, c := range []struct {
		da, db  formats.DType
		a, b    []byte
		changed int64
		max     float64
	}{
		{formats.I64, formats.I64, words(1<<53+1, 1<<63-1, 7), words(1<<53, 1<<63-2, 7), 2, 1},
		{formats.I64, formats.I64, words(minus(5)), words(minus(1 << 62)), 1, 1<<62 - 5},
		{formats.I64, formats.I64, words(1 << 63), words(1<<63 - 1), 1, 1 << 64},
		{formats.U64, formats.U64, words(0, math.MaxUint64), words(math.MaxUint64, 0), 2, 1 << 64},
		{formats.U64, formats.I64, words(math.MaxUint64), words(minus(1)), 1, 1 << 64},
		{formats.I64, formats.U64, words(minus(1), 1<<53+1), words(1, 1<<53+1), 1, 2},
		{formats.I64, formats.I8, words(minus(3), 1<<53+1), []byte{0xfd, 1}, 1, 1 << 53},
	} {
		var got Comparison
		got.Add(c.da, c.a, c.db, c.b)
		if got.Changed != c.changed || got.MaxAbs != c.max {
			t.Errorf("%s %x, %s %x: %d changed, by %v at most, want %d, %v", c.da, c.a, c.db, c.b,
				got.Changed, got.MaxAbs, c.changed, c.max)
		}
	}
}
