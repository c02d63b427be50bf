package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func bitmapsAVX2() {
	TEXT("spreadAVX2", NOSPLIT, "func(dst, bitmap, src *byte, blocks int) (used int)")
	Pragma("noescape")
	comment("spreadAVX2 is spreadAVX512 for AVX2. It reads up to 8 bytes past what it uses.")
	dst, bitmap, src := Load(Param("dst"), GP64()), Load(Param("bitmap"), GP64()), Load(Param("src"), GP64())
	blocks, expand := Load(Param("blocks"), GP64()), GP64()
	LEAQ(expandBytes(), expand)
	Label("block")
	for i := range 8 {
		m, x := GP32(), XMM()
		MOVBLZX(Mem{Base: bitmap, Disp: i}, m)
		VMOVQ(Mem{Base: src}, x)
		VPSHUFB(within(expand, m), x, x)
		VMOVQ(x, Mem{Base: dst, Disp: 8 * i})
		advance(src, m)
	}
	ADDQ(Imm(8), bitmap)
	ADDQ(Imm(64), dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	SUBQ(Load(Param("src"), GP64()), src)
	Store(src, Return("used"))
	VZEROUPPER()
	RET()

	TEXT("packAVX2", NOSPLIT, "func(dst, bitmap, src *byte, blocks int) (put int)")
	Pragma("noescape")
	comment("packAVX2 is packAVX512 for AVX2. It writes up to 8 bytes past what it puts.")
	dst, bitmap, src = Load(Param("dst"), GP64()), Load(Param("bitmap"), GP64()), Load(Param("src"), GP64())
	blocks = Load(Param("blocks"), GP64())
	shuffles, zero := GP64(), YMM()
	LEAQ(compress(), shuffles)
	VPXOR(zero, zero, zero)
	Label("block")
	for half := range 2 {
		zeros, mask := YMM(), GP32()
		VPCMPEQB(Mem{Base: src, Disp: 32 * half}, zero, zeros)
		VPMOVMSKB(zeros, mask)
		XORL(I8(-1), mask)
		MOVL(mask, Mem{Base: bitmap, Disp: 4 * half})
		eights(mask, func(i int, m GPVirtual) {
			x := XMM()
			VMOVQ(Mem{Base: src, Disp: 32*half + 8*i}, x)
			VPSHUFB(within(shuffles, m), x, x)
			VMOVQ(x, Mem{Base: dst})
			advance(dst, m)
		})
	}
	ADDQ(Imm(8), bitmap)
	ADDQ(Imm(64), src)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	SUBQ(Load(Param("dst"), GP64()), dst)
	Store(dst, Return("put"))
	VZEROUPPER()
	RET()
}

func unionAVX2() {
	TEXT("unionAVX2", NOSPLIT, "func(any, zero *byte, planes **byte, n, blocks int)")
	Pragma("noescape")
	comment("unionAVX2 is unionPortable for blocks times 64 bytes of n planes.")
	any, zero, planes := Load(Param("any"), GP64()), Load(Param("zero"), GP64()),
		Load(Param("planes"), GP64())
	n, blocks := Load(Param("n"), GP64()), Load(Param("blocks"), GP64())
	one, none, at := loadYMM(constant(0x01010101)), YMM(), GP64()
	VPXOR(none, none, none)
	XORQ(at, at)
	Label("block")
	x, i, p := [2]VecVirtual{YMM(), YMM()}, GP64(), GP64()
	for _, x := range x {
		VPXOR(x, x, x)
	}
	MOVQ(n, i)
	Label("plane")
	MOVQ(Mem{Base: planes, Index: i, Scale: 8, Disp: -8}, p)
	for half, x := range x {
		VPOR(Mem{Base: p, Index: at, Scale: 1, Disp: 32 * half}, x, x)
	}
	DECQ(i)
	JNZ(LabelRef("plane"))
	for half, x := range x {
		VMOVDQU(x, Mem{Base: any, Index: at, Scale: 1, Disp: 32 * half})
		VPCMPEQB(none, x, x)
		VPAND(one, x, x)
		VMOVDQU(x, Mem{Base: zero, Index: at, Scale: 1, Disp: 32 * half})
	}
	ADDQ(Imm(64), at)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}
