package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// roundAVX2 makes the kernels of round for AVX2. They need no F16C.
func roundAVX2() {
	for _, to := range []struct {
		name  string
		round func(x VecVirtual)
	}{{"BF16", roundBF16}, {"F16", roundF16}} {
		name := "round" + to.name + "AVX"
		TEXT(name+"2", NOSPLIT, "func(dst, src *byte, blocks int) (left int)")
		Pragma("noescape")
		comment(name + "2 is " + name + "512 for AVX2.")
		dst, src, blocks := Load(Param("dst"), GP64()), Load(Param("src"), GP64()),
			Load(Param("blocks"), GP64())
		Label("block")
		var x [2]VecVirtual
		nans := [2]VecVirtual{YMM(), YMM()}
		for i := range x {
			x[i] = loadYMM(Mem{Base: src, Disp: 32 * i})
			VCMPPS(Imm(3), x[i], x[i], nans[i]) // unordered
		}
		VPOR(nans[1], nans[0], nans[0])
		VPTEST(nans[0], nans[0])
		JNZ(LabelRef("done"))
		for _, x := range x {
			to.round(x)
		}
		VPACKUSDW(x[1], x[0], x[0])
		VPERMQ(Imm(0xd8), x[0], x[0])
		VMOVDQU(x[0], Mem{Base: dst})
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

// shorten leaves the bits of x from n on, rounded to the nearest, ties to even.
func shorten(x VecVirtual, n uint64) {
	odd := YMM()
	VPSRLD(Imm(n), x, odd)
	VPAND(constant(1), odd, odd)
	VPADDD(constant(1<<(n-1)-1), x, x)
	VPADDD(odd, x, x)
	VPSRLD(Imm(n), x, x)
}

func roundBF16(x VecVirtual) { shorten(x, 16) }

// roundF16 rounds numbers below 2^-14 by the sum with one half: the last bit of that counts steps of 2^-24.
func roundF16(x VecVirtual) {
	const half = 0x3f000000
	sign, small, isLarge := YMM(), YMM(), YMM()
	VPSRLD(Imm(31), x, sign)
	VPSLLD(Imm(15), sign, sign)
	VPAND(constant(0x7fffffff), x, x)
	VPCMPGTD(constant(0x38800000-1), x, isLarge)
	VADDPS(constant(half), x, small)
	VPSUBD(constant(half), small, small)
	VPSUBD(constant((127-15)<<23), x, x)
	shorten(x, 13)
	VPMINUD(constant(0x7c00), x, x)
	VPBLENDVB(isLarge, x, small, x)
	VPOR(sign, x, x)
}

// widenBF16 makes the kernels that widen bfloat16, for AVX-512 and for AVX2.
func widenBF16() {
	for _, v := range []vectors{{true, 16}, {false, 8}} {
		v.begin("widenBF16", "func(dst *float32, src *byte, blocks int)",
			"sets 16 numbers of dst for each block of 32 bytes of src, bfloat16.")
		dst, src, blocks := Load(Param("dst"), GP64()), Load(Param("src"), GP64()),
			Load(Param("blocks"), GP64())
		countdown("block", blocks, func() {
			for i := 0; i < 16; i += v.lanes {
				x := v.reg()
				VPMOVZXWD(Mem{Base: src, Disp: 2 * i}, x)
				VPSLLD(Imm(16), x, x)
				VMOVUPS(x, Mem{Base: dst, Disp: 4 * i})
			}
			ADDQ(Imm(32), src)
			ADDQ(Imm(64), dst)
		})
		VZEROUPPER()
		RET()
	}
}
