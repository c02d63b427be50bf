// Package numbers reads the elements of tensors as numbers, to compare two of them.
//
// Every type of package formats whose elements are whole bytes is known: integers and BOOL as they are (those
// of 64 bits to the nearest float64, but for how far two are apart), floats exactly, also of 8 bits (OCP's
// E4M3 and E5M2, their FNUZ variants, and E8M0, a power of two), complex numbers as two floats. Types below 8
// bits, and those that are packed in blocks, are not.
package numbers

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"ckptfs/formats"
)

// Known reports whether elements of a type can be read as numbers.
func Known(d formats.DType) bool { return decoders[d] != nil }

// Value reads one element of a type that is Known, of a complex one the first component.
func Value(d formats.DType, p []byte) float64 { return decoders[d](p) }

var le = binary.LittleEndian

// decoders decode one element, the first component of a complex one.
var decoders = map[formats.DType]func(p []byte) float64{
	formats.Bool:     func(p []byte) float64 { return float64(p[0]) },
	formats.U8:       func(p []byte) float64 { return float64(p[0]) },
	formats.I8:       func(p []byte) float64 { return float64(int8(p[0])) },
	formats.U16:      func(p []byte) float64 { return float64(le.Uint16(p)) },
	formats.I16:      func(p []byte) float64 { return float64(int16(le.Uint16(p))) },
	formats.U32:      func(p []byte) float64 { return float64(le.Uint32(p)) },
	formats.I32:      func(p []byte) float64 { return float64(int32(le.Uint32(p))) },
	formats.U64:      func(p []byte) float64 { return float64(le.Uint64(p)) },
	formats.I64:      func(p []byte) float64 { return float64(int64(le.Uint64(p))) },
	formats.F64:      f64,
	formats.F32:      f32,
	formats.BF16:     bf16,
	formats.F16:      func(p []byte) float64 { return small(uint(le.Uint16(p)), 5, 10, 15, ieee) },
	formats.F8E5M2:   func(p []byte) float64 { return small(uint(p[0]), 5, 2, 15, ieee) },
	formats.F8E4M3:   func(p []byte) float64 { return small(uint(p[0]), 4, 3, 7, noInf) },
	formats.F8E5M2FZ: func(p []byte) float64 { return small(uint(p[0]), 5, 2, 16, fnuz) },
	formats.F8E4M3FZ: func(p []byte) float64 { return small(uint(p[0]), 4, 3, 8, fnuz) },
	formats.F8E8M0: func(p []byte) float64 {
		if p[0] == 0xff {
			return math.NaN()
		}
		return math.Ldexp(1, int(p[0])-127)
	},
	formats.C64:  f32,
	formats.C128: f64,
}

func f64(p []byte) float64  { return math.Float64frombits(le.Uint64(p)) }
func bf16(p []byte) float64 { return float64(math.Float32frombits(uint32(le.Uint16(p)) << 16)) }
func f32(p []byte) float64  { return float64(math.Float32frombits(le.Uint32(p))) }

// The ways in which small floats say infinity and NaN.
const (
	ieee  = iota // the greatest exponent: infinity with mantissa 0, else NaN
	noInf        // only all ones is NaN
	fnuz         // only what would be -0 is NaN
)

// small reads a float of 1 sign bit, exp exponent and man mantissa bits.
func small(x uint, exp, man, bias, special int) float64 {
	sign := 1.0
	if x>>(exp+man) != 0 {
		sign = -1
	}
	e, m := int(x>>man)&(1<<exp-1), int(x)&(1<<man-1)
	switch {
	case special == fnuz && x == 1<<(exp+man):
		return math.NaN()
	case special == noInf && e == 1<<exp-1 && m == 1<<man-1, special == ieee && e == 1<<exp-1 && m != 0:
		return math.NaN()
	case special == ieee && e == 1<<exp-1:
		return math.Inf(int(sign))
	case e == 0:
		return sign * math.Ldexp(float64(m), 1-bias-man)
	}
	return sign * math.Ldexp(float64(m|1<<man), e-bias-man)
}

// Comparison is the sum of what differs between two tensors of one shape, a and b.
type Comparison struct {
	Elements int64
	Changed  int64   // elements that differ; of equal types those whose bits do
	MaxAbs   float64 // greatest |b-a| of the elements where it is a number
	Special  int64   // changed elements of which one side is no finite number
	diff, a  float64 // sums of squares, of finite pairs
}

// RelNorm is |b-a| / |a|, over the elements that are finite in both: 0 where nothing differs, infinite where
// a is zero.
func (c *Comparison) RelNorm() float64 {
	switch {
	case c.diff == 0:
		return 0
	case c.a == 0:
		return math.Inf(1)
	}
	return math.Sqrt(c.diff) / math.Sqrt(c.a)
}

// Norm is |a|, over the elements that are finite in both.
func (c *Comparison) Norm() float64 { return math.Sqrt(c.a) }

// Add compares elements: as many as a and b hold, which is the same number.
func (c *Comparison) Add(da formats.DType, a []byte, db formats.DType, b []byte) {
	wa, wb := da.Bits()/8, db.Bits()/8
	n := int64(len(a) / wa)
	c.Elements += n
	ra, rb := decoders[da], decoders[db]
	for len(a) > 0 {
		// whole elements, whatever their width
		if da == db && len(a) > 4096 && bytes.Equal(a[:4096], b[:4096]) {
			c.same(ra, a[:4096], wa, da)
			a, b = a[4096:], b[4096:]
			continue
		}
		c.element(ra, a[:wa], rb, b[:wb], da, db)
		a, b = a[wa:], b[wb:]
	}
}

// same adds elements that do not differ.
func (c *Comparison) same(read func([]byte) float64, p []byte, width int, d formats.DType) {
	for ; len(p) > 0; p = p[width:] {
		x := read(p)
		if complexType(d) {
			if y := read(p[width/2:]); finite(x) && finite(y) {
				c.a += x*x + y*y
			}
		} else if finite(x) {
			c.a += x * x
		}
	}
}

func complexType(d formats.DType) bool { return d == formats.C64 || d == formats.C128 }

func (c *Comparison) element(ra func([]byte) float64, a []byte, rb func([]byte) float64, b []byte,
	da, db formats.DType) {
	x, y := ra(a), rb(b)
	var xi, yi float64
	if complexType(da) {
		xi = ra(a[len(a)/2:])
	}
	if complexType(db) {
		yi = rb(b[len(b)/2:])
	}
	ok := finite(x) && finite(y) && finite(xi) && finite(yi)
	if ok {
		c.a += x*x + xi*xi
	}
	differ := x != y || xi != yi
	d, integers := distance(da, a, db, b)
	if integers {
		differ = d != 0
	} else {
		d = math.Hypot(y-x, yi-xi)
	}
	if da == db {
		differ = !bytes.Equal(a, b)
	} else if math.IsNaN(x) && math.IsNaN(y) {
		differ = false
	}
	if !differ {
		return
	}
	c.Changed++
	if !ok {
		c.Special++
		return
	}
	c.MaxAbs = max(c.MaxAbs, d)
	c.diff += d * d
}

// distance is |b-a| of integers, rounded once: those of 64 bits may differ where their nearest float64 do
// not.
func distance(da formats.DType, a []byte, db formats.DType, b []byte) (d float64, integers bool) {
	ah, al, ok := integer(da, a)
	bh, bl, okb := integer(db, b)
	if !ok || !okb {
		return 0, false
	}
	lo, borrow := bits.Sub64(bl, al, 0)
	hi := bh - ah - int64(borrow)
	if hi < 0 {
		lo, borrow = bits.Sub64(0, lo, 0)
		hi = -hi - int64(borrow)
	}
	return float64(hi)*(1<<64) + float64(lo), true
}

// integer is an element of an integer type in 128 bits of two's complement.
func integer(d formats.DType, p []byte) (hi int64, lo uint64, ok bool) {
	switch d {
	case formats.U64:
		return 0, le.Uint64(p), true
	case formats.Bool, formats.U8, formats.I8, formats.U16, formats.I16, formats.U32, formats.I32:
		x := int64(decoders[d](p))
		return x >> 63, uint64(x), true
	case formats.I64:
		x := int64(le.Uint64(p))
		return x >> 63, uint64(x), true
	}
	return 0, 0, false
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
