// Generates the kernels of BLAKE3:
//
//	cd cas/blake3/asm && go run . -pkg blake3 \
//		-out ../compress_generated_amd64.s -stubs ../compress_generated_amd64.go
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

var zmm = []VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
	Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31}

// iv is the initial value of BLAKE3, which is SHA-256's.
var iv = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
	0x1f83d9ab, 0x5be0cd19}

// order is the permutation of the message's words between rounds.
var order = [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}

// columns and diagonals are the words of the state that quarter rounds take.
var (
	columns   = [4][4]int{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}
	diagonals = [4][4]int{{0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14}}
)

func main() {
	consts := GLOBL("iv", RODATA|NOPTR)
	for i, w := range iv {
		DATA(4*i, U32(w))
	}
	compress(consts)
	compressAVX2(consts)
	Generate()
}

// The message's words are in Z0 to Z15, the state's in Z16 to Z31, one lane for each of the sixteen inputs;
// all registers are in use.
func compress(consts Mem) {
	TEXT("compress16AVX512", NOSPLIT, "func(out *[16][32]byte, in *[16]*byte, blocks, base, start uint64)")
	Pragma("noescape")
	Doc("compress16AVX512 compresses sixteen inputs of some 64-byte blocks each, the longest of which has blocks of",
		"them, and writes the 32 bytes that each comes to. in is the begin of a lanes. base are the flags of all",
		"blocks, start those of the first besides. Of each input as many blocks are read.")
	length := GLOBL("blockLen", RODATA|NOPTR)
	DATA(0, U32(64))
	places := GLOBL("places", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(32*i))
	}

	out := Load(Param("out"), GP64())
	in := Load(Param("in"), GP64())
	blocks := Load(Param("blocks"), GP64())
	base := Load(Param("base"), GP64())
	flags := Load(Param("start"), GP64())
	ORQ(base, flags)
	// Of type lanes.
	sources := Mem{Base: in}
	counters, lengths, counts, ends := Mem{Base: in, Disp: 128}, Mem{Base: in, Disp: 192},
		Mem{Base: in, Disp: 256}, Mem{Base: in, Disp: 320}

	m, v := zmm[:16], append([]VecPhysical{}, zmm[16:]...)
	for i := range 8 {
		VPBROADCASTD(consts.Offset(4*i), v[i])
	}
	off, number := GP64(), GP64()
	XORQ(off, off)
	XORQ(number, number)
	Label("block")
	INCQ(number)
	for i := range 16 {
		at := GP64()
		MOVQ(sources.Offset(8*i), at)
		VMOVDQU32(Mem{Base: at, Index: off, Scale: 1}, m[i])
	}
	words, spare := transpose(m, v[15])
	v[15] = spare // for the rest of the block
	for i := range 4 {
		VPBROADCASTD(consts.Offset(4*i), v[8+i])
	}
	// K1: the lanes of which this is the last block.
	VPBROADCASTD(number.As32(), v[12])
	VPCMPEQD(counts, v[12], K1)
	VMOVDQU32(counters, v[12])
	VPXORD(v[13], v[13], v[13])
	VPBROADCASTD(length.Offset(0), v[14])
	VMOVDQU32(lengths, K1, v[14])
	VPBROADCASTD(flags.(GPVirtual).As32(), v[15])
	VPORD(ends, v[15], K1, v[15])
	for r := range 7 {
		if r > 0 {
			var next [16]VecPhysical
			for i, k := range order {
				next[i] = words[k]
			}
			words = next
		}
		quarter(v, words[:8], columns)
		quarter(v, words[8:], diagonals)
	}
	for i := range 8 {
		VPXORD(v[8+i], v[i], v[i])
	}
	KORTESTW(K1, K1)
	JZ(LabelRef("next"))
	VMOVDQU32(places, m[0])
	for i := range 8 {
		KMOVW(K1, K2)
		VPSCATTERDD(v[i], K2, Mem{Base: out, Index: m[0], Scale: 1, Disp: 4 * i})
	}
	Label("next")
	ADDQ(Imm(64), off)
	MOVQ(base, flags)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// quarter is four quarter rounds side by side: of the columns, or of the diagonals.
func quarter(v []VecPhysical, words []VecPhysical, of [4][4]int) {
	step := func(f func(a, b, c, d VecPhysical, i int)) {
		for i, q := range of {
			f(v[q[0]], v[q[1]], v[q[2]], v[q[3]], i)
		}
	}
	for half := range 2 {
		right := [2][2]uint64{{16, 12}, {8, 7}}[half]
		step(func(a, _, _, _ VecPhysical, i int) { VPADDD(words[2*i+half], a, a) }) // before b is known
		step(func(a, b, _, _ VecPhysical, _ int) { VPADDD(b, a, a) })
		step(func(a, _, _, d VecPhysical, _ int) { VPXORD(a, d, d) })
		step(func(_, _, _, d VecPhysical, _ int) { VPRORD(Imm(right[0]), d, d) })
		step(func(_, _, c, d VecPhysical, _ int) { VPADDD(d, c, c) })
		step(func(_, b, c, _ VecPhysical, _ int) { VPXORD(c, b, b) })
		step(func(_, b, _, _ VecPhysical, _ int) { VPRORD(Imm(right[1]), b, b) })
	}
}

// transpose turns sixteen rows of sixteen words: word w of all rows is in the register that it returns at w.
// It needs one register more, and says which one is left over.
func transpose(rows []VecPhysical, spare VecPhysical) (words [16]VecPhysical, left VecPhysical) {
	r := append([]VecPhysical{}, rows...)
	// pair sets r[i] and r[k] to what low and high make of them.
	pair := func(i, k int, low, high func(b, a, dst VecPhysical)) {
		low(r[k], r[i], spare)
		high(r[k], r[i], r[k])
		r[i], spare = spare, r[i]
	}
	for i := 0; i < 16; i += 2 {
		pair(i, i+1, func(b, a, d VecPhysical) { VPUNPCKLDQ(b, a, d) },
			func(b, a, d VecPhysical) { VPUNPCKHDQ(b, a, d) })
	}
	quads := func(b, a, d VecPhysical) { VPUNPCKLQDQ(b, a, d) }
	quadsHigh := func(b, a, d VecPhysical) { VPUNPCKHQDQ(b, a, d) }
	for i := 0; i < 16; i += 4 {
		pair(i, i+2, quads, quadsHigh)
		pair(i+1, i+3, quads, quadsHigh)
		r[i+1], r[i+2] = r[i+2], r[i+1] // by word
	}
	even := func(b, a, d VecPhysical) { VSHUFI32X4(Imm(0x88), b, a, d) }
	odd := func(b, a, d VecPhysical) { VSHUFI32X4(Imm(0xdd), b, a, d) }
	for j := range 4 {
		pair(j, 4+j, even, odd)
		pair(8+j, 12+j, even, odd)
		pair(j, 8+j, even, odd)    // words j and 8+j
		pair(4+j, 12+j, even, odd) // words 4+j and 12+j
		words[j], words[8+j], words[4+j], words[12+j] = r[j], r[8+j], r[4+j], r[12+j]
	}
	return words, spare
}
