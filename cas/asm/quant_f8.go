package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// f8 makes the kernels of FP8, which round to bfloat16 before or not.
func (v vectors) f8(divides, bf16 bool) {
	name, what := "f8Times", "x times s"
	if divides {
		name, what = "f8Divide", "x/s"
	}
	if bf16 {
		name, what = name+"BF16", what+", rounded to bfloat16"
	}
	v.begin(name, "func(dst *byte, x *float32, blocks int, s float32, t *uint32)",
		"sets blocks of 32 codes to those of "+what+", of a type (f8Types).")
	dst, x, blocks := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	t := Load(Param("t"), GP64())
	addr, err := Param("s").Resolve()
	if err != nil {
		panic(err)
	}
	s := v.reg()
	VBROADCASTSS(addr.Addr, s)
	field := func(i int) VecVirtual { return v.same(Mem{Base: t, Disp: 4 * i}) }
	top, least, small, half, bias := field(0), field(1), field(2), field(3), field(4)
	drop := XMM()
	VMOVD(Mem{Base: t, Disp: 20}, drop)
	one, magnitude, sign := v.each(1), v.each(0x7fffffff), v.each(0x80)
	round := v.each(0x7fff)
	countdown("block", blocks, func() {
		out := packer{v: v, to: Mem{Base: dst}}
		for i := range 32 / v.lanes {
			c := v.load(Mem{Base: x, Disp: 4 * v.lanes * i})
			if divides {
				VDIVPS(s, c, c)
			} else {
				VMULPS(s, c, c)
			}
			v.numbers(c)
			if bf16 {
				odd := v.reg()
				VPSRLD(Imm(16), c, odd)
				v.and(one, odd, odd)
				VPADDD(odd, c, c)
				VPADDD(round, c, c)
				VPSRLD(Imm(16), c, c)
				VPSLLD(Imm(16), c, c)
			}
			d, e := v.reg(), v.reg()
			VPSRLD(Imm(24), c, d)
			v.and(sign, d, d)
			v.and(magnitude, c, c)
			VPMINUD(top, c, c)
			VADDPS(small, c, e) // of those below least
			VPSUBD(small, e, e)
			odd := v.reg()
			VPSRLD(drop, c, odd)
			v.and(one, odd, odd)
			if v.wide {
				k := K()
				VPCMPUD(Imm(1), least, c, k) // less
				VPADDD(half, odd, odd)
				VPADDD(odd, c, c)
				VPSRLD(drop, c, c)
				VPSUBD(bias, c, c)
				VMOVDQA32(e, k, c)
			} else {
				k := YMM()
				VPCMPGTD(c, least, k)
				VPADDD(half, odd, odd)
				VPADDD(odd, c, c)
				VPSRLD(drop, c, c)
				VPSUBD(bias, c, c)
				VPBLENDVB(k, e, c, c)
			}
			v.or(d, c, c)
			out.put(c)
		}
		ADDQ(Imm(32), dst)
		ADDQ(U32(128), x)
	})
	VZEROUPPER()
	RET()
}
