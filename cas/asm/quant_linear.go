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
	top := float32(15)
	if five {
		top = 31
	}
	v.nibbles(name, size, from, five, func() func(y, by, below VecVirtual) {
		more, lo, hi := v.each(math.Float32bits(c)), v.each(0), v.each(math.Float32bits(top))
		return func(y, by, below VecVirtual) {
			if least {
				VSUBPS(below, y, y)
			}
			VMULPS(by, y, y)
			VADDPS(more, y, y)
			VMAXPS(lo, y, y) // lo where y is no number
			VMINPS(hi, y, y)
			VCVTTPS2DQ(y, y)
		}
	})
}

// predictMXFP4 makes the kernel of MXFP4, whose codes are how many of seven bounds a magnitude is above.
func (v vectors) predictMXFP4() {
	v.nibbles("MXFP4", 17, 1, false, func() func(y, by, below VecVirtual) {
		magnitude, eight, none := v.each(0x7fffffff), v.each(8), v.zero()
		var bounds []Op
		for _, b := range []float32{0.5, 1.5, 2.5, 3.5, 5, 7, 10} {
			bounds = append(bounds, v.each(math.Float32bits(b)))
		}
		return func(y, by, below VecVirtual) {
			VMULPS(by, y, y)
			v.numbers(y)
			n, sign, m, d := v.zero(), v.reg(), v.reg(), v.reg()
			VPSRLD(Imm(28), y, sign)
			v.and(eight, sign, sign)
			v.and(magnitude, y, m)
			for _, b := range bounds {
				if v.wide {
					VPSUBD(m, b.(VecVirtual), d)
				} else {
					VMOVDQU(b, d)
					VPSUBD(m, d, d)
				}
				VPSRLD(Imm(31), d, d) // 1 where m is more
				VPADDD(d, n, n)
			}
			// Of 0 the sign is left out: only a sum that is more than none has it.
			VPSUBD(n, none, d)
			VPSRAD(Imm(31), d, d)
			v.and(d, sign, sign)
			v.or(sign, n, y)
		}
	})
}

// nibbles makes a kernel of such blocks. What code returns makes codes of x, of a and of b.
func (v vectors) nibbles(name string, size, from int, five bool, code func() func(x, a, b VecVirtual)) {
	v.begin("predict"+name, quantSignature, fmt.Sprintf(
		"sets the codes of blocks of %d bytes to those of x, with a and b of each 32 of them.", size))
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	a, b, blocks := Load(Param("a"), GP64()), Load(Param("b"), GP64()), Load(Param("blocks"), GP64())
	nibbles := from
	if five {
		nibbles += 4
	}
	one := code()
	nibble, fifth := v.each(15), v.each(16)
	countdown("block", blocks, func() {
		by, below := v.same(Mem{Base: a}), v.same(Mem{Base: b})
		var codes []VecVirtual
		for i := range 32 / v.lanes {
			y := v.load(Mem{Base: x, Disp: 4 * v.lanes * i})
			one(y, by, below)
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
