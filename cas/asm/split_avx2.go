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
	f.op(VPSRLW, VPSRLD, VPSRLQ)(Imm(1), f.below, f.below)
	VPXOR(f.zero, f.zero, f.zero)
	f.one = loadYMM(constant(map[int][]uint32{2: {0x10001}, 4: {1}, 8: {1, 0}}[w]...))
	return f
}

// op is the instruction for fields of 2, of 4 or of 8 bytes.
func (f narrowFields) op(two, four, eight func(...Op)) func(...Op) {
	return map[int]func(...Op){2: two, 4: four, 8: eight}[f.w]
}

func (f narrowFields) sign(x VecVirtual) VecVirtual {
	m := YMM()
	if f.w == 8 { // there is no shift
		VPCMPGTQ(x, f.zero, m)
	} else {
		f.op(VPSRAW, VPSRAD, nil)(Imm(uint64(8*f.w-1)), x, m)
	}
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
	f.op(VPSRLW, VPSRLD, VPSRLQ)(right, x, y)
	f.op(VPSLLW, VPSLLD, VPSLLQ)(left, x, x)
	VPOR(y, x, x)
}

// lanes loads the vector i of 32 elements at p.
func (f narrowFields) lanes(p Register, i int) VecVirtual {
	x := YMM()
	VBROADCASTI128(Mem{Base: p, Disp: 16 * (f.w + i)}, x)
	VINSERTI128(Imm(0), Mem{Base: p, Disp: 16 * i}, x, x)
	return x
}

// narrowKernel is wideKernel for AVX2.
func narrowKernel(name, dense string, w int, delta bool, returns string) (
	side, base Register, planes []Register, flag Register, loop func(body func())) {
	doc := fmt.Sprintf("is %s%dAVX512 for AVX2.", name, w)
	if w == 8 {
		doc = fmt.Sprintf("is %s4AVX2 for elements of 8 bytes.", name)
	}
	return wideKernel(fmt.Sprintf("%s%dAVX2", name, w), dense, w, delta, returns, doc, 32)
}

func narrowSplit(w int, delta bool, order Mem) {
	name := "split"
	if delta {
		name = "splitDiff"
	}
	src, base, planes, flag, loop := narrowKernel(name, "src", w, delta, "")
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
				f.op(VPSUBW, VPSUBD, VPSUBQ)(b, v, v)
				m := f.sign(v)
				f.op(VPADDW, VPADDD, VPADDQ)(v, v, v)
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

// unpack are the instructions that take fields of so many bytes by turns, of the lower and of the upper half
// of each lane.
var unpack = map[int][2]func(...Op){
	1: {VPUNPCKLBW, VPUNPCKHBW},
	2: {VPUNPCKLWD, VPUNPCKHWD},
	4: {VPUNPCKLDQ, VPUNPCKHDQ},
	8: {VPUNPCKLQDQ, VPUNPCKHQDQ},
}

// transposed are parts of each lane, of which there are as many as vectors.
func transposed(x []VecVirtual) []VecVirtual {
	if len(x) == 1 {
		return x
	}
	by := unpack[16/len(x)]
	var low, high []VecVirtual
	for i := 0; i < len(x); i += 2 {
		low, high = append(low, pair(by[0], x[i], x[i+1])), append(high, pair(by[1], x[i], x[i+1]))
	}
	return append(transposed(low), transposed(high)...)
}

func narrowMerge(w int, delta, same bool) {
	name, dense, returns := "merge", "dst", ""
	if same {
		name, dense, returns = "same", "want", " bool"
	}
	if delta {
		name += "Undiff"
	}
	side, base, planes, flag, loop := narrowKernel(name, dense, w, delta, returns)
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
				f.op(VPSUBW, VPSUBD, VPSUBQ)(m, f.zero, m)
				f.op(VPSRLW, VPSRLD, VPSRLQ)(Imm(1), v, v)
				VPXOR(m, v, v)
				f.op(VPADDW, VPADDD, VPADDQ)(b, v, v)
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
func interleaved(p []VecVirtual) (elems []VecVirtual) {
	if len(p) == 1 {
		return p
	}
	by, low, high := unpack[len(p)/2], interleaved(p[:len(p)/2]), interleaved(p[len(p)/2:])
	for i := range low {
		elems = append(elems, pair(by[0], low[i], high[i]), pair(by[1], low[i], high[i]))
	}
	return elems
}
