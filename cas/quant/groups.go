package quant

import (
	"fmt"
	"math"

	"ckptfs/cas"
	"ckptfs/cas/half"
)

// Type is a type of scales.
type Type uint8

// The types. Their numbers are part of stored formats.
const (
	F32  Type = 0
	BF16 Type = 1
	F16  Type = 2
	E4M3 Type = 3 // eight bits, four of exponent and three of mantissa, without infinities
	E8M0 Type = 4 // an exponent of eight bits: 2^(e-127)

	types = 5
)

// Size is how many bytes a number of a type has.
func (t Type) Size() int { return t.size() }

// Number is the number of a type that p begins with.
func (t Type) Number(p []byte) float32 { return t.value(get(p[:t.size()])) }

func (t Type) size() int {
	switch t {
	case F32:
		return 4
	case BF16, F16:
		return 2
	}
	return 1
}

// epsilon is the distance from 1 to the next number.
func (t Type) epsilon() float32 {
	switch t {
	case BF16:
		return 0x1p-7
	case F16:
		return 0x1p-10
	case E4M3:
		return 0x1p-3
	}
	return 0x1p-23
}

func (t Type) bits(x float32) uint32 {
	switch t {
	case BF16:
		return uint32(half.ToBF16(bits(x)))
	case F16:
		return uint32(f16(x))
	case E4M3:
		return uint32(F8E4M3.round8(x))
	case E8M0:
		return bits(x) >> 23 & 0xff
	}
	return bits(x)
}

func (t Type) value(b uint32) float32 {
	switch t {
	case BF16:
		return half.FromBF16(uint16(b))
	case F16:
		return half.FromF16(uint16(b))
	case E4M3:
		if b&0x7f == 0x7f {
			return nan
		}
		v := F8E4M3.value8(byte(b))
		if b&0x80 != 0 {
			v = -v
		}
		return v
	case E8M0:
		switch b {
		case 0:
			return 0x1p-127
		case 0xff:
			return nan
		}
		b <<= 23
	}
	return math.Float32frombits(b)
}

// Scales says which elements of a tensor share a scale that lies apart: those of a group. The tensor is a
// matrix of Rows by Cols, of which the elements at hand begin at At. Groups are Tall by Wide, at the lower
// and right edge less. Where Tall is 0 there are no scales: 1 stands for all.
type Scales struct {
	Type       Type
	Rows, Cols int
	Tall, Wide int
	At         int
	Rule       Rule // by which they follow from elements; not of FP8
	// Values are given to Differ: one for each of Groups, a number of Type. nil, but of FP8: they follow.
	Values []float32
}

const maxSide = 1 << 30

func (g *Scales) any() bool { return g.Tall > 0 }

func (g *Scales) check(n int) error {
	if g.Type >= types {
		return fmt.Errorf("%w: scales of type %d", cas.ErrNewer, g.Type)
	}
	if g.Tall == 0 {
		return nil
	}
	for _, v := range []int{g.Rows, g.Cols, g.Tall, g.Wide} {
		if v < 1 || v > maxSide {
			return fmt.Errorf("%w: scales of %d by %d in %d by %d", cas.ErrCorrupt, g.Tall, g.Wide, g.Rows, g.Cols)
		}
	}
	if g.At < 0 || g.At > g.Rows*g.Cols-n {
		return fmt.Errorf("%w: %d elements from %d on of %d by %d", cas.ErrCorrupt, n, g.At, g.Rows, g.Cols)
	}
	return nil
}

// across is how many groups lie beside each other.
func (g *Scales) across() int { return (g.Cols + g.Wide - 1) / g.Wide }

// A band is the groups of one row of them that elements touch: those from a on, to the last, and those up to
// b; all lie in order of their columns.
type band struct {
	a, b  int  // columns of groups
	split bool // those between a and b are not touched; else those from a to b are
}

func (d band) count(across int) int {
	if d.split {
		return d.b + 1 + across - d.a
	}
	return d.b + 1 - d.a
}

func (d band) place(column int) int {
	if d.split && column <= d.b {
		return column
	}
	if d.split {
		return d.b + 1 + column - d.a
	}
	return column - d.a
}

// bandOf is the band of the elements from from to before to, all of one row of groups.
func (g *Scales) bandOf(from, to int) band {
	first, last := from/g.Cols, (to-1)/g.Cols
	a, b := from%g.Cols/g.Wide, (to-1)%g.Cols/g.Wide
	switch {
	case first == last:
		return band{a, b, false}
	case first+1 == last && b < a:
		return band{a, b, true}
	}
	return band{0, g.across() - 1, false}
}

// bands calls f with each band of n elements: from where to where, which row of groups.
func (g *Scales) bands(n int, f func(from, to, row int, d band)) {
	for from := g.At; from < g.At+n; {
		row := from / g.Cols / g.Tall
		to := min((row+1)*g.Tall*g.Cols, g.At+n)
		f(from, to, row, g.bandOf(from, to))
		from = to
	}
}

// Groups are the groups that n elements touch, numbered row by row, in the order in which Values has their
// scales. There are none where scales and elements do not fit.
func (g *Scales) Groups(n int) []int {
	var all []int
	if !g.any() || g.check(n) != nil {
		return nil
	}
	g.bands(n, func(_, _, row int, d band) {
		one := func(from, to int) {
			for column := from; column <= to; column++ {
				all = append(all, row*g.across()+column)
			}
		}
		if d.split {
			one(0, d.b)
			one(d.a, g.across()-1)
		} else {
			one(d.a, d.b)
		}
	})
	return all
}

// count is how many those are.
func (g *Scales) count(n int) (count int) {
	if g.any() {
		g.bands(n, func(_, _, _ int, d band) { count += d.count(g.across()) })
	}
	return count
}

// runs calls f for stretches of elements of one group, and the place of that group among Groups.
func (g *Scales) runs(n int, f func(from, to, group int)) {
	if !g.any() {
		f(0, n, 0)
		return
	}
	before := 0
	g.bands(n, func(from, to, _ int, d band) {
		whole := d.count(g.across()) == 1 && g.Wide >= g.Cols
		for at := from; at < to; {
			column := at % g.Cols / g.Wide
			end := min(at-at%g.Cols+min((column+1)*g.Wide, g.Cols), to)
			if whole {
				end = to
			}
			f(at-g.At, end-g.At, before+d.place(column))
			at = end
		}
		before += d.count(g.across())
	})
}

// flat reports whether n elements are whole groups of as many that lie behind each other.
func (g *Scales) flat(n int) bool {
	return g.Tall == 1 && g.Cols == g.Wide && g.At%g.Wide == 0 && n%g.Wide == 0
}
