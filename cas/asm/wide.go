package main

import (
	"encoding/binary"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// wide are the kernels of planes that take 64 elements at a time: as they are, or as differences from a base.
func wide(w int) {
	// Of an order of bytes: element by element, or all least significant bytes of a vector before all next
	// ones.
	byPlane, byElement := make([]byte, 64), make([]byte, 64)
	for e := range 64 / w {
		for k := range w {
			byPlane[k*64/w+e] = byte(e*w + k)
			byElement[e*w+k] = byte(k*64/w + e)
		}
	}
	toPlanes, toElements := table(fmt.Sprintf("byPlane%d", w), byPlane),
		table(fmt.Sprintf("byElement%d", w), byElement)
	for _, delta := range []bool{false, true} {
		wideSplit(w, delta, toPlanes)
		wideMerge(w, delta, false, toElements)
		wideMerge(w, delta, true, toElements)
	}
}

// table is p, of whole words of 8 bytes, in memory.
func table(name string, p []byte) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; i < len(p); i += 8 {
		DATA(i, U64(binary.LittleEndian.Uint64(p[i:])))
	}
	return m
}

// wideKernel begins a function, which returns what is said, and returns a loop over its blocks, which takes
// elems at a time.
func wideKernel(name, dense string, w int, delta bool, returns, doc string, elems int) (
	side, base Register, planes []Register, flag Register, loop func(body func())) {
	sig := "func(" + dense
	if delta {
		sig += ", base"
	}
	for k := range w {
		sig += fmt.Sprintf(", p%d", k)
	}
	sig += " *byte, blocks int, "
	last := "rot"
	if delta {
		last = "floats"
	}
	TEXT(name, NOSPLIT, sig+last+" uint64)"+returns)
	comment(name + " " + doc)
	Pragma("noescape")
	side = Load(Param(dense), GP64())
	if delta {
		base = Load(Param("base"), GP64())
	}
	for k := range w {
		planes = append(planes, Load(Param(fmt.Sprintf("p%d", k)), GP64()))
	}
	blocks := Load(Param("blocks"), GP64())
	if elems == 32 {
		SHLQ(Imm(1), blocks)
	}
	return side, base, planes, Load(Param(last), GP64()), func(body func()) {
		Label("block")
		body()
		ADDQ(U32(uint32(elems*w)), side)
		if delta {
			ADDQ(U32(uint32(elems*w)), base)
		}
		for _, p := range planes {
			ADDQ(Imm(uint64(elems)), p)
		}
		DECQ(blocks)
		JNZ(LabelRef("block"))
	}
}

// wideFields are vectors of fields of w bytes.
type wideFields struct {
	w                 int
	floats, top, ones VecVirtual
}

func newWideFields(w int, flag Register) wideFields {
	f := wideFields{w: w, floats: ZMM(), top: ZMM(), ones: ZMM()}
	VPBROADCASTQ(flag, f.floats)
	VPTERNLOGD(Imm(0xff), f.ones, f.ones, f.ones)
	f.op(VPSLLW, VPSLLD)(Imm(uint64(8*w-1)), f.ones, f.top)
	return f
}

func (f wideFields) op(two, four func(...Op)) func(...Op) {
	if f.w == 2 {
		return two
	}
	return four
}

func (f wideFields) sign(x VecVirtual) VecVirtual {
	m := ZMM()
	f.op(VPSRAW, VPSRAD)(Imm(uint64(8*f.w-1)), x, m)
	return m
}

// order and disorder are those of SSE2.
func (f wideFields) order(x VecVirtual) {
	m := f.sign(x)
	VPORD(f.top, m, m)
	VPANDD(f.floats, m, m)
	VPXORD(m, x, x)
}

func (f wideFields) disorder(x VecVirtual) {
	m := f.sign(x)
	VPXORD(f.ones, m, m)
	VPORD(f.top, m, m)
	VPANDD(f.floats, m, m)
	VPXORD(m, x, x)
}

// turn rotates fields left by the bits in up, which with those in down make a whole turn.
func (f wideFields) turn(x VecVirtual, up, down VecVirtual) {
	y := ZMM()
	f.op(VPSRLW, VPSRLD)(down, x, y)
	f.op(VPSLLW, VPSLLD)(up, x, x)
	VPORD(y, x, x)
}

// counts are how far to rotate.
func (f wideFields) counts(rot Register) (by, rest VecVirtual) {
	by, rest = XMM(), XMM()
	MOVQ(rot, by)
	NEGQ(rot)
	ADDQ(Imm(uint64(8*f.w)), rot)
	MOVQ(rot, rest)
	return by, rest
}

func wideSplit(w int, delta bool, order Mem) {
	name, doc := fmt.Sprintf("split%dAVX512", w), "rotates blocks times 64 elements left by rot bits and takes them apart into planes."
	if delta {
		name, doc = fmt.Sprintf("splitDiff%dAVX512", w), "takes the differences, as diff makes them, of blocks times 64 elements from base apart into planes."
	}
	src, base, planes, flag, loop := wideKernel(name, "src", w, delta, "", doc, 64)
	f := wideFields{w: w}
	var up, down VecVirtual
	if delta {
		f = newWideFields(w, flag)
	} else {
		up, down = f.counts(flag)
	}
	byPlane := ZMM()
	VMOVDQU8(order, byPlane)
	loop(func() {
		var x []VecVirtual
		for i := range w {
			v := ZMM()
			VMOVDQU8(Mem{Base: src, Disp: 64 * i}, v)
			if delta {
				b := ZMM()
				VMOVDQU8(Mem{Base: base, Disp: 64 * i}, b)
				f.order(b)
				f.order(v)
				f.op(VPSUBW, VPSUBD)(b, v, v)
				m := f.sign(v)
				f.op(VPADDW, VPADDD)(v, v, v)
				VPXORD(m, v, v)
			} else {
				f.turn(v, up, down)
			}
			VPERMB(v, byPlane, v)
			x = append(x, v)
		}
		for k, v := range exchange(x) {
			VMOVDQU8(v, Mem{Base: planes[k]})
		}
	})
	VZEROUPPER()
	RET()
}

func wideMerge(w int, delta, same bool, order Mem) {
	name, what, dense, returns := "merge", "makes", "dst", ""
	if same {
		name, what, dense, returns = "same", "reports whether there are at want", "want", " bool"
	}
	doc := what + " blocks times 64 elements of their planes, each rotated right by rot bits."
	if delta {
		name, doc = name+"Undiff", what+" blocks times 64 elements of base and of the planes of their differences."
	}
	name = fmt.Sprintf("%s%dAVX512", name, w)
	side, base, planes, flag, loop := wideKernel(name, dense, w, delta, returns, doc, 64)
	f := wideFields{w: w}
	var up, down VecVirtual
	if delta {
		f = newWideFields(w, flag)
	} else {
		down, up = f.counts(flag)
	}
	byElement := ZMM()
	VMOVDQU8(order, byElement)
	differ := ZMM()
	if same {
		VPXORD(differ, differ, differ)
	}
	loop(func() {
		var x []VecVirtual
		for k := range w {
			v := ZMM()
			VMOVDQU8(Mem{Base: planes[k]}, v)
			x = append(x, v)
		}
		for i, v := range exchange(x) {
			VPERMB(v, byElement, v)
			if delta {
				b := ZMM()
				VMOVDQU8(Mem{Base: base, Disp: 64 * i}, b)
				f.order(b)
				m := ZMM()
				f.op(VPSLLW, VPSLLD)(Imm(uint64(8*w-1)), v, m)
				m = f.sign(m)
				f.op(VPSRLW, VPSRLD)(Imm(1), v, v)
				VPXORD(m, v, v)
				f.op(VPADDW, VPADDD)(b, v, v)
				f.disorder(v)
			} else {
				f.turn(v, up, down)
			}
			if at := (Mem{Base: side, Disp: 64 * i}); same {
				VPTERNLOGD(Imm(0xf6), at, v, differ) // or of it and of what differs
			} else {
				VMOVDQU8(v, at)
			}
		}
	})
	if same {
		k, r := K(), GP32()
		VPTESTMD(differ, differ, k)
		KORTESTW(k, k)
		SETEQ(r.As8())
		Store(r.As8(), ReturnIndex(0))
	}
	VZEROUPPER()
	RET()
}

// exchange transposes a matrix of as many parts of vectors as there are vectors.
func exchange(x []VecVirtual) []VecVirtual {
	pair := func(imm uint64, a, b VecVirtual) VecVirtual {
		v := ZMM()
		VSHUFI64X2(Imm(imm), b, a, v)
		return v
	}
	const low, high, even, odd = 0x44, 0xee, 0x88, 0xdd // of parts of 128 bits: 0 1 of both, 2 3, 0 2, 1 3
	if len(x) == 2 {
		return []VecVirtual{pair(low, x[0], x[1]), pair(high, x[0], x[1])}
	}
	a, b := pair(low, x[0], x[1]), pair(low, x[2], x[3])
	c, d := pair(high, x[0], x[1]), pair(high, x[2], x[3])
	return []VecVirtual{pair(even, a, b), pair(odd, a, b), pair(even, c, d), pair(odd, c, d)}
}
