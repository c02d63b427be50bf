package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

var ymm = []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}

// narrow are the registers of compress16AVX2, and what it has in memory: all registers hold the state of
// eight lanes.
type narrow struct {
	v         [16]VecPhysical
	words     Mem // the message's, 32 bytes each; results in the end
	spill     Mem
	spilled   int // which of v is there; none: -1
	by16, by8 Mem
}

// compressAVX2 is compress for AVX2: eight lanes, then the other eight.
func compressAVX2(consts Mem) {
	TEXT("compress16AVX2", 0, "func(out *[16][32]byte, in *[16]*byte, blocks, base, start uint64)")
	Pragma("noescape")
	Doc("compress16AVX2 is compress16AVX512 for AVX2.")
	frame := GP64()
	LEAQ(AllocLocal(17*32+32), frame)
	ADDQ(Imm(31), frame)
	ANDQ(I32(-32), frame)
	s := narrow{words: Mem{Base: frame}, spill: Mem{Base: frame, Disp: 16 * 32}, spilled: -1,
		by16: rotation("by16", 2), by8: rotation("by8", 1)}
	copy(s.v[:], ymm)
	length := GLOBL("blockLens", RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(64))
	}

	out, sources := Load(Param("out"), GP64()), Load(Param("in"), GP64())
	fields, halves := GP64(), GP64() // of type lanes, from the eight lanes at hand on
	MOVQ(sources, fields)
	MOVQ(U32(2), halves)
	counters, lengths, counts, ends := Mem{Base: fields, Disp: 128}, Mem{Base: fields, Disp: 192},
		Mem{Base: fields, Disp: 256}, Mem{Base: fields, Disp: 320}
	off, number, flags, left, last := GP64(), GP64(), GP64(), GP64(), GP32()

	Label("half")
	v := &s.v
	VMOVDQU(counts, v[0])
	VPTEST(v[0], v[0])
	JZ(LabelRef("over"))
	for i := range 8 {
		VPBROADCASTD(consts.Offset(4*i), v[i])
	}
	XORQ(off, off)
	XORQ(number, number)
	Load(Param("base"), flags)
	ORQ(inMemory("start"), flags)
	Load(Param("blocks"), left)
	Label("block")
	INCQ(number)
	VMOVDQA(v[7], s.spill)
	for half := range 2 {
		for i := range 8 {
			at := GP64()
			MOVQ(Mem{Base: sources, Disp: 8 * i}, at)
			VMOVDQU(Mem{Base: at, Index: off, Scale: 1, Disp: 32 * half}, v[8+i])
		}
		for i, word := range transposeEight(v[8:16], v[7]) {
			VMOVDQA(word, s.words.Offset(32*(8*half+i)))
		}
	}
	VMOVDQA(s.spill, v[7])
	// Of the lanes of which this is the last block all bits are set.
	VMOVD(number.As32(), v[12].AsX())
	VPBROADCASTD(v[12].AsX(), v[12])
	VPCMPEQD(counts, v[12], v[12])
	VMOVMSKPS(v[12], last)
	VMOVDQU(length, v[14])
	VPBLENDVB(v[12], lengths, v[14], v[14])
	VPAND(ends, v[12], v[13])
	VMOVD(flags.As32(), v[15].AsX())
	VPBROADCASTD(v[15].AsX(), v[15])
	VPOR(v[13], v[15], v[15])
	VMOVDQU(counters, v[12])
	VPXOR(v[13], v[13], v[13])
	for i := range 4 {
		VPBROADCASTD(consts.Offset(4*i), v[8+i])
	}
	words := [16]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	for r := range 7 {
		if r > 0 {
			var next [16]int
			for i, k := range order {
				next[i] = words[k]
			}
			words = next
		}
		s.quarter(words[:8], columns)
		s.quarter(words[8:], diagonals)
	}
	for i := range 8 {
		VPXOR(s.op(8+i), v[i], v[i])
	}
	TESTL(last, last)
	JZ(LabelRef("next"))
	for i := range 8 {
		VMOVDQA(v[i], s.words.Offset(32*i))
	}
	Label("lane")
	lane, row, r := GP64(), GP64(), GP32()
	BSFL(last, lane.As32())
	LEAL(Mem{Base: last.As64(), Disp: -1}, r)
	ANDL(r, last)
	MOVQ(lane, row)
	SHLQ(Imm(5), row)
	ADDQ(out, row)
	for i := range 8 {
		MOVL(Mem{Base: frame, Index: lane, Scale: 4, Disp: 32 * i}, r)
		MOVL(r, Mem{Base: row, Disp: 4 * i})
	}
	TESTL(last, last)
	JNZ(LabelRef("lane"))
	Label("next")
	ADDQ(Imm(64), off)
	Load(Param("base"), flags)
	DECQ(left)
	JNZ(LabelRef("block"))
	Label("over")
	ADDQ(Imm(64), sources)
	ADDQ(Imm(32), fields)
	ADDQ(U32(256), out)
	DECQ(halves)
	JNZ(LabelRef("half"))
	VZEROUPPER()
	RET()
}

// inMemory is where a parameter is.
func inMemory(param string) Mem {
	p, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// rotation is the order of bytes that turns words right by n bytes.
func rotation(name string, n int) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 32 {
		DATA(i, U8(i/4%4*4+(i+n)%4))
	}
	return m
}

// op is v[i], which may be spilled.
func (s *narrow) op(i int) Op {
	if i == s.spilled {
		return s.spill
	}
	return s.v[i]
}

// quarter is four quarter rounds side by side. While words are rotated by bits one of the state's gives them
// its register.
func (s *narrow) quarter(words []int, of [4][4]int) {
	step := func(f func(a, b, c, d VecPhysical, i int)) {
		for i, q := range of {
			f(s.v[q[0]], s.v[q[1]], s.v[q[2]], s.v[q[3]], i)
		}
	}
	for half := range 2 {
		right := [2]uint64{12, 7}[half]
		bytes := [2]Mem{s.by16, s.by8}[half]
		step(func(a, _, _, _ VecPhysical, i int) { VPADDD(s.words.Offset(32*words[2*i+half]), a, a) })
		step(func(a, b, _, _ VecPhysical, _ int) { VPADDD(b, a, a) })
		step(func(a, _, _, d VecPhysical, _ int) { VPXOR(a, d, d) })
		step(func(_, _, _, d VecPhysical, _ int) { VPSHUFB(bytes, d, d) })
		step(func(_, _, c, d VecPhysical, i int) { VPADDD(s.op(of[i][2]), d, c) })
		step(func(_, b, c, _ VecPhysical, _ int) { VPXOR(c, b, b) })
		s.spilled = of[3][2] // what is needed last
		spare := s.v[s.spilled]
		VMOVDQA(spare, s.spill)
		step(func(_, b, _, _ VecPhysical, _ int) {
			VPSRLD(Imm(right), b, spare)
			VPSLLD(Imm(32-right), b, b)
			VPOR(spare, b, b)
		})
	}
}

// transposeEight is transpose of eight rows of eight words.
func transposeEight(rows []VecPhysical, spare VecPhysical) (words [8]VecPhysical) {
	r := append([]VecPhysical{}, rows...)
	pair := func(i, k int, low, high func(b, a, dst VecPhysical)) {
		low(r[k], r[i], spare)
		high(r[k], r[i], r[k])
		r[i], spare = spare, r[i]
	}
	for i := 0; i < 8; i += 2 {
		pair(i, i+1, func(b, a, d VecPhysical) { VPUNPCKLDQ(b, a, d) },
			func(b, a, d VecPhysical) { VPUNPCKHDQ(b, a, d) })
	}
	for i := 0; i < 8; i += 4 {
		for k := range 2 {
			pair(i+k, i+k+2, func(b, a, d VecPhysical) { VPUNPCKLQDQ(b, a, d) },
				func(b, a, d VecPhysical) { VPUNPCKHQDQ(b, a, d) })
		}
		r[i+1], r[i+2] = r[i+2], r[i+1] // by word
	}
	for i := range 4 {
		pair(i, 4+i, func(b, a, d VecPhysical) { VPERM2I128(Imm(0x20), b, a, d) },
			func(b, a, d VecPhysical) { VPERM2I128(Imm(0x31), b, a, d) })
	}
	copy(words[:], r)
	return words
}
