package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Where the fields of ranges of package quant lie, from those of one block to those of the next.
const (
	rangesLow       = 256 // lo
	rangesMostRange = 512 // mostRange
	rangesMostLow   = 544 // mostLow
	rangesStep      = 576 // step
	rangesOffset    = 608 // low
	rangesPerStep   = 640 // perStep
	rangesPerLow    = 672 // perLow
	rangesScales    = 704 // scales
	rangesOffsets   = 768 // offsets
)

// spread makes the kernel of what is known of parts, eight a block, and of blocks, for either level.
func spread() {
	v := vectors{lanes: 8}
	v.begin("spread", "func(r, min, max *float32, blocks int)",
		"sets the ranges r, and the greatest of each block, to those of the least and greatest numbers of parts.")
	r, least, most := Load(Param("r"), GP64()), Load(Param("min"), GP64()), Load(Param("max"), GP64())
	blocks, part := Load(Param("blocks"), GP64()), GP64()
	MOVQ(r, part)
	zero := v.zero()
	countdown("block", blocks, func() {
		lo, rg := v.load(Mem{Base: least}), v.load(Mem{Base: most})
		VMINPS(zero, lo, lo)
		VSUBPS(lo, rg, rg)
		VSUBPS(lo, zero, lo)
		VMOVUPS(rg, Mem{Base: part})
		VMOVUPS(lo, Mem{Base: part, Disp: rangesLow})
		// None is negative: as whole numbers they have the same order.
		a, b := v.reg(), v.reg()
		VPERM2F128(Imm(0x20), lo, rg, a)
		VPERM2F128(Imm(0x31), lo, rg, b)
		VPMAXUD(a, b, a)
		VPSHUFD(Imm(0x4e), a, b)
		VPMAXUD(a, b, a)
		VPSHUFD(Imm(0xb1), a, b)
		VPMAXUD(a, b, a)
		VMOVSS(a.AsX(), Mem{Base: r, Disp: rangesMostRange})
		high := XMM()
		VEXTRACTI128(Imm(1), a, high)
		VMOVSS(high, Mem{Base: r, Disp: rangesMostLow})
		ADDQ(Imm(32), least)
		ADDQ(Imm(32), most)
		ADDQ(Imm(32), part)
		ADDQ(Imm(4), r)
	})
	VZEROUPPER()
	RET()
}

// rangeFactors makes the kernel of the factors of parts, eight a block, for either level.
func rangeFactors() {
	v := vectors{lanes: 8}
	v.begin("factors", "func(r, a, b *float32, levels float32, blocks int)",
		"sets the factors a and b of parts, and makes the scales and offsets of r of what they differ by.")
	r, a, b := Load(Param("r"), GP64()), Load(Param("a"), GP64()), Load(Param("b"), GP64())
	blocks, part, eight := Load(Param("blocks"), GP64()), GP64(), GP64()
	addr, err := Param("levels").Resolve()
	if err != nil {
		panic(err)
	}
	levels := v.same(addr.Addr)
	MOVQ(r, part)
	MOVQ(r, eight)
	zero := v.zero()
	// field is eight numbers of six bits, which by predicts of parts and a stream corrects, times unit.
	field := func(parts, by, unit, stored int) VecVirtual {
		c, z, sign := v.reg(), v.reg(), v.reg()
		VMULPS(Mem{Base: part, Disp: parts}, v.same(Mem{Base: r, Disp: by}), c)
		VMAXPS(zero, c, c) // 0 where c is no number
		VMINPS(constant(0x427c0000), c, c)
		VCVTPS2DQ(c, c)
		VPMOVZXBD(Mem{Base: eight, Disp: stored}, z)
		VPAND(constant(1), z, sign)
		VPSUBD(sign, zero, sign)
		VPSRLD(Imm(1), z, z)
		VPXOR(sign, z, z)
		VPADDD(z, c, c)
		VPAND(constant(63), c, c)
		upper := XMM()
		VEXTRACTI128(Imm(1), c, upper)
		VPACKUSDW(upper, c.AsX(), upper)
		VPACKUSWB(upper, upper, upper)
		VMOVQ(upper, Mem{Base: eight, Disp: stored})
		VCVTDQ2PS(c, c)
		VMULPS(v.same(Mem{Base: r, Disp: unit}), c, c)
		return c
	}
	countdown("block", blocks, func() {
		const equal = 0
		as := field(0, rangesPerStep, rangesStep, rangesScales)
		bs := field(rangesLow, rangesPerLow, rangesOffset, rangesOffsets)
		other, none := v.load(Mem{Base: part}), v.reg()
		VDIVPS(levels, other, other)
		VCMPPS(Imm(equal), zero, as, none)
		VBLENDVPS(none, other, as, as)
		VBLENDVPS(none, Mem{Base: part, Disp: rangesLow}, bs, bs)
		VCMPPS(Imm(equal), zero, as, none)
		VBLENDVPS(none, constant(0x7fc00000), as, as)
		VMOVUPS(as, Mem{Base: a})
		VMOVUPS(bs, Mem{Base: b})
		for _, p := range []Register{a, b, part} {
			ADDQ(Imm(32), p)
		}
		ADDQ(Imm(4), r)
		ADDQ(Imm(8), eight)
	})
	VZEROUPPER()
	RET()
}
