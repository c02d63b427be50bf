package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// compressBytes brings the bytes of the lanes that are set to the front.
func compressBytes() Mem {
	return shuffle("compressBytes", 8, func(mask int, to []byte) {
		k := 0
		for i := range 8 {
			if mask>>i&1 != 0 {
				to[k] = byte(i)
				k++
			}
		}
	})
}

// expandBytes brings the next bytes to the lanes that are set.
func expandBytes() Mem {
	return shuffle("expandBytes", 8, func(mask int, to []byte) {
		k := byte(0)
		for i := range 8 {
			if mask>>i&1 != 0 {
				to[i] = k
				k++
			}
		}
	})
}

// eights calls f with each byte of a mask of 32 bits. It shifts the mask.
func eights(mask GPVirtual, f func(i int, m GPVirtual)) {
	for i := range 4 {
		m := mask
		if i < 3 {
			m = GP32()
			MOVBLZX(mask.As8(), m)
			SHRL(Imm(8), mask)
		}
		f(i, m)
	}
}

// advance moves p by as many bytes as bits are set in m.
func advance(p Register, m GPVirtual) {
	POPCNTL(m, m)
	ADDQ(m.As64(), p)
}

// within is the vector of bytes that m selects in a table of shuffles.
func within(shuffles Register, m GPVirtual) Mem {
	return Mem{Base: shuffles, Index: m.As64(), Scale: 8}
}

// groupingAVX2 begins a kernel that goes by the groups of 32 elements at a time: each is called with the
// bytes of one group's elements set.
func groupingAVX2(
	group, blocks, groups Register, begin func(), each func(g int, k VecVirtual), end func(),
) {
	SHLQ(Imm(1), blocks)
	Label("block")
	begin()
	x := loadYMM(Mem{Base: group})
	for g := range maxGroups {
		k := YMM()
		VPCMPEQB(constant(uint32(g)*0x01010101), x, k)
		each(g, k)
		if g < maxGroups-1 {
			CMPQ(groups, Imm(uint64(g+1)))
			JE(LabelRef("end"))
		}
	}
	Label("end")
	end()
	ADDQ(Imm(32), group)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
}

func groupsAVX2() {
	for _, w := range []int{2, 4} {
		groupOfAVX2(w)
	}
	countGroupsAVX2()

	TEXT("groupAVX2", NOSPLIT, "func(dst, src, group *byte, blocks, groups int, at *int)")
	Pragma("noescape")
	comment("groupAVX2 is groupAVX512 for AVX2. It writes up to 8 bytes past what it puts of each group.")
	src, group := Load(Param("src"), GP64()), Load(Param("group"), GP64())
	blocks, groups := Load(Param("blocks"), GP64()), Load(Param("groups"), GP64())
	next, compress := nextOf("dst"), GP64()
	LEAQ(compressBytes(), compress)
	var in [4]VecVirtual
	groupingAVX2(group, blocks, groups, func() {
		for i := range in {
			in[i] = XMM()
			VMOVQ(Mem{Base: src, Disp: 8 * i}, in[i])
		}
		ADDQ(Imm(32), src)
	}, func(g int, k VecVirtual) {
		mask := GP32()
		VPMOVMSKB(k, mask)
		eights(mask, func(i int, m GPVirtual) {
			x := XMM()
			VPSHUFB(within(compress, m), in[i], x)
			VMOVQ(x, Mem{Base: next[g]})
			advance(next[g], m)
		})
	}, func() {})
	storeNext(next, "dst")
	RET()

	ungroupAVX2()
}

// ungroupAVX2 counts how many elements of a group come before each, in 16 at a time.
func ungroupAVX2() {
	TEXT("ungroupAVX2", NOSPLIT, "func(dst, src, group *byte, blocks, groups int, at *int)")
	Pragma("noescape")
	comment("ungroupAVX2 is ungroupAVX512 for AVX2. It reads up to 16 bytes past what it takes of each group.")
	dst, group := Load(Param("dst"), GP64()), Load(Param("group"), GP64())
	blocks, groups := Load(Param("blocks"), GP64()), Load(Param("groups"), GP64())
	next := nextOf("src")
	below, ones, out := loadYMM(constant(0x80808080, 0x80808080, 0x07070707, 0x07070707)), YMM(), YMM()
	VPCMPEQD(ones, ones, ones)
	groupingAVX2(group, blocks, groups, func() { VPXOR(out, out, out) }, func(g int, k VecVirtual) {
		mask, half, rank, t := GP32(), GP32(), YMM(), YMM()
		VPMOVMSKB(k, mask)
		MOVWLZX(mask.As16(), half)
		VPSLLQ(Imm(8), k, t)
		VPADDB(k, t, rank) // what is set is less by one
		for _, n := range []uint64{16, 32} {
			VPSLLQ(Imm(n), rank, t)
			VPADDB(t, rank, rank)
		}
		VPSHUFB(below, rank, t)
		VPADDB(t, rank, rank)
		VPAND(k, rank, rank)
		VPXOR(ones, rank, rank)
		x := YMM()
		POPCNTL(half, half)
		VBROADCASTI128(Mem{Base: next[g], Index: half.As64(), Scale: 1}, x)
		VINSERTI128(Imm(0), Mem{Base: next[g]}, x, x)
		VPSHUFB(rank, x, x)
		VPOR(x, out, out)
		advance(next[g], mask)
	}, func() {
		VMOVDQU(out, Mem{Base: dst})
		ADDQ(Imm(32), dst)
	})
	storeNext(next, "src")
	RET()
}

// nextOf is where the next bytes of the groups are, in what a parameter names.
func nextOf(param string) [maxGroups]Register {
	next, p := loadAll(Load(Param("at"), GP64())), Load(Param(param), GP64())
	for _, r := range next {
		ADDQ(p, r)
	}
	return next
}

func storeNext(next [maxGroups]Register, param string) {
	p := Load(Param(param), GP64())
	for _, r := range next {
		SUBQ(p, r)
	}
	storeAll(next)
}

// groupOfAVX2 makes bytes that say in which group each element is. That no group is below the first is what
// packing with saturation sees to.
func groupOfAVX2(w int) {
	name := fmt.Sprintf("groupOf%dAVX2", w)
	TEXT(name, NOSPLIT, "func(dst, base *byte, blocks int, shift, top, last uint64)")
	Pragma("noescape")
	comment(name + " is ofPortable for blocks times 64 elements.")
	dst, base, blocks := Load(Param("dst"), GP64()), Load(Param("base"), GP64()),
		Load(Param("blocks"), GP64())
	by, top, last, exponent := XMM(), YMM(), YMM(), YMM()
	VMOVQ(Load(Param("shift"), GP64()), by)
	VMOVQ(Load(Param("top"), GP64()), top.AsX())
	VMOVQ(Load(Param("last"), GP64()), last.AsX())
	VPBROADCASTW(top.AsX(), top)
	VPBROADCASTB(last.AsX(), last)
	VPCMPEQD(exponent, exponent, exponent)
	shift := VPSRLD
	if w == 2 {
		shift = VPSRLW
	}
	shift(Imm(1), exponent, exponent)
	SHLQ(Imm(1), blocks)
	Label("block")
	var x []VecVirtual
	for i := range w {
		PREFETCHT0(Mem{Base: base, Disp: ahead + 32*i})
		v := YMM()
		VPAND(Mem{Base: base, Disp: 32 * i}, exponent, v)
		shift(by, v, v)
		if w == 4 && i%2 == 1 {
			VPACKUSDW(v, x[len(x)-1], x[len(x)-1])
		} else {
			x = append(x, v)
		}
	}
	for _, v := range x {
		VPSUBW(v, top, v)
	}
	VPACKUSWB(x[1], x[0], x[0])
	if w == 2 {
		VPERMQ(Imm(0xd8), x[0], x[0])
	} else {
		VPERMD(x[0], loadYMM(constant(0, 4, 1, 5, 2, 6, 3, 7)), x[0])
	}
	VPMINUB(last, x[0], x[0])
	VMOVDQU(x[0], Mem{Base: dst})
	ADDQ(Imm(uint64(32*w)), base)
	ADDQ(Imm(32), dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// countGroupsAVX2 counts in bytes, which a row of blocks does not fill.
func countGroupsAVX2() {
	TEXT("countGroupsAVX2", NOSPLIT, "func(n *int, group *byte, blocks int)")
	Pragma("noescape")
	comment("countGroupsAVX2 is countGroupsAVX512 for AVX2. It counts all groups that there can be.")
	group, blocks := Load(Param("group"), GP64()), Load(Param("blocks"), GP64())
	var rows, sums [maxGroups]VecVirtual
	for g := range sums {
		rows[g], sums[g] = YMM(), YMM()
		VPXOR(sums[g], sums[g], sums[g])
	}
	row, most := GP64(), GP64()
	MOVQ(U32(127), most)
	Label("row")
	MOVQ(blocks, row)
	CMPQ(row, most)
	CMOVQGT(most, row)
	SUBQ(row, blocks)
	for _, n := range rows {
		VPXOR(n, n, n)
	}
	Label("block")
	for i := range 2 {
		x := loadYMM(Mem{Base: group, Disp: 32 * i})
		for g, n := range rows {
			k := YMM()
			VPCMPEQB(constant(uint32(g)*0x01010101), x, k)
			VPSUBB(k, n, n)
		}
	}
	ADDQ(Imm(64), group)
	DECQ(row)
	JNZ(LabelRef("block"))
	zero := YMM()
	VPXOR(zero, zero, zero)
	for g, n := range rows {
		VPSADBW(zero, n, n)
		VPADDQ(n, sums[g], sums[g])
	}
	TESTQ(blocks, blocks)
	JNZ(LabelRef("row"))
	counts := Load(Param("n"), GP64())
	for g, n := range sums {
		ADDQ(acrossYMM(n), Mem{Base: counts, Disp: 8 * g})
	}
	VZEROUPPER()
	RET()
}
