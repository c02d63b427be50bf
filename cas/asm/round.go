package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// round makes the kernels that round 16 numbers at a time, and count NaNs: they say where the first block
// with any begins.
func round() {
	for _, bf16 := range []bool{true, false} {
		name, to := "roundBF16AVX512", "bfloat16"
		if !bf16 {
			name, to = "roundF16AVX512", "binary16"
		}
		TEXT(name, NOSPLIT, "func(dst, src *byte, blocks int) (left int)")
		Pragma("noescape")
		comment(name + " sets 32 bytes of dst for each block of 64 of src, rounded to " + to + ", up to one that has a NaN; left is how many there are from it on.")
		dst, src, blocks := Load(Param("dst"), GP64()), Load(Param("src"), GP64()),
			Load(Param("blocks"), GP64())
		half, one := broadcast(0x7fff), broadcast(1)
		Label("block")
		x, y, h, nan := ZMM(), ZMM(), YMM(), K()
		VMOVUPS(Mem{Base: src}, x)
		VCMPPS(Imm(3), x, x, nan) // unordered
		KORTESTW(nan, nan)
		JNZ(LabelRef("done"))
		if bf16 {
			VPSRLD(Imm(16), x, y)
			VPANDD(one, y, y)
			VPADDD(half, x, x)
			VPADDD(y, x, x)
			VPSRLD(Imm(16), x, x)
			VPMOVDW(x, h)
		} else {
			VCVTPS2PH(Imm(0), x, h) // to the nearest, ties to even, whatever is set
		}
		VMOVDQU(h, Mem{Base: dst})
		ADDQ(Imm(64), src)
		ADDQ(Imm(32), dst)
		DECQ(blocks)
		JNZ(LabelRef("block"))
		Label("done")
		Store(blocks, Return("left"))
		VZEROUPPER()
		RET()
	}
}
