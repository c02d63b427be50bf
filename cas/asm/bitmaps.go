package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const maxGroups = 6 // as many as there are registers for

// ahead is how far on the processor is to fetch a base, the first time that it is read: by itself it does not
// go past a page.
const ahead = 2048

// vbmi2 is an instruction of AVX-512 VBMI2, which avo does not know.
func vbmi2(opcode string, zero bool, from Op, k, to Register) {
	i := &ir.Instruction{Opcode: opcode, Operands: []Op{from, k, to}, Inputs: []Op{from, k},
		Outputs: []Op{to}, ISA: []string{"AVX512_VBMI2"}}
	if zero {
		i.Suffixes = []string{"Z"}
	} else {
		i.Inputs = append(i.Inputs, to)
	}
	Instruction(i)
}

// ones makes the kernel that counts bits.
func ones() {
	TEXT("onesPOPCNT", NOSPLIT, "func(p *byte, blocks int) (n int)")
	Pragma("noescape")
	comment("onesPOPCNT counts the bits that are set in blocks times 64 bytes.")
	p, blocks := Load(Param("p"), GP64()), Load(Param("blocks"), GP64())
	sums := []Register{GP64(), GP64()}
	for _, r := range sums {
		XORQ(r, r)
	}
	Label("block")
	for i := range 8 {
		r := GP64()
		POPCNTQ(Mem{Base: p, Disp: 8 * i}, r)
		ADDQ(r, sums[i%2])
	}
	ADDQ(Imm(64), p)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	ADDQ(sums[1], sums[0])
	Store(sums[0], Return("n"))
	RET()
}

// bitmaps makes the kernels that take apart and put together what is not zero and where it is.
func bitmaps() {
	TEXT("spreadAVX512", NOSPLIT, "func(dst, bitmap, src *byte, blocks int) (used int)")
	Pragma("noescape")
	comment("spreadAVX512 sets blocks times 64 bytes of dst to the next ones of src where bitmap has bits set, to zeros elsewhere.")
	dst, bitmap, src := Load(Param("dst"), GP64()), Load(Param("bitmap"), GP64()), Load(Param("src"), GP64())
	blocks := Load(Param("blocks"), GP64())
	Label("block")
	bits, k, x := GP64(), K(), ZMM()
	MOVQ(Mem{Base: bitmap}, bits)
	KMOVQ(bits, k)
	vbmi2("VPEXPANDB", true, Mem{Base: src}, k, x)
	VMOVDQU8(x, Mem{Base: dst})
	POPCNTQ(bits, bits)
	ADDQ(bits, src)
	ADDQ(Imm(8), bitmap)
	ADDQ(Imm(64), dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	SUBQ(Load(Param("src"), GP64()), src)
	Store(src, Return("used"))
	VZEROUPPER()
	RET()

	TEXT("packAVX512", NOSPLIT, "func(dst, bitmap, src *byte, blocks int) (put int)")
	Pragma("noescape")
	comment("packAVX512 undoes spreadAVX512, and makes the bitmap; it writes up to 63 bytes past what it puts.")
	dst, bitmap, src = Load(Param("dst"), GP64()), Load(Param("bitmap"), GP64()), Load(Param("src"), GP64())
	blocks = Load(Param("blocks"), GP64())
	Label("block")
	bits, k, x = GP64(), K(), ZMM()
	VMOVDQU8(Mem{Base: src}, x)
	VPTESTMB(x, x, k)
	KMOVQ(k, bits)
	MOVQ(bits, Mem{Base: bitmap})
	vbmi2("VPCOMPRESSB", true, x, k, x)
	VMOVDQU8(x, Mem{Base: dst})
	POPCNTQ(bits, bits)
	ADDQ(bits, dst)
	ADDQ(Imm(8), bitmap)
	ADDQ(Imm(64), src)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	SUBQ(Load(Param("dst"), GP64()), dst)
	Store(dst, Return("put"))
	VZEROUPPER()
	RET()
}

func union() {
	TEXT("unionAVX512", NOSPLIT, "func(any, zero *byte, planes **byte, n, blocks int)")
	Pragma("noescape")
	comment("unionAVX512 is unionPortable for blocks times 64 bytes of n planes.")
	any, zero, planes := Load(Param("any"), GP64()), Load(Param("zero"), GP64()),
		Load(Param("planes"), GP64())
	n, blocks := Load(Param("n"), GP64()), Load(Param("blocks"), GP64())
	r := GP32()
	MOVL(U32(1), r)
	ones := ZMM()
	VPBROADCASTB(r, ones)
	at := GP64()
	XORQ(at, at)
	Label("block")
	x, k, i, p := ZMM(), K(), GP64(), GP64()
	VPXORD(x, x, x)
	MOVQ(n, i)
	Label("plane")
	MOVQ(Mem{Base: planes, Index: i, Scale: 8, Disp: -8}, p)
	VPORD(Mem{Base: p, Index: at, Scale: 1}, x, x)
	DECQ(i)
	JNZ(LabelRef("plane"))
	VPTESTNMB(x, x, k)
	VMOVDQU8(x, Mem{Base: any, Index: at, Scale: 1})
	VMOVDQU8_Z(ones, k, x)
	VMOVDQU8(x, Mem{Base: zero, Index: at, Scale: 1})
	ADDQ(Imm(64), at)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// groupOf makes bytes that say in which group each element is.
func groupOf(w int) {
	name := map[int]string{2: "groupOf2AVX512", 4: "groupOf4AVX512"}[w]
	TEXT(name, NOSPLIT, "func(dst, base *byte, blocks int, shift, top, last uint64, counts *int)")
	Pragma("noescape")
	comment(name+" is ofPortable and countPortable for blocks times 64 bytes of base, 2^15 at most; it sets counts to how many are of each group",
		"but the last of six.")
	dst, base, blocks := Load(Param("dst"), GP64()), Load(Param("base"), GP64()),
		Load(Param("blocks"), GP64())
	shift, top, last := Load(Param("shift"), GP64()), Load(Param("top"), GP64()), Load(Param("last"), GP64())
	right, tops, lasts, zero := XMM(), ZMM(), ZMM(), ZMM()
	INCQ(shift)
	MOVQ(shift, right)
	VPXORD(zero, zero, zero)
	if w == 2 {
		VPBROADCASTW(top.(GPVirtual).As32(), tops)
		VPBROADCASTW(last.(GPVirtual).As32(), lasts)
	} else {
		VPBROADCASTD(top.(GPVirtual).As32(), tops)
		VPBROADCASTD(last.(GPVirtual).As32(), lasts)
	}
	// Each element is counted in a field of its group, which a row of blocks does not fill.
	bits := map[int]int{2: 3, 4: 6}[w]
	units := make([]byte, 64)
	for g := range maxGroups - 1 {
		unit := uint64(1) << (bits * g)
		for b := range w {
			units[g*w+b] = byte(unit >> (8 * b))
		}
	}
	unit, fields, field := ZMM(), ZMM(), broadcast(1<<bits-1)
	if w == 2 {
		field = broadcast((1<<bits - 1) * 0x10001)
	}
	VMOVDQU8(table(fmt.Sprintf("units%d", w), units), unit)
	var sums [maxGroups - 1]VecVirtual
	for g := range sums {
		sums[g] = ZMM()
		VPXORD(sums[g], sums[g], sums[g])
	}
	add, shiftRight := VPADDD, VPSRLD
	if w == 2 {
		add, shiftRight = VPADDW, VPSRLW
	}
	row, most := GP64(), GP64()
	MOVQ(U32(1<<bits-1), most)
	Label("row")
	MOVQ(blocks, row)
	CMPQ(row, most)
	CMOVQGT(most, row)
	SUBQ(row, blocks)
	VPXORD(fields, fields, fields)
	Label("block")
	x, one := ZMM(), ZMM()
	PREFETCHT0(Mem{Base: base, Disp: ahead})
	VMOVDQU8(Mem{Base: base}, x)
	if w == 2 {
		VPSLLW(Imm(1), x, x)
		VPSRLW(right, x, x)
		VPSUBUSW(x, tops, x)
		VPMINUW(lasts, x, x)
		VPMOVWB(x, Mem{Base: dst})
		VPERMW(unit, x, one)
		VPADDW(one, fields, fields)
	} else {
		VPSLLD(Imm(1), x, x)
		VPSRLD(right, x, x)
		VPSUBD(x, tops, x)
		VPMAXSD(zero, x, x)
		VPMINSD(lasts, x, x)
		VPMOVDB(x, Mem{Base: dst})
		VPERMD(unit, x, one)
		VPADDD(one, fields, fields)
	}
	ADDQ(Imm(64), base)
	ADDQ(Imm(uint64(64/w)), dst)
	DECQ(row)
	JNZ(LabelRef("block"))
	for g := range sums {
		n := ZMM()
		shiftRight(Imm(uint64(bits*g)), fields, n)
		VPANDD(field, n, n)
		add(n, sums[g], sums[g])
	}
	TESTQ(blocks, blocks)
	JNZ(LabelRef("row"))
	counts := Load(Param("counts"), GP64())
	ones := broadcast(0x10001)
	for g, n := range sums {
		if w == 2 {
			VPMADDWD(ones, n, n)
		}
		odd := ZMM()
		VPSRLQ(Imm(32), n, odd)
		VPADDD(odd, n, n)
		VPSLLQ(Imm(32), n, n)
		VPSRLQ(Imm(32), n, n)
		MOVQ(across(n), Mem{Base: counts, Disp: 8 * g})
	}
	VZEROUPPER()
	RET()
}

// grouping begins a kernel that goes by the groups of 64 elements at a time: each is called with the mask of
// one group's elements, and after the last the block ends.
func grouping(group, blocks, groups Register, begin func(), each func(g int, k, mask Register), end func()) {
	var numbers [maxGroups]VecVirtual
	for g := range numbers {
		r := GP32()
		MOVL(U32(g), r)
		numbers[g] = ZMM()
		VPBROADCASTB(r, numbers[g])
	}
	Label("block")
	begin()
	x := ZMM()
	VMOVDQU8(Mem{Base: group}, x)
	for g := range numbers {
		k, mask := K(), GP64()
		VPCMPEQB(numbers[g], x, k)
		KMOVQ(k, mask)
		each(g, k, mask)
		if g < maxGroups-1 {
			CMPQ(groups, Imm(uint64(g+1)))
			JE(LabelRef("end"))
		}
	}
	Label("end")
	end()
	ADDQ(Imm(64), group)
	DECQ(blocks)
	JNZ(LabelRef("block"))
}

func loadAll(from Register) (at [maxGroups]Register) {
	for g := range at {
		at[g] = GP64()
		MOVQ(Mem{Base: from, Disp: 8 * g}, at[g])
	}
	return at
}

func storeAll(at [maxGroups]Register) {
	to := Load(Param("at"), GP64())
	for g, r := range at {
		MOVQ(r, Mem{Base: to, Disp: 8 * g})
	}
}

func groups() {
	TEXT("countGroupsAVX512", NOSPLIT, "func(n *int, group *byte, blocks, groups int)")
	Pragma("noescape")
	comment("countGroupsAVX512 adds to n[g] how many of blocks times 64 elements are of group g.")
	counts := Load(Param("n"), GP64())
	group, blocks, groups := Load(Param("group"), GP64()), Load(Param("blocks"), GP64()),
		Load(Param("groups"), GP64())
	n := loadAll(counts)
	grouping(group, blocks, groups, func() {}, func(g int, _, mask Register) {
		POPCNTQ(mask, mask)
		ADDQ(mask, n[g])
	}, func() {})
	for g, n := range n {
		MOVQ(n, Mem{Base: counts, Disp: 8 * g})
	}
	VZEROUPPER()
	RET()

	TEXT("ungroupAVX512", NOSPLIT, "func(dst, src, group *byte, blocks, groups int, at *int)")
	Pragma("noescape")
	comment("ungroupAVX512 sets blocks times 64 bytes of dst, each to the next one of its group, of which the next is at src[at[g]]; at is",
		"set to what comes then.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	group, blocks, groups = Load(Param("group"), GP64()), Load(Param("blocks"), GP64()),
		Load(Param("groups"), GP64())
	next := loadAll(Load(Param("at"), GP64()))
	out := ZMM()
	grouping(group, blocks, groups, func() { VPXORD(out, out, out) }, func(g int, k, mask Register) {
		vbmi2("VPEXPANDB", false, Mem{Base: src, Index: next[g], Scale: 1}, k, out)
		POPCNTQ(mask, mask)
		ADDQ(mask, next[g])
	}, func() {
		VMOVDQU8(out, Mem{Base: dst})
		ADDQ(Imm(64), dst)
	})
	storeAll(next)
	VZEROUPPER()
	RET()

	TEXT("groupAVX512", NOSPLIT, "func(dst, src, group *byte, blocks, groups int, at *int)")
	Pragma("noescape")
	comment("groupAVX512 undoes ungroupAVX512; it writes up to 63 bytes past what it puts of each group.")
	dst, src = Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	group, blocks, groups = Load(Param("group"), GP64()), Load(Param("blocks"), GP64()),
		Load(Param("groups"), GP64())
	next = loadAll(Load(Param("at"), GP64()))
	in := ZMM()
	grouping(group, blocks, groups, func() {
		VMOVDQU8(Mem{Base: src}, in)
		ADDQ(Imm(64), src)
	}, func(g int, k, mask Register) {
		x := ZMM()
		vbmi2("VPCOMPRESSB", true, in, k, x)
		VMOVDQU8(x, Mem{Base: dst, Index: next[g], Scale: 1})
		POPCNTQ(mask, mask)
		ADDQ(mask, next[g])
	}, func() {})
	storeAll(next)
	VZEROUPPER()
	RET()
}
