package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

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

// groupingAVX2 makes the loop of a kernel that goes by the groups of 32 elements at a time: each is called
// with the bytes of one group's elements set. It has done so many elements.
func groupingAVX2(done Register, begin func(), each func(g int, k VecVirtual), end func()) {
	blocks, groups := inMemory("blocks"), inMemory("groups") // there are no registers for all
	SHLQ(Imm(1), blocks)
	Label("block")
	begin()
	group := Load(Param("group"), GP64())
	x := loadYMM(Mem{Base: group, Index: done, Scale: 1})
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
	ADDQ(Imm(32), done)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
}

func groupsAVX2() {
	for _, w := range []int{2, 4} {
		groupOfAVX2(w)
	}
	countGroupsAVX2()

	groupOneAVX2()
	for planes := 2; planes <= 4; planes++ {
		groupPlanesAVX2(planes)
	}
	for planes := 1; planes <= 4; planes++ {
		ungroupPlanesAVX2(planes)
	}
}

// planesKernel begins a kernel of planes that are sorted alike: it finds out once for all where their bytes
// go. It returns where the planes of sorted bytes are, where in them the groups' next bytes are, and how far
// it is in the others.
func planesKernel(what string, planes int, doc string) (
	sorted []Register, next [maxGroups]Register, done Register) {
	name := fmt.Sprintf("%s%dAVX", what, planes)
	TEXT(name+"2", NOSPLIT, "func(dst, src **byte, group *byte, blocks, groups int, at *int)")
	Pragma("noescape")
	comment(fmt.Sprintf("%s2 is %sAVX512 for AVX2, of %d planes. %s", name, what, planes, doc))
	list := map[string]string{"group": "dst", "ungroup": "src"}[what]
	for i := range planes {
		r := Load(Param(list), GP64())
		MOVQ(Mem{Base: r, Disp: 8 * i}, r)
		sorted = append(sorted, r)
	}
	next = loadAll(Load(Param("at"), GP64()))
	done = GP64()
	XORQ(done, done)
	return sorted, next, done
}

// inMemory is where a parameter is: there are no registers for all.
func inMemory(param string) Mem {
	p, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// planeOf is where the next bytes are of a plane that is not sorted.
func planeOf(list string, i int, done Register) Mem {
	p := Load(Param(list), GP64())
	MOVQ(Mem{Base: p, Disp: 8 * i}, p)
	return Mem{Base: p, Index: done, Scale: 1}
}

// groupOneAVX2 brings the bytes of each group together, of eight elements at a time.
func groupOneAVX2() {
	dst, next, done := planesKernel("group", 1, "It writes up to 8 bytes past what it puts of each group.")
	shuffles := GP64()
	LEAQ(compress(), shuffles)
	var in [4]VecVirtual
	groupingAVX2(done, func() {
		at := planeOf("src", 0, done)
		for i := range in {
			in[i] = XMM()
			VMOVQ(at.Offset(8*i), in[i])
		}
	}, func(g int, k VecVirtual) {
		mask := GP32()
		VPMOVMSKB(k, mask)
		eights(mask, func(i int, m GPVirtual) {
			x := XMM()
			VPSHUFB(within(shuffles, m), in[i], x)
			VMOVQ(x, Mem{Base: dst[0], Index: next[g], Scale: 1})
			advance(next[g], m)
		})
	}, func() {})
	storeAll(next)
	RET()
}

// groupPlanesAVX2 is groupOneAVX2 for two planes in each vector, of 16 elements at a time: of several planes
// it is the stores that take time.
func groupPlanesAVX2(planes int) {
	dst, next, done := planesKernel("group", planes,
		"It writes up to 16 bytes past what it puts of each group.")
	shuffles := GP64()
	LEAQ(compress(), shuffles)
	var in [2][]VecVirtual // of pairs
	groupingAVX2(done, func() {
		for i := range planes {
			at := planeOf("src", i, done)
			for half := range in {
				from := at.Offset(16 * half)
				if i%2 == 0 {
					in[half] = append(in[half], YMM())
					VMOVDQU(from, in[half][i/2].AsX())
				} else {
					VINSERTI128(Imm(1), from, in[half][i/2], in[half][i/2])
				}
			}
		}
	}, func(g int, k VecVirtual) {
		mask := GP32()
		VPMOVMSKB(k, mask)
		for half := range in {
			order, n := compaction(shuffles, mask, half == 0)
			both := YMM()
			VINSERTI128(Imm(1), order, order.AsY(), both)
			for i, pair := range in[half] {
				x := YMM()
				VPSHUFB(both, pair, x)
				VMOVDQU(x.AsX(), Mem{Base: dst[2*i], Index: next[g], Scale: 1})
				if 2*i+1 < planes {
					VEXTRACTI128(Imm(1), x, Mem{Base: dst[2*i+1], Index: next[g], Scale: 1})
				}
			}
			ADDQ(n.As64(), next[g])
		}
	}, func() {})
	storeAll(next)
	RET()
}

// compaction is the order of 16 bytes in which those that the lowest bits of mask select come first, and how
// many these are. It shifts the mask, by those 16 bits if more of it are to be used.
func compaction(shuffles Register, mask GPVirtual, again bool) (order VecVirtual, n GPVirtual) {
	lower, upper := GP32(), GP32()
	MOVBLZX(mask.As8(), lower)
	SHRL(Imm(8), mask)
	MOVBLZX(mask.As8(), upper)
	if again {
		SHRL(Imm(8), mask)
	}
	order = XMM()
	VMOVQ(within(shuffles, lower), order)
	VMOVHPS(within(shuffles, upper), order, order)
	VPOR(constant(0, 0, 0x08080808, 0x08080808), order, order)
	POPCNTL(lower, lower)
	POPCNTL(upper, upper)
	ADDL(lower, upper)
	SHLL(Imm(4), lower)
	VPSHUFB(Mem{Base: shuffles, Index: lower.As64(), Scale: 1, Disp: closeGap}, order, order)
	return order, upper
}

// closeGap is where the second half of compress begins.
const closeGap = 256 * 8

// compress has orders of bytes: for each mask of 8 lanes those that are set, then for each n up to 8 the
// first n, and the upper 8 of 16 behind them.
func compress() Mem {
	return tableOf("compress", func() []byte {
		p := slices.Repeat([]byte{0x80}, closeGap+9*16)
		for mask := range 256 {
			k := 0
			for i := range 8 {
				if mask>>i&1 != 0 {
					p[8*mask+k] = byte(i)
					k++
				}
			}
		}
		for n := range 9 {
			for i := range n + 8 {
				p[closeGap+16*n+i] = byte(i)
				if i >= n {
					p[closeGap+16*n+i] = byte(8 + i - n)
				}
			}
		}
		return p
	})
}

// ungroupPlanesAVX2 counts how many elements of a group come before each, in 16 at a time.
func ungroupPlanesAVX2(planes int) {
	src, next, done := planesKernel("ungroup", planes,
		"It reads up to 16 bytes past what it takes of each group.")
	below, ones := loadYMM(constant(0x80808080, 0x80808080, 0x07070707, 0x07070707)), YMM()
	VPCMPEQD(ones, ones, ones)
	out := make([]VecVirtual, planes)
	for i := range out {
		out[i] = YMM()
	}
	groupingAVX2(done, func() {
		for _, x := range out {
			VPXOR(x, x, x)
		}
	}, func(g int, k VecVirtual) {
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
		POPCNTL(half, half)
		ADDQ(next[g], half.As64())
		for i, p := range src {
			x := YMM()
			VBROADCASTI128(Mem{Base: p, Index: half.As64(), Scale: 1}, x)
			VINSERTI128(Imm(0), Mem{Base: p, Index: next[g], Scale: 1}, x, x)
			VPSHUFB(rank, x, x)
			VPOR(x, out[i], out[i])
		}
		advance(next[g], mask)
	}, func() {
		for i, x := range out {
			VMOVDQU(x, planeOf("dst", i, done))
		}
	})
	storeAll(next)
	RET()
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
