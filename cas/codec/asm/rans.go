package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	probBits = 12
	probs    = 1 << probBits
	minState = 1 << 15
	lanes    = 16 // of a vector
)

func broadcast(v uint32) VecVirtual {
	r, x := GP32(), ZMM()
	MOVL(U32(v), r)
	VPBROADCASTD(r, x)
	return x
}

func gather(table Register, at VecVirtual) VecVirtual {
	x := ZMM()
	KXNORW(K7, K7, K7) // of its own, and so not taken for one whose value matters
	VPXORD(x, x, x)    // what was there is not waited for
	VPGATHERDD(Mem{Base: table, Index: at, Scale: 4}, K7, x)
	return x
}

func ransTable() {
	TEXT("tableAVX512", NOSPLIT, "func(t *uint32, f *uint16)")
	Pragma("noescape")
	Doc("tableAVX512 is tablePortable; it writes up to 15 entries past the end.")
	t, f := Load(Param("t"), GP64()), Load(Param("f"), GP64())
	iota := GLOBL("places", RODATA|NOPTR)
	for i := range lanes {
		DATA(4*i, U32(i<<probBits))
	}
	first, step := ZMM(), broadcast(lanes<<probBits)
	VMOVDQU32(iota, first)
	value, n, e := GP64(), GP64(), GP32()
	XORQ(value, value)
	Label("value")
	MOVWQZX(Mem{Base: f, Index: value, Scale: 2}, n)
	TESTQ(n, n)
	JZ(LabelRef("next"))
	MOVL(value.As32(), e)
	SHLL(Imm(24), e)
	ORL(n.As32(), e)
	x := ZMM()
	VPBROADCASTD(e, x)
	VPADDD(first, x, x)
	at := GP64()
	MOVQ(t, at)
	LEAQ(Mem{Base: t, Index: n, Scale: 4}, t)
	Label("fill")
	VMOVDQU32(x, Mem{Base: at})
	VPADDD(step, x, x)
	ADDQ(Imm(4*lanes), at)
	CMPQ(at, t)
	JCS(LabelRef("fill"))
	Label("next")
	INCQ(value)
	CMPQ(value, U32(256))
	JNE(LabelRef("value"))
	VZEROUPPER()
	RET()
}

func ransDecode(vectors int) {
	name := fmt.Sprintf("decode%dAVX512", vectors*lanes)
	TEXT(name, NOSPLIT, "func(dst *byte, steps int, t *uint32, x *uint32, words *byte, n int) (left, used int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s decodes so many steps of %d bytes each, or fewer: it begins none when of the n bytes at words less", name, vectors*lanes),
		fmt.Sprintf("than %d are left, which is what a step reads, and uses at most.", 2*vectors*lanes))
	dst, steps := Load(Param("dst"), GP64()), Load(Param("steps"), GP64())
	t, states := Load(Param("t"), GP64()), Load(Param("x"), GP64())
	words, last := Load(Param("words"), GP64()), Load(Param("n"), GP64())
	LEAQ(Mem{Base: words, Index: last, Scale: 1, Disp: -2 * vectors * lanes}, last)
	low, least := broadcast(probs-1), broadcast(minState)
	x := make([]VecVirtual, vectors)
	for i := range x {
		x[i] = ZMM()
		VMOVDQU32(Mem{Base: states, Disp: 4 * lanes * i}, x[i])
	}
	Label("step")
	CMPQ(words, last)
	JHI(LabelRef("done"))
	TESTQ(steps, steps)
	JZ(LabelRef("done"))
	e := make([]VecVirtual, vectors)
	for i := range x {
		at := ZMM()
		VPANDD(low, x[i], at)
		e[i] = gather(t, at)
	}
	for i := range x {
		f, past := ZMM(), ZMM()
		VPANDD(low, e[i], f)
		VPSRLD(Imm(probBits), x[i], x[i])
		VPMULLD(f, x[i], x[i])
		VPSRLD(Imm(probBits), e[i], past)
		VPANDD(low, past, past)
		VPADDD(past, x[i], x[i])
		VPSRLD(Imm(24), e[i], e[i])
		VPMOVDB(e[i], Mem{Base: dst, Disp: lanes * i})
	}
	for i := range x {
		k, n, w := K(), GP32(), ZMM()
		VPCMPUD(Imm(1), least, x[i], k) // less
		KMOVW(k, n)
		VPMOVZXWD(Mem{Base: words}, w)
		VPEXPANDD_Z(w, k, w)
		VPSLLD(Imm(16), x[i], k, x[i])
		VPORD(w, x[i], x[i])
		POPCNTL(n, n)
		LEAQ(Mem{Base: words, Index: n.As64(), Scale: 2}, words)
	}
	ADDQ(Imm(uint64(vectors*lanes)), dst)
	DECQ(steps)
	JMP(LabelRef("step"))
	Label("done")
	for i := range x {
		VMOVDQU32(x[i], Mem{Base: states, Disp: 4 * lanes * i})
	}
	Store(steps, Return("left"))
	SUBQ(Load(Param("words"), GP64()), words)
	Store(words, Return("used"))
	VZEROUPPER()
	RET()
}

func ransEncode(vectors int) {
	name := fmt.Sprintf("encode%dAVX512", vectors*lanes)
	TEXT(name, NOSPLIT, "func(last, src *byte, steps int, rcp, rest, x *uint32) (put int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s codes steps times %d bytes, of which the last is at src, and puts words up to the byte at last, so many bytes.", name, vectors*lanes))
	at, src := Load(Param("last"), GP64()), Load(Param("src"), GP64())
	steps, states := Load(Param("steps"), GP64()), Load(Param("x"), GP64())
	rcps, rests := Load(Param("rcp"), GP64()), Load(Param("rest"), GP64())
	INCQ(at)
	INCQ(src)
	low, all, biases := broadcast(probs-1), broadcast(probs), broadcast(2*probs-1)
	odd, ones := K(), GP64()
	MOVQ(U64(0xaaaa), ones)
	KMOVW(ones.As32(), odd)
	MOVQ(I64(-1), ones)
	x := make([]VecVirtual, vectors)
	for i := range x {
		x[i] = ZMM()
		VMOVDQU32(Mem{Base: states, Disp: 4 * lanes * i}, x[i])
	}
	Label("step")
	SUBQ(Imm(uint64(vectors*lanes)), src)
	for i := len(x) - 1; i >= 0; i-- {
		v := ZMM()
		VPMOVZXBD(Mem{Base: src, Disp: lanes * i}, v)
		rcp, rest := gather(rcps, v), gather(rests, v)
		f, most := ZMM(), ZMM()
		VPANDD(low, rest, f)
		VPSLLD(Imm(31-probBits), f, most)
		k, n := K(), GP32()
		VPCMPUD(Imm(5), most, x[i], k) // not less
		KMOVW(k, n)
		POPCNTL(n, n)
		w, words := ZMM(), YMM()
		VPCOMPRESSD_Z(x[i], k, w)
		VPMOVDW(w, words)
		ADDQ(n.As64(), n.As64())
		SUBQ(n.As64(), at)
		SHRQ(Imm(1), n.As64())
		m, some := GP64(), K()
		BZHIQ(n.As64(), ones, m)
		KMOVD(m.As32(), some)
		VMOVDQU16(words, some, Mem{Base: at})
		VPSRLD(Imm(16), x[i], k, x[i])

		q, qOdd, xOdd, rOdd := ZMM(), ZMM(), ZMM(), ZMM()
		VPMULUDQ(rcp, x[i], q)
		VPSRLQ(Imm(32), q, q)
		VPSRLQ(Imm(32), x[i], xOdd)
		VPSRLQ(Imm(32), rcp, rOdd)
		VPMULUDQ(rOdd, xOdd, qOdd)
		VMOVDQA32(qOdd, odd, q)
		shift, bias := ZMM(), ZMM()
		VPSRLD(Imm(25), rest, shift)
		VPSRLVD(shift, q, q)
		VPSUBD(f, all, f)
		VPMULLD(f, q, q)
		VPSRLD(Imm(probBits), rest, bias)
		VPANDD(biases, bias, bias)
		VPADDD(bias, x[i], x[i])
		VPADDD(q, x[i], x[i])
	}
	DECQ(steps)
	JNZ(LabelRef("step"))
	for i := range x {
		VMOVDQU32(x[i], Mem{Base: states, Disp: 4 * lanes * i})
	}
	put := Load(Param("last"), GP64())
	INCQ(put)
	SUBQ(at, put)
	Store(put, Return("put"))
	VZEROUPPER()
	RET()
}
