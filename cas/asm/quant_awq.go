package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// awq makes the kernel of AWQ that rounds to binary16, for AVX2: with factors of outputs or without. It needs
// no F16C.
func awq(outputs bool) {
	v := vectors{false, 8}
	name, what := "awqF16", "x times s, rounded, over a"
	if outputs {
		name, what = "awqOutputsF16", "x times s, rounded, over t, rounded, over a"
	}
	v.begin(name, "func(dst *byte, x, a, t *float32, z *byte, blocks int, s float32)",
		"sets blocks of 32 codes to those of "+what+", whose zeros are z.")
	dst, x, blocks := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	a, t, z := Load(Param("a"), GP64()), Load(Param("t"), GP64()), Load(Param("z"), GP64())
	addr, err := Param("s").Resolve()
	if err != nil {
		panic(err)
	}
	s := YMM()
	VBROADCASTSS(addr.Addr, s)
	magnitude, one, round, kept := v.each(0x7fffffff), v.each(1), v.each(0xfff), v.each(0xffffe000)
	below, half, most, inf := v.each(0x387fffff), v.each(0x3f000000), v.each(0x477fefff), v.each(0x7f800000)
	lo, hi, top := v.each(0xc1800000), v.each(0x41800000), v.each(15) // -16, 16
	toF16 := func(c VecVirtual) {
		v.numbers(c)
		m, n, small, k := YMM(), YMM(), YMM(), YMM()
		VPAND(magnitude, c, m)
		VPXOR(m, c, c) // its sign
		VPSRLD(Imm(13), m, n)
		VPAND(one, n, n)
		VPADDD(m, n, n)
		VPADDD(round, n, n)
		VPAND(kept, n, n)
		VADDPS(half, m, small) // counted in steps of 2^-24
		VSUBPS(half, small, small)
		VPCMPGTD(below, m, k)
		VPBLENDVB(k, n, small, n)
		VPCMPGTD(most, m, k)
		VPBLENDVB(k, inf, n, n)
		VPOR(n, c, c)
	}
	countdown("block", blocks, func() {
		out := packer{v: v, to: Mem{Base: dst}}
		for i := range 4 {
			at := 32 * i
			c, zero := YMM(), YMM()
			VMULPS(Mem{Base: x, Disp: at}, s, c)
			toF16(c)
			if outputs {
				VDIVPS(Mem{Base: t, Disp: at}, c, c)
				toF16(c)
			}
			VDIVPS(Mem{Base: a, Disp: at}, c, c)
			toF16(c)
			VMAXPS(lo, c, c)
			VMINPS(hi, c, c)
			VCVTPS2DQ(c, c)
			VPMOVZXBD(Mem{Base: z, Disp: 8 * i}, zero)
			VPADDD(zero, c, c)
			VPXOR(zero, zero, zero)
			VPMAXSD(zero, c, c)
			VPMINSD(top, c, c)
			out.put(c)
		}
		ADDQ(Imm(32), dst)
		ADDQ(Imm(32), z)
		for _, p := range []Register{x, a, t} {
			ADDQ(U32(128), p)
		}
	})
	VZEROUPPER()
	RET()
}
