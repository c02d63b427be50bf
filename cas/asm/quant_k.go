package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// divided are the codes of a vector of x, (x+b)/a, without b: x/a, clamped.
func (v vectors) divided(x Mem, a, b VecVirtual, lo, hi Op) VecVirtual {
	c := v.reg()
	if b != nil {
		VADDPS(x, b, c)
	} else {
		VMOVUPS(x, c)
	}
	VDIVPS(a, c, c)
	VMAXPS(lo, c, c) // lo where c is no number
	VMINPS(hi, c, c)
	VCVTPS2DQ(c, c)
	return c
}

// A packer stores lanes, each of which a byte is used, as bytes. It takes vectors of 32 lanes in all.
type packer struct {
	v    vectors
	to   Mem
	n    int
	held []VecVirtual
}

func (p *packer) put(x VecVirtual) {
	if p.v.wide {
		VPMOVDB(x, p.to.Offset(16*p.n))
		p.n++
		return
	}
	if p.n++; p.n%2 != 0 {
		p.held = append(p.held, x)
		return
	}
	last := p.held[len(p.held)-1]
	VPACKUSDW(x, last, last)
	if p.n == 4 {
		y := YMM()
		VPACKUSWB(last, p.held[0], last)
		VMOVDQU(constant(0, 4, 1, 5, 2, 6, 3, 7), y)
		VPERMD(last, y, last)
		VMOVDQU(last, p.to)
	}
}

const quantSignature = "func(dst *byte, x, a, b *float32, blocks int)"

// predictK makes the kernels of Q4_K and Q5_K, whose codes' low bits begin at a place in a block.
func (v vectors) predictK(name string, size, low int) {
	v.begin("predict"+name, quantSignature, fmt.Sprintf(
		"sets the codes of blocks of %d bytes to those of x, with a and b of each 32 of them.", size))
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	a, b, blocks := Load(Param("a"), GP64()), Load(Param("b"), GP64()), Load(Param("blocks"), GP64())
	five := name == "Q5K"
	top := uint32(0x41700000) // 15
	if five {
		top = 0x41f80000 // 31
	}
	lo, hi, nibble, fifth := v.each(0), v.each(top), v.each(15), v.each(16)
	countdown("block", blocks, func() {
		var high []VecVirtual // of 32 codes each
		if five {
			for range 32 / v.lanes {
				high = append(high, v.zero())
			}
		}
		for s := range 4 {
			var as, bs [2]VecVirtual
			for k := range 2 {
				at := 4 * (2*s + k)
				as[k], bs[k] = v.same(Mem{Base: a, Disp: at}), v.same(Mem{Base: b, Disp: at})
			}
			out := packer{v: v, to: Mem{Base: dst, Disp: low + 32*s}}
			for i := range 32 / v.lanes {
				var c [2]VecVirtual
				for k := range c {
					c[k] = v.divided(Mem{Base: x, Disp: 4 * (64*s + 32*k + v.lanes*i)}, as[k], bs[k], lo, hi)
				}
				if five {
					for k := range c {
						bit := v.reg()
						v.and(fifth, c[k], bit)
						switch by := 2*s + k - 4; {
						case by < 0:
							VPSRLD(Imm(uint64(-by)), bit, bit)
						case by > 0:
							VPSLLD(Imm(uint64(by)), bit, bit)
						}
						v.or(bit, high[i], high[i])
						v.and(nibble, c[k], c[k])
					}
				}
				VPSLLD(Imm(4), c[1], c[1])
				v.or(c[1], c[0], c[0])
				out.put(c[0])
			}
		}
		if five {
			out := packer{v: v, to: Mem{Base: dst, Disp: 16}}
			for _, h := range high {
				out.put(h)
			}
		}
		ADDQ(U32(uint32(size)), dst)
		ADDQ(U32(1024), x)
		ADDQ(Imm(32), a)
		ADDQ(Imm(32), b)
	})
	VZEROUPPER()
	RET()
}

// predictQ6K makes the kernel of Q6_K.
func (v vectors) predictQ6K() {
	v.begin("predictQ6K", "func(dst *byte, x, a *float32, blocks int)",
		"sets the codes of blocks of 210 bytes to those of x, with a of each 16 of them.")
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	a, blocks := Load(Param("a"), GP64()), Load(Param("blocks"), GP64())
	lo, hi, nibble, bias := v.each(0xc2000000), v.each(0x41f80000), v.each(15), v.each(32) // -32 and 31
	countdown("block", blocks, func() {
		for j := range 2 {
			var low [2]packer
			for k := range low {
				low[k] = packer{v: v, to: Mem{Base: dst, Disp: 64*j + 32*k}}
			}
			high := packer{v: v, to: Mem{Base: dst, Disp: 128 + 32*j}}
			for i := range 32 / v.lanes {
				h := v.reg()
				var first [2]VecVirtual
				for part := range 4 {
					at := 128*j + 32*part + v.lanes*i
					by := v.same(Mem{Base: a, Disp: at / 16 * 4})
					c := v.divided(Mem{Base: x, Disp: 4 * at}, by, nil, lo, hi)
					VPADDD(bias, c, c)
					upper := v.reg()
					VPSRLD(Imm(4), c, upper)
					v.and(nibble, c, c)
					if part == 0 {
						h = upper
					} else {
						VPSLLD(Imm(uint64(2*part)), upper, upper)
						v.or(upper, h, h)
					}
					if part < 2 {
						first[part] = c
						continue
					}
					VPSLLD(Imm(4), c, c)
					v.or(first[part-2], c, c)
					low[part-2].put(c)
				}
				high.put(h)
			}
		}
		ADDQ(U32(210), dst)
		ADDQ(U32(1024), x)
		ADDQ(Imm(64), a)
	})
	VZEROUPPER()
	RET()
}
