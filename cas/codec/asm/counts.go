package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func counts() {
	TEXT("sumAVX512", NOSPLIT, "func(c *uint32, t *uint16, shift uint64, set *uint64)")
	Pragma("noescape")
	Doc("sumAVX512 is sumPortable.")
	c, t := Load(Param("c"), GP64()), Load(Param("t"), GP64())
	by, set := XMM(), Load(Param("set"), GP64())
	MOVQ(Load(Param("shift"), GP64()), by)
	left := GP64()
	MOVQ(U64(256/lanes), left)
	Label("values")
	sum, x, k := ZMM(), ZMM(), K()
	VPMOVZXWD(Mem{Base: t}, sum)
	for i := 1; i < 8; i++ {
		VPMOVZXWD(Mem{Base: t, Disp: 2 * 256 * i}, x)
		VPADDD(x, sum, sum)
	}
	VPTESTMD(sum, sum, k)
	KMOVW(k, Mem{Base: set})
	VPSLLD(by, sum, sum)
	VMOVDQU32(sum, Mem{Base: c})
	ADDQ(Imm(4*lanes), c)
	ADDQ(Imm(2*lanes), t)
	ADDQ(Imm(lanes/8), set)
	DECQ(left)
	JNZ(LabelRef("values"))
	VZEROUPPER()
	RET()

	TEXT("holdsAVX512", NOSPLIT, "func(set *uint64, p *byte, lines int) (left int)")
	Pragma("noescape")
	Doc("holdsAVX512 returns how many of the lines of 64 bytes are left where the first has a value that set lacks.")
	s, p, lines := Load(Param("set"), GP64()), Load(Param("p"), GP64()), Load(Param("lines"), GP64())
	in, ones, five, r := ZMM(), ZMM(), ZMM(), GP64()
	VBROADCASTI64X4(Mem{Base: s}, in)
	MOVQ(U64(0x8040201008040201), r)
	VPBROADCASTQ(r, ones)
	MOVQ(U64(0x1f1f1f1f1f1f1f1f), r)
	VPBROADCASTQ(r, five)
	Label("line")
	v, at, bit, lacks := ZMM(), ZMM(), ZMM(), K()
	VMOVDQU8(Mem{Base: p}, v)
	VPSRLW(Imm(3), v, at)
	VPANDD(five, at, at)
	VPERMB(in, at, at)
	VPERMB(ones, v, bit) // of the number of which the lowest 6 bits count, and these modulo 8
	VPTESTNMB(bit, at, lacks)
	KORTESTQ(lacks, lacks)
	JNZ(LabelRef("done"))
	ADDQ(Imm(64), p)
	DECQ(lines)
	JNZ(LabelRef("line"))
	Label("done")
	Store(lines, Return("left"))
	VZEROUPPER()
	RET()
}
