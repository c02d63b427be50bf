package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// splitSSE makes the kernels that split and merge planes, in SSE2.
func splitSSE() {
	merge(2)
	merge(4)
	split(2)
	split(4)
}

// kernel begins a function of the dense side and w planes, and returns a loop over its blocks.
func kernel(name, dense string, w int) (side Register, planes []Register, down, up VecVirtual,
	loop func(body func())) {
	sig := "func(" + dense + " *byte"
	for k := range w {
		sig += ", p" + string(rune('0'+k))
	}
	TEXT(name, NOSPLIT, sig+" *byte, blocks, rot int)")
	Pragma("noescape")
	side = Load(Param(dense), GP64())
	for k := range w {
		planes = append(planes, Load(Param("p"+string(rune('0'+k))), GP64()))
	}
	blocks := Load(Param("blocks"), GP64())
	rot := Load(Param("rot"), GP64())
	down, up = XMM(), XMM()
	MOVQ(rot, down)
	NEGQ(rot)
	ADDQ(Imm(uint64(8*w)), rot) // a shift by all of a field's bits leaves zero, so 0 needs no case of its own
	MOVQ(rot, up)
	return side, planes, down, up, func(body func()) {
		Label("loop")
		body()
		ADDQ(Imm(uint64(16*w)), side)
		for _, p := range planes {
			ADDQ(Imm(16), p)
		}
		DECQ(blocks)
		JNZ(LabelRef("loop"))
		RET()
	}
}

func load(from Register, off int) VecVirtual {
	x := XMM()
	MOVOU(Mem{Base: from, Disp: off}, x)
	return x
}

func clone(x VecVirtual) VecVirtual {
	y := XMM()
	MOVO(x, y)
	return y
}

// rotate turns every field of w bytes by the bits in two shift counts that make up a whole turn.
func rotate(x, right, left VecVirtual, w int) {
	y := clone(x)
	if w == 2 {
		PSRLW(right, x)
		PSLLW(left, y)
	} else {
		PSRLL(right, x)
		PSLLL(left, y)
	}
	POR(y, x)
}

func merge(w int) {
	name := map[int]string{2: "merge2SSE", 4: "merge4SSE"}[w]
	dst, p, down, up, loop := kernel(name, "dst", w)
	comment(name + " makes blocks times 16 elements of their planes and rotates each right by rot bits, 0 or 1.")
	loop(func() {
		var out []VecVirtual
		lo, hi := interleave(p, 0)
		if w == 2 {
			out = []VecVirtual{lo, hi}
		} else {
			lo2, hi2 := interleave(p, 2)
			for _, pair := range [][2]VecVirtual{{lo, lo2}, {hi, hi2}} {
				upper := clone(pair[0])
				PUNPCKLWL(pair[1], pair[0])
				PUNPCKHWL(pair[1], upper)
				out = append(out, pair[0], upper)
			}
		}
		for i, x := range out {
			rotate(x, down, up, w)
			MOVOU(x, Mem{Base: dst, Disp: 16 * i})
		}
	})
}

// interleave takes the bytes of planes k and k+1 by turns.
func interleave(p []Register, k int) (lo, hi VecVirtual) {
	lo = load(p[k], 0)
	b := load(p[k+1], 0)
	hi = clone(lo)
	PUNPCKLBW(b, lo)
	PUNPCKHBW(b, hi)
	return lo, hi
}

func split(w int) {
	name := map[int]string{2: "split2SSE", 4: "split4SSE"}[w]
	src, p, up, down, loop := kernel(name, "src", w)
	comment(name + " rotates blocks times 16 elements left by rot bits, 0 or 1, and takes them apart into planes.")
	low := XMM() // the lower byte of every 2
	PCMPEQL(low, low)
	PSRLW(Imm(8), low)
	loop(func() {
		var x []VecVirtual
		for i := range w {
			v := load(src, 16*i)
			rotate(v, down, up, w)
			x = append(x, v)
		}
		// Each round packs the even bytes of two registers into one and the odd ones into another.
		even, odd := deal(x[0], x[1], low)
		if w == 2 {
			MOVOU(even, Mem{Base: p[0]})
			MOVOU(odd, Mem{Base: p[1]})
			return
		}
		even2, odd2 := deal(x[2], x[3], low)
		b0, b2 := deal(even, even2, low)
		b1, b3 := deal(odd, odd2, low)
		for k, b := range []VecVirtual{b0, b1, b2, b3} {
			MOVOU(b, Mem{Base: p[k]})
		}
	})
}

func deal(a, b, low VecVirtual) (even, odd VecVirtual) {
	oddA := clone(a)
	oddB := clone(b)
	PAND(low, a)
	PAND(low, b)
	PACKUSWB(b, a)
	PSRLW(Imm(8), oddA)
	PSRLW(Imm(8), oddB)
	PACKUSWB(oddB, oddA)
	return a, oddA
}
