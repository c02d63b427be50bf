package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// splitAVX2 makes the kernels of wide for AVX2. They take 32 elements at a time, of which the first 16 go
// through the lower lanes of vectors and the others through the upper ones: then no byte crosses lanes.
func splitAVX2(w int) {
	order := make([]byte, 32) // element by element, to all least significant bytes before all next ones
	for i := range order {
		order[i] = byte(i%16%(16/w)*w + i%16/(16/w))
	}
	toPlanes := table(fmt.Sprintf("laneByPlane%d", w), order)
	for _, delta := range []bool{false, true} {
		narrowSplit(w, delta, toPlanes)
		narrowMerge(w, delta, false)
		narrowMerge(w, delta, true)
	}
}

// narrowFields are vectors of fields of w bytes, of AVX2.
type narrowFields struct {
	w         int
	below     VecVirtual // all bits below the sign where fields are floats, else none
	one, zero VecVirtual
	right     VecVirtual // how far to rotate
	left      VecVirtual // by what is then left of a whole turn
}

func newNarrowFields(w int, flag Register, delta bool) narrowFields {
	f := narrowFields{w: w}
	if !delta {
		f.right, f.left = XMM(), XMM()
		VMOVQ(flag, f.right)
		NEGQ(flag)
		ADDQ(Imm(uint64(8*w)), flag)
		VMOVQ(flag, f.left)
		return f
	}
	f.below, f.zero = YMM(), YMM()
	VMOVQ(flag, f.below.AsX())
	VPBROADCASTQ(f.below.AsX(), f.below)
	f.op(VPSRLW, VPSRLD)(Imm(1), f.below, f.below)
	VPXOR(f.zero, f.zero, f.zero)
	f.one = loadYMM(constant(map[int]uint32{2: 0x10001, 4: 1}[w]))
	return f
}

func (f narrowFields) op(two, four func(...Op)) func(...Op) { return wideFields{w: f.w}.op(two, four) }

func (f narrowFields) sign(x VecVirtual) VecVirtual {
	m := YMM()
	f.op(VPSRAW, VPSRAD)(Imm(uint64(8*f.w-1)), x, m)
	return m
}

// order is order and disorder, but for the sign bit, which both invert: in a difference that cancels out, and
// in a sum it comes to nothing.
func (f narrowFields) order(x VecVirtual) {
	m := f.sign(x)
	VPAND(f.below, m, m)
	VPXOR(m, x, x)
}

// turn rotates fields right by the bits in right, and so left by those in left.
func (f narrowFields) turn(x, right, left VecVirtual) {
	y := YMM()
	f.op(VPSRLW, VPSRLD)(right, x, y)
	f.op(VPSLLW, VPSLLD)(left, x, x)
	VPOR(y, x, x)
}

// lanes loads the vector i of 32 elements at p.
func (f narrowFields) lanes(p Register, i int) VecVirtual {
	x := YMM()
	VBROADCASTI128(Mem{Base: p, Disp: 16 * (f.w + i)}, x)
	VINSERTI128(Imm(0), Mem{Base: p, Disp: 16 * i}, x, x)
	return x
}

func narrowSplit(w int, delta bool, order Mem) {
	name := "split"
	if delta {
		name = "splitDiff"
	}
	name = fmt.Sprintf("%s%dAVX", name, w)
	src, base, planes, flag, loop := wideKernel(name+"2", "src", w, delta, "",
		"is "+name+"512 for AVX2.", 32)
	f := newNarrowFields(w, flag, delta)
	byPlane := loadYMM(order)
	loop(func() {
		var x []VecVirtual
		for i := range w {
			v := f.lanes(src, i)
			if delta {
				b := f.lanes(base, i)
				f.order(b)
				f.order(v)
				f.op(VPSUBW, VPSUBD)(b, v, v)
				m := f.sign(v)
				f.op(VPADDW, VPADDD)(v, v, v)
				VPXOR(m, v, v)
			} else {
				f.turn(v, f.left, f.right)
			}
			VPSHUFB(byPlane, v, v)
			x = append(x, v)
		}
		for k, v := range transposed(x) {
			VMOVDQU(v, Mem{Base: planes[k]})
		}
	})
	VZEROUPPER()
	RET()
}

// pair takes fields of both by turns, in each lane.
func pair(unpack func(...Op), a, b VecVirtual) VecVirtual {
	v := YMM()
	unpack(b, a, v)
	return v
}

// transposed are parts of each lane, of which there are as many as vectors.
func transposed(x []VecVirtual) []VecVirtual {
	if len(x) == 2 {
		return []VecVirtual{pair(VPUNPCKLQDQ, x[0], x[1]), pair(VPUNPCKHQDQ, x[0], x[1])}
	}
	a, b := pair(VPUNPCKLDQ, x[0], x[1]), pair(VPUNPCKLDQ, x[2], x[3])
	c, d := pair(VPUNPCKHDQ, x[0], x[1]), pair(VPUNPCKHDQ, x[2], x[3])
	return append(transposed([]VecVirtual{a, b}), transposed([]VecVirtual{c, d})...)
}

func narrowMerge(w int, delta, same bool) {
	name, dense, returns := "merge", "dst", ""
	if same {
		name, dense, returns = "same", "want", " bool"
	}
	if delta {
		name += "Undiff"
	}
	name = fmt.Sprintf("%s%dAVX", name, w)
	side, base, planes, flag, loop := wideKernel(name+"2", dense, w, delta, returns,
		"is "+name+"512 for AVX2.", 32)
	f := newNarrowFields(w, flag, delta)
	differ := YMM()
	if same {
		VPXOR(differ, differ, differ)
	}
	loop(func() {
		var p []VecVirtual
		for _, m := range planes {
			p = append(p, loadYMM(Mem{Base: m}))
		}
		for i, v := range interleaved(p) {
			if delta {
				b, m := f.lanes(base, i), YMM()
				f.order(b)
				VPAND(f.one, v, m)
				f.op(VPSUBW, VPSUBD)(m, f.zero, m)
				f.op(VPSRLW, VPSRLD)(Imm(1), v, v)
				VPXOR(m, v, v)
				f.op(VPADDW, VPADDD)(b, v, v)
				f.order(v)
			} else {
				f.turn(v, f.right, f.left)
			}
			if same {
				VPXOR(f.lanes(side, i), v, v)
				VPOR(v, differ, differ)
			} else {
				VMOVDQU(v.AsX(), Mem{Base: side, Disp: 16 * i})
				VEXTRACTI128(Imm(1), v, Mem{Base: side, Disp: 16 * (w + i)})
			}
		}
	})
	if same {
		r := GP32()
		VPTEST(differ, differ)
		SETEQ(r.As8())
		Store(r.As8(), ReturnIndex(0))
	}
	VZEROUPPER()
	RET()
}

// interleaved are elements, of which each lane has the bytes of one place after those of the other.
func interleaved(p []VecVirtual) []VecVirtual {
	low, high := pair(VPUNPCKLBW, p[0], p[1]), pair(VPUNPCKHBW, p[0], p[1])
	if len(p) == 2 {
		return []VecVirtual{low, high}
	}
	low2, high2 := pair(VPUNPCKLBW, p[2], p[3]), pair(VPUNPCKHBW, p[2], p[3])
	return []VecVirtual{pair(VPUNPCKLWD, low, low2), pair(VPUNPCKHWD, low, low2),
		pair(VPUNPCKLWD, high, high2), pair(VPUNPCKHWD, high, high2)}
}
