package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

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
