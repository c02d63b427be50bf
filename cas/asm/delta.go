package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A delta kernel works on blocks of 16 bytes: fields of w bytes.
type fields int

func (w fields) sub(x, from VecVirtual) { pick(w, PSUBW, PSUBL)(x, from) }
func (w fields) add(x, to VecVirtual)   { pick(w, PADDW, PADDL)(x, to) }
func (w fields) left(n int, x VecVirtual) {
	pick(w, PSLLW, PSLLL)(Imm(uint64(n)), x)
}
func (w fields) right(n int, x VecVirtual) {
	pick(w, PSRLW, PSRLL)(Imm(uint64(n)), x)
}
func (w fields) sign(x VecVirtual) { pick(w, PSRAW, PSRAL)(Imm(uint64(8*w-1)), x) }

func pick(w fields, two, four func(a, b Op)) func(a, b Op) {
	if w == 2 {
		return two
	}
	return four
}

// order maps floats to integers of the same order: of negative ones all bits but the sign are inverted as
// well. Where floats is zero, nothing changes.
func (w fields) order(x, top, floats VecVirtual) {
	m := clone(x)
	w.sign(m)
	POR(top, m)
	PAND(floats, m)
	PXOR(m, x)
}

// disorder undoes order.
func (w fields) disorder(x, top, ones, floats VecVirtual) {
	m := clone(x)
	w.sign(m)
	PXOR(ones, m)
	POR(top, m)
	PAND(floats, m)
	PXOR(m, x)
}

// deltaSSE makes the kernels that take and undo differences, in SSE2.
func deltaSSE() {
	for _, w := range []fields{2, 4} {
		delta(w, true)
		delta(w, false)
	}
}

func delta(w fields, forward bool) {
	name, doc := fmt.Sprintf("diff%dSSE", w), "sets blocks times 16 bytes of dst to the zigzag-coded differences of a and base"
	if !forward {
		name, doc = fmt.Sprintf("undiff%dSSE", w), "undoes diff: dst may be a"
	}
	TEXT(name, NOSPLIT, "func(dst, a, base *byte, blocks int, floats uint64)")
	comment(fmt.Sprintf("%s %s, elements of %d bytes; floats has all bits set for floats and none for integers.", name, doc, w))
	Pragma("noescape")
	dst, src, base := Load(Param("dst"), GP64()), Load(Param("a"), GP64()), Load(Param("base"), GP64())
	blocks, flag := Load(Param("blocks"), GP64()), Load(Param("floats"), GP64())
	floats, ones, top := XMM(), XMM(), XMM()
	MOVQ(flag, floats)
	PUNPCKLQDQ(floats, floats)
	PCMPEQL(ones, ones)
	MOVO(ones, top)
	w.left(int(8*w-1), top)
	Label("loop")
	a, b := load(src, 0), load(base, 0)
	w.order(b, top, floats)
	if forward {
		w.order(a, top, floats)
		w.sub(b, a)
		m := clone(a)
		w.sign(m)
		w.left(1, a)
		PXOR(m, a)
	} else {
		m := clone(a)
		w.left(int(8*w-1), m)
		w.sign(m)
		w.right(1, a)
		PXOR(m, a)
		w.add(b, a)
		w.disorder(a, top, ones, floats)
	}
	MOVOU(a, Mem{Base: dst})
	for _, p := range []Register{dst, src, base} {
		ADDQ(Imm(16), p)
	}
	DECQ(blocks)
	JNZ(LabelRef("loop"))
	RET()
}
