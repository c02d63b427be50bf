package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func countsAVX2() {
	sumAVX2()
	holdsAVX2()
	logsAVX2()
	sharesAVX2()
	valuesAVX2()
}

func sumAVX2() {
	TEXT("sumAVX2", NOSPLIT, "func(c *uint32, t *uint16, shift uint64, set *uint64)")
	Pragma("noescape")
	comment("sumAVX2 is sumPortable.")
	c, t := Load(Param("c"), GP64()), Load(Param("t"), GP64())
	by, zero, set := XMM(), YMM(), Load(Param("set"), GP64())
	VMOVQ(Load(Param("shift"), GP64()), by)
	VPXOR(zero, zero, zero)
	left := GP64()
	MOVQ(U64(256/lanes8), left)
	Label("values")
	sum, none, r := YMM(), YMM(), GP32()
	VPMOVZXWD(Mem{Base: t}, sum)
	for i := 1; i < 8; i++ {
		x := YMM()
		VPMOVZXWD(Mem{Base: t, Disp: 2 * 256 * i}, x)
		VPADDD(x, sum, sum)
	}
	VPCMPEQD(zero, sum, none)
	VMOVMSKPS(none, r)
	NOTL(r)
	MOVB(r.As8(), Mem{Base: set})
	VPSLLD(by, sum, sum)
	VMOVDQU(sum, Mem{Base: c})
	ADDQ(Imm(4*lanes8), c)
	ADDQ(Imm(2*lanes8), t)
	INCQ(set)
	DECQ(left)
	JNZ(LabelRef("values"))
	VZEROUPPER()
	RET()
}

// holdsAVX2 finds the byte of the set that a value is in by two shuffles, of the lower and the upper half.
func holdsAVX2() {
	TEXT("holdsAVX2", NOSPLIT, "func(set *uint64, p *byte, lines int) (left int)")
	Pragma("noescape")
	comment("holdsAVX2 is holdsAVX512 for AVX2.")
	set, p, lines := Load(Param("set"), GP64()), Load(Param("p"), GP64()), Load(Param("lines"), GP64())
	lower, upper := YMM(), YMM()
	VBROADCASTI128(Mem{Base: set}, lower)
	VBROADCASTI128(Mem{Base: set, Disp: 16}, upper)
	ones, fifteen, seven := loadYMM(constant(0x08040201, 0x80402010)), loadYMM(constant(0x0f0f0f0f)),
		loadYMM(constant(0x07070707))
	Label("line")
	var in [2]VecVirtual
	for i := range in {
		v, at, a, b, bit := YMM(), YMM(), YMM(), YMM(), YMM()
		VMOVDQU(Mem{Base: p, Disp: 32 * i}, v)
		VPSRLW(Imm(3), v, at)
		VPAND(fifteen, at, at)
		VPSHUFB(at, lower, a)
		VPSHUFB(at, upper, b)
		VPBLENDVB(v, b, a, a)
		VPAND(seven, v, bit)
		VPSHUFB(bit, ones, bit)
		VPAND(bit, a, a)
		in[i] = YMM()
		VPCMPEQB(bit, a, in[i])
	}
	VPAND(in[0], in[1], in[0])
	r := GP32()
	VPMOVMSKB(in[0], r)
	CMPL(r, I8(-1))
	JNE(LabelRef("done"))
	ADDQ(Imm(64), p)
	DECQ(lines)
	JNZ(LabelRef("line"))
	Label("done")
	Store(lines, Return("left"))
	VZEROUPPER()
	RET()
}

// logsAVX2 takes the leading zeros from the exponent of the number in single precision. Without the bit below
// its highest it is not rounded up to the next power of two.
func logsAVX2() {
	TEXT("logsAVX2", NOSPLIT, "func(c *uint32) (sum uint64, used, total int)")
	Pragma("noescape")
	comment("logsAVX2 is logsPortable. Counts are below 2^31.")
	c, left := Load(Param("c"), GP64()), GP64()
	MOVQ(U64(256/lanes8), left)
	one, bias := loadYMM(constant(1<<16)), loadYMM(constant(127+31))
	sumEven, sumOdd, totals, useds := YMM(), YMM(), YMM(), YMM()
	for _, x := range []VecVirtual{sumEven, sumOdd, totals, useds} {
		VPXOR(x, x, x)
	}
	Label("counts")
	n, z, m, q, f := YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVDQU(Mem{Base: c}, n)
	VPSRLD(Imm(1), n, z)
	VPANDN(n, z, z)
	VCVTDQ2PS(z, z)
	VPSRLD(Imm(23), z, z)
	VPSUBD(z, bias, z)
	VPSLLVD(z, n, m)
	VPSLLD(Imm(1), m, m)
	VPSRLD(Imm(16), m, m)
	VPSUBD(m, one, q)
	VPMULLD(m, q, q)
	VPSRLD(Imm(16), q, q)
	VPMULLD(constant(10435), m, f)
	VPSRLD(Imm(16), f, f)
	linear, bits := loadYMM(constant(27713)), loadYMM(constant(31))
	VPSUBD(f, linear, f)
	VPMULLD(f, q, q)
	VPSRLD(Imm(16), q, q)
	VPSUBD(z, bits, z)
	VPSLLD(Imm(16), z, z)
	VPADDD(z, q, q)
	VPADDD(m, q, q)
	even, odd, nOdd := YMM(), YMM(), YMM()
	VPMULUDQ(n, q, even)
	VPADDQ(even, sumEven, sumEven)
	VPSRLQ(Imm(32), q, odd)
	VPSRLQ(Imm(32), n, nOdd)
	VPMULUDQ(odd, nOdd, odd)
	VPADDQ(odd, sumOdd, sumOdd)
	VPADDD(n, totals, totals)
	VPMINUD(constant(1), n, n)
	VPADDD(n, useds, useds)
	ADDQ(Imm(4*lanes8), c)
	DECQ(left)
	JNZ(LabelRef("counts"))
	VPADDQ(sumOdd, sumEven, sumEven)
	Store(acrossYMM(sumEven), Return("sum"))
	Store(acrossDwords(useds), Return("used"))
	Store(acrossDwords(totals), Return("total"))
	VZEROUPPER()
	RET()
}

func sharesAVX2() {
	TEXT("sharesAVX2", NOSPLIT, "func(f *uint16, c *uint32, scale float64) (sum, top uint64)")
	Pragma("noescape")
	comment("sharesAVX2 is sharesPortable. Counts are below 2^31.")
	f, c := Load(Param("f"), GP64()), Load(Param("c"), GP64())
	scale, half := YMM(), loadYMM(constant(0, 0x3fe00000))
	VBROADCASTSD(Load(Param("scale"), XMM()), scale)
	place, step, sum, top, zero := loadYMM(constant(255, 254, 253, 252, 251, 250, 249, 248)),
		loadYMM(constant(lanes8)), YMM(), YMM(), YMM()
	for _, x := range []VecVirtual{sum, top, zero} {
		VPXOR(x, x, x)
	}
	left := GP64()
	MOVQ(U64(256/lanes8), left)
	Label("values")
	var n [2]VecVirtual
	for i := range n {
		d := YMM()
		n[i] = XMM()
		VCVTDQ2PD(Mem{Base: c, Disp: 16 * i}, d)
		VMULPD(scale, d, d)
		VADDPD(half, d, d)
		VCVTTPD2DQY(d, n[i])
	}
	all, any := joined(n[:]), YMM()
	VPMINSD(constant(probs-1), all, all)
	VPMAXSD(constant(1), all, all)
	VPCMPGTD(zero, loadYMM(Mem{Base: c}), any)
	VPAND(any, all, all)
	VPADDD(all, sum, sum)
	upper, words := XMM(), XMM()
	VEXTRACTI128(Imm(1), all, upper)
	VPACKUSDW(upper, all.AsX(), words)
	VMOVDQU(words, Mem{Base: f})
	VPSLLD(Imm(8), all, all)
	VPOR(place, all, all)
	VPMAXUD(all, top, top)
	VPSUBD(step, place, place)
	ADDQ(Imm(4*lanes8), c)
	ADDQ(Imm(2*lanes8), f)
	DECQ(left)
	JNZ(LabelRef("values"))
	Store(acrossDwords(sum), Return("sum"))
	z, w, greatest := XMM(), XMM(), GP64()
	VEXTRACTI128(Imm(1), top, z)
	VPMAXUD(top.AsX(), z, z)
	VPSHUFD(Imm(0x4e), z, w)
	VPMAXUD(w, z, z)
	VPSHUFD(Imm(0xb1), z, w)
	VPMAXUD(w, z, z)
	VMOVD(z, greatest.As32())
	XORL(U32(255), greatest.As32())
	ANDL(U32(255), greatest.As32())
	Store(greatest, Return("top"))
	VZEROUPPER()
	RET()
}

func valuesAVX2() {
	TEXT("valuesAVX2", NOSPLIT, "func(set *uint64, f *uint16)")
	Pragma("noescape")
	comment("valuesAVX2 is valuesPortable.")
	set, f, zero := Load(Param("set"), GP64()), Load(Param("f"), GP64()), YMM()
	VPXOR(zero, zero, zero)
	for i := range 256 / 32 {
		x, y, r := YMM(), YMM(), GP32()
		VPCMPEQW(Mem{Base: f, Disp: 64 * i}, zero, x)
		VPCMPEQW(Mem{Base: f, Disp: 64*i + 32}, zero, y)
		VPACKSSWB(y, x, x)
		VPERMQ(Imm(0xd8), x, x)
		VPMOVMSKB(x, r)
		NOTL(r)
		MOVL(r, Mem{Base: set, Disp: 4 * i})
	}
	VZEROUPPER()
	RET()
}

// acrossYMM adds the 4 numbers of 8 bytes in x.
func acrossYMM(x VecVirtual) Register {
	upper := XMM()
	VEXTRACTI128(Imm(1), x, upper)
	VPADDQ(x.AsX(), upper, upper)
	r, s := GP64(), GP64()
	VMOVQ(upper, r)
	VPEXTRQ(Imm(1), upper, s)
	ADDQ(s, r)
	return r
}

// acrossDwords adds the 8 numbers of 4 bytes in x, whose sum has no more than 4 bytes.
func acrossDwords(x VecVirtual) Register {
	odd := YMM()
	VPSRLQ(Imm(32), x, odd)
	VPADDD(odd, x, x)
	VPSLLQ(Imm(32), x, x)
	VPSRLQ(Imm(32), x, x)
	return acrossYMM(x)
}
