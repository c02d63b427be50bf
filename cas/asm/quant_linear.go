package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// predictQ80 makes the kernel of Q8_0.
func (v vectors) predictQ80() {
	v.begin("predictQ80", "func(dst *byte, x, a *float32, blocks int)",
		"sets the codes of blocks of 34 bytes to those of x, with a of each 32 of them.")
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	a, blocks := Load(Param("a"), GP64()), Load(Param("blocks"), GP64())
	lo, hi := v.each(0xc3000000), v.each(0x42fe0000) // -128 and 127
	half, sign, low := v.each(0x3effffff), v.each(1<<31), v.each(0xff)
	countdown("block", blocks, func() {
		by := v.same(Mem{Base: a})
		out := packer{v: v, to: Mem{Base: dst, Disp: 2}}
		for i := range 32 / v.lanes {
			c, d := v.reg(), v.reg()
			VMULPS(Mem{Base: x, Disp: 4 * v.lanes * i}, by, c)
			v.numbers(c)
			VMAXPS(lo, c, c)
			VMINPS(hi, c, c)
			v.and(sign, c, d)
			v.or(half, d, d)
			VADDPS(d, c, c)
			VCVTTPS2DQ(c, c)
			if !v.wide {
				v.and(low, c, c)
			}
			out.put(c)
		}
		ADDQ(Imm(34), dst)
		ADDQ(U32(128), x)
		ADDQ(Imm(4), a)
	})
	VZEROUPPER()
	RET()
}

// predictNibbles makes the kernels of blocks of size bytes with a scale, from from on: fifth bits, if five,
// and nibbles. Codes are what is multiplied, after b is subtracted, and c added, cut off.
func (v vectors) predictNibbles(name string, size, from int, c float32, least, five bool) {
	v.begin("predict"+name, quantSignature, fmt.Sprintf(
		"sets the codes of blocks of %d bytes to those of x, with a and b of each 32 of them.", size))
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	a, b, blocks := Load(Param("a"), GP64()), Load(Param("b"), GP64()), Load(Param("blocks"), GP64())
	top, nibbles := float32(15), from
	if five {
		top, nibbles = 31, from+4
	}
	more, lo, hi := v.each(math.Float32bits(c)), v.each(0), v.each(math.Float32bits(top))
	nibble, fifth := v.each(15), v.each(16)
	countdown("block", blocks, func() {
		by, below := v.same(Mem{Base: a}), v.same(Mem{Base: b})
		var codes []VecVirtual
		for i := range 32 / v.lanes {
			y := v.load(Mem{Base: x, Disp: 4 * v.lanes * i})
			if least {
				VSUBPS(below, y, y)
			}
			VMULPS(by, y, y)
			VADDPS(more, y, y)
			VMAXPS(lo, y, y) // lo where y is no number
			VMINPS(hi, y, y)
			VCVTTPS2DQ(y, y)
			if five {
				high := Mem{Base: dst, Disp: from + v.lanes/8*i}
				if v.wide {
					k := K()
					VPTESTMD(fifth, y, k)
					KMOVW(k, high)
				} else {
					sign, r := YMM(), GP32()
					VPSLLD(Imm(27), y, sign)
					VMOVMSKPS(sign, r)
					MOVB(r.As8(), high)
				}
				v.and(nibble, y, y)
			}
			if n := len(codes); i < 16/v.lanes {
				codes = append(codes, y)
			} else {
				VPSLLD(Imm(4), y, y)
				v.or(y, codes[i-n], codes[i-n])
			}
		}
		to := Mem{Base: dst, Disp: nibbles}
		if v.wide {
			VPMOVDB(codes[0], to)
		} else {
			upper := XMM()
			VPACKUSDW(codes[1], codes[0], codes[0])
			VPERMQ(Imm(0xd8), codes[0], codes[0])
			VEXTRACTI128(Imm(1), codes[0], upper)
			VPACKUSWB(upper, codes[0].AsX(), upper)
			VMOVDQU(upper, to)
		}
		ADDQ(Imm(uint64(size)), dst)
		ADDQ(U32(128), x)
		ADDQ(Imm(4), a)
		ADDQ(Imm(4), b)
	})
	VZEROUPPER()
	RET()
}
