package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// quantKernels makes the kernels of package quant, those for AVX-512 and for AVX2 of the same text.
func quantKernels() {
	for _, v := range []vectors{{true, 16}, {false, 8}} {
		v.extremes(32)
		v.extremes(16)
		v.magnitude()
		v.predictK("Q4K", 144, 16)
		v.predictK("Q5K", 176, 48)
		v.predictQ6K()
		v.predictQ80()
		for _, divides := range []bool{true, false} {
			v.f8(divides, false)
			v.f8(divides, true)
		}
	}
	steady8()
}

// vectors are those of a level, of so many lanes of 4 bytes.
type vectors struct {
	wide  bool
	lanes int
}

// begin begins a function of that name at this level.
func (v vectors) begin(name, signature, doc string) {
	level := "AVX2"
	if v.wide {
		level = "AVX512"
	}
	TEXT(name+level, NOSPLIT, signature)
	Pragma("noescape")
	comment(name + level + " " + doc)
}

func (v vectors) reg() VecVirtual {
	if v.wide {
		return ZMM()
	}
	return YMM()
}

func (v vectors) load(m Mem) VecVirtual {
	x := v.reg()
	VMOVUPS(m, x)
	return x
}

// each is c in every lane: a register, of which there are enough for AVX-512, else memory. It is to be asked
// for before the loop.
func (v vectors) each(c uint32) Op {
	if v.wide {
		return broadcast(c)
	}
	return constant(c)
}

// same is a number of memory in every lane.
func (v vectors) same(m Mem) VecVirtual {
	x := v.reg()
	VBROADCASTSS(m, x)
	return x
}

func (v vectors) and(a Op, x, to VecVirtual) {
	if v.wide {
		VPANDD(a, x, to)
	} else {
		VPAND(a, x, to)
	}
}

func (v vectors) or(a Op, x, to VecVirtual) {
	if v.wide {
		VPORD(a, x, to)
	} else {
		VPOR(a, x, to)
	}
}

func (v vectors) xor(a Op, x, to VecVirtual) {
	if v.wide {
		VPXORD(a, x, to)
	} else {
		VPXOR(a, x, to)
	}
}

func (v vectors) zero() VecVirtual {
	x := v.reg()
	v.xor(x, x, x)
	return x
}

// extremes makes the kernel of the least and greatest numbers of parts of so many.
func (v vectors) extremes(size int) {
	v.begin(fmt.Sprintf("extremes%d", size), "func(min, max, x *float32, groups int) (top uint32)",
		fmt.Sprintf("sets as many numbers as a vector has of min and max, for each of groups, to the least and greatest "+
			"of %d of x each; top is the greatest of x as bits, twice each.", size))
	least, most, x := Load(Param("min"), GP64()), Load(Param("max"), GP64()), Load(Param("x"), GP64())
	groups := Load(Param("groups"), GP64())
	top := v.zero()
	nothing := v.zero()
	countdown("group", groups, func() {
		for _, how := range []struct {
			pick func(...Op)
			to   Register
		}{{VMINPS, least}, {VMAXPS, most}} {
			part := func(i int) VecVirtual {
				all := v.load(Mem{Base: x, Disp: 4 * size * i})
				for k := 0; k < size; k += v.lanes {
					m := Mem{Base: x, Disp: 4 * (size*i + k)}
					if how.to == most {
						twice := v.load(m)
						VPADDD(twice, twice, twice)
						VPMAXUD(twice, top, top)
					}
					if k > 0 {
						how.pick(m, all, all)
					}
				}
				return all
			}
			all := v.tree(v.lanes, 0, how.pick, part)
			VADDPS(nothing, all, all) // never -0
			VMOVUPS(all, Mem{Base: how.to})
		}
		ADDQ(U32(uint32(4*size*v.lanes)), x)
		ADDQ(Imm(uint64(4*v.lanes)), least)
		ADDQ(Imm(uint64(4*v.lanes)), most)
	})
	v.storeTop(top)
	VZEROUPPER()
	RET()
}

// tree makes one vector of n of part: of each the least, or greatest, of its lanes, in order.
func (v vectors) tree(n, from int, pick func(...Op), part func(i int) VecVirtual) VecVirtual {
	if n == 1 {
		return part(from)
	}
	a := v.tree(n/2, from, pick, part)
	b := v.tree(n/2, from+n/2, pick, part)
	lo := v.reg()
	switch {
	case n == 2:
		VUNPCKLPS(b, a, lo)
		VUNPCKHPS(b, a, a)
	case n == 4:
		VUNPCKLPD(b, a, lo)
		VUNPCKHPD(b, a, a)
	case !v.wide:
		VPERM2F128(Imm(0x20), b, a, lo)
		VPERM2F128(Imm(0x31), b, a, a)
	case n == 8:
		VSHUFF32X4(Imm(0x44), b, a, lo)
		VSHUFF32X4(Imm(0xee), b, a, a)
	default:
		VSHUFF32X4(Imm(0x88), b, a, lo)
		VSHUFF32X4(Imm(0xdd), b, a, a)
	}
	pick(a, lo, lo)
	return lo
}

// storeTop returns the greatest lane of top.
func (v vectors) storeTop(top VecVirtual) {
	if v.wide {
		half := YMM()
		VEXTRACTI64X4(Imm(1), top, half)
		VPMAXUD(half, top.AsY(), top.AsY())
	}
	quarter, other := XMM(), XMM()
	VEXTRACTI128(Imm(1), top.AsY(), quarter)
	VPMAXUD(quarter, top.AsX(), quarter)
	VPSHUFD(Imm(0x4e), quarter, other)
	VPMAXUD(other, quarter, quarter)
	VPSHUFD(Imm(0xb1), quarter, other)
	VPMAXUD(other, quarter, quarter)
	r := GP32()
	VMOVD(quarter, r)
	Store(r, Return("top"))
}

// steady8 makes the kernel of eight products, for either level.
func steady8() {
	v := vectors{lanes: 8}
	v.begin("steady8", "func(v *float32, by, lo, hi float32) (all uint64)",
		"is eight of v times by, each rounded to a whole number of at least lo and at most hi, lo of what is none.")
	p, c := Load(Param("v"), GP64()), v.reg()
	argument := func(name string) VecVirtual {
		addr, err := Param(name).Resolve()
		if err != nil {
			panic(err)
		}
		return v.same(addr.Addr)
	}
	VMULPS(Mem{Base: p}, argument("by"), c)
	VMAXPS(argument("lo"), c, c) // lo where c is no number
	VMINPS(argument("hi"), c, c)
	VCVTPS2DQ(c, c)
	upper, r := XMM(), GP64()
	VEXTRACTI128(Imm(1), c, upper)
	VPACKSSDW(upper, c.AsX(), upper)
	VPACKSSWB(upper, upper, upper)
	VMOVQ(upper, r)
	Store(r, Return("all"))
	VZEROUPPER()
	RET()
}

// magnitude makes the kernel of the greatest magnitude.
func (v vectors) magnitude() {
	v.begin("magnitude", "func(x *float32, blocks int) (top uint32)",
		"is the greatest of blocks of 64 numbers of x, as bits, twice each.")
	x, blocks := Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	tops := []VecVirtual{v.zero(), v.zero(), v.zero(), v.zero()}
	countdown("block", blocks, func() {
		for i := range 64 / v.lanes {
			twice := v.load(Mem{Base: x, Disp: 4 * v.lanes * i})
			VPADDD(twice, twice, twice)
			VPMAXUD(twice, tops[i%4], tops[i%4])
		}
		ADDQ(U32(256), x)
	})
	for _, t := range tops[1:] {
		VPMAXUD(t, tops[0], tops[0])
	}
	v.storeTop(tops[0])
	VZEROUPPER()
	RET()
}

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

// numbers sets lanes of x that are no number to 0.
func (v vectors) numbers(x VecVirtual) {
	const ordered = 7
	if v.wide {
		k := K()
		VCMPPS(Imm(ordered), x, x, k)
		VMOVDQA32_Z(x, k, x)
		return
	}
	m := YMM()
	VCMPPS(Imm(ordered), x, x, m)
	VPAND(m, x, x)
}

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
