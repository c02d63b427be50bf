package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// lanes8 are the states of a vector of AVX2.
const lanes8 = 8

var constants = map[string]Mem{}

// constant is a vector of 32 bytes in memory: v over and over.
func constant(v ...uint32) Mem {
	name := "dwords"
	for _, u := range v {
		name += fmt.Sprintf("_%x", u)
	}
	m, ok := constants[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i := range lanes8 {
			DATA(4*i, U32(v[i%len(v)]))
		}
		constants[name] = m
	}
	return m
}

// loadYMM is a vector of AVX2, out of memory.
func loadYMM(m Mem) VecVirtual {
	x := YMM()
	VMOVDQU(m, x)
	return x
}

var tables = map[string]Mem{}

// tableOf is the table of that name, which fill makes the first time.
func tableOf(name string, fill func() []byte) Mem {
	m, ok := tables[name]
	if !ok {
		m = table(name, fill())
		tables[name] = m
	}
	return m
}

// shuffle is a table of what PSHUFB needs for each mask of 8 lanes: of n bytes, 0x80 where nothing goes. The
// last can be read as 16 bytes too.
func shuffle(name string, n int, fill func(mask int, to []byte)) Mem {
	return tableOf(name, func() []byte {
		p := slices.Repeat([]byte{0x80}, 255*n+16)
		for mask := range 256 {
			fill(mask, p[mask*n:][:n])
		}
		return p
	})
}

// expandWords brings the next words to the lanes that are set.
func expandWords() Mem {
	return shuffle("expandWords", 16, func(mask int, to []byte) {
		k := byte(0)
		for i := range 8 {
			if mask>>i&1 != 0 {
				to[2*i], to[2*i+1] = 2*k, 2*k+1
				k++
			}
		}
	})
}

// compressWords brings the words of the lanes that are not set to the end.
func compressWords() Mem {
	return shuffle("compressWords", 16, func(mask int, to []byte) {
		k := 8
		for i := 7; i >= 0; i-- {
			if mask>>i&1 == 0 {
				k--
				to[2*k], to[2*k+1] = byte(2*i), byte(2*i+1)
			}
		}
	})
}

// decodeParams are those of all kernels that decode.
const decodeParams = "func(dst *byte, steps int, t *uint32, x *uint32, words *byte, n int, " +
	"raw *byte, rawStep int, out *byte, outStep int) (left, used int)"

// ransDecodeAVX2 loads the entries of the table one by one: gathers are slow on many processors, and where
// their microcode was mended.
func ransDecodeAVX2(vectors int) {
	name := fmt.Sprintf("decode%dAVX2", vectors*lanes8)
	TEXT(name, NOSPLIT, decodeParams)
	Pragma("noescape")
	comment(fmt.Sprintf("%s is decode%dAVX512 for AVX2.", name, vectors*lanes8))
	dst, steps := Load(Param("dst"), GP64()), Load(Param("steps"), GP64())
	t := Load(Param("t"), GP64())
	words, last := Load(Param("words"), GP64()), Load(Param("n"), GP64())
	LEAQ(Mem{Base: words, Index: last, Scale: 1, Disp: -2 * vectors * lanes8}, last)
	raw, out := Load(Param("raw"), GP64()), Load(Param("out"), GP64())
	expand := GP64()
	LEAQ(expandWords(), expand)
	at := AllocLocal(32 * vectors)
	low, least := loadYMM(constant(probs-1)), loadYMM(constant(minState))
	x := make([]VecVirtual, vectors)
	states := Load(Param("x"), GP64())
	for i := range x {
		x[i] = loadYMM(Mem{Base: states, Disp: 4 * lanes8 * i})
	}
	Label("step")
	CMPQ(words, last)
	JHI(LabelRef("done"))
	TESTQ(steps, steps)
	JZ(LabelRef("done"))
	for i := range max(1, vectors/2) {
		PREFETCHT0(Mem{Base: raw, Disp: 64 * i})
		PREFETCHT0(Mem{Base: out, Disp: 64 * i})
	}
	step := Load(Param("rawStep"), GP64())
	ADDQ(step, raw)
	step = Load(Param("outStep"), GP64())
	ADDQ(step, out)
	for i := range x {
		v := YMM()
		VPAND(low, x[i], v)
		VMOVDQU(v, at.Offset(32*i))
	}
	var bytes [4]VecVirtual // of four vectors, then of two, then of one
	for i := range x {
		e := loadEach(t, at.Offset(32*i), lanes8)
		f, past := YMM(), YMM()
		VPAND(low, e, f)
		VPSRLD(Imm(probBits), x[i], x[i])
		VPMULLD(f, x[i], x[i])
		VPSRLD(Imm(probBits), e, past)
		VPAND(low, past, past)
		VPADDD(past, x[i], x[i])
		VPSRLD(Imm(24), e, e)
		bytes[i%4] = e
		if i%2 == 1 {
			p := YMM()
			VPACKUSDW(e, bytes[i%4-1], p)
			bytes[i%4-1] = p
		}
		switch {
		case i%4 == 3:
			p := YMM()
			VPACKUSWB(bytes[2], bytes[0], p)
			VPERMD(p, loadYMM(constant(0, 4, 1, 5, 2, 6, 3, 7)), p)
			VMOVDQU(p, Mem{Base: dst, Disp: 32 * (i / 4)})
		case vectors == 2 && i == 1:
			p := YMM()
			VPACKUSWB(bytes[0], bytes[0], p)
			VPERMD(p, loadYMM(constant(0, 4, 1, 5, 0, 0, 0, 0)), p)
			VMOVDQU(p.AsX(), Mem{Base: dst})
		}
		k, mask, n, w, grown := YMM(), GP32(), GP32(), YMM(), YMM()
		VPCMPGTD(x[i], least, k)
		VMOVMSKPS(k, mask)
		POPCNTL(mask, n)
		SHLL(Imm(4), mask)
		VMOVDQU(Mem{Base: words}, w.AsX())
		VPSHUFB(Mem{Base: expand, Index: mask.As64(), Scale: 1}, w.AsX(), w.AsX())
		VPMOVZXWD(w.AsX(), w)
		VPSLLD(Imm(16), x[i], grown)
		VPOR(w, grown, grown)
		VPBLENDVB(k, grown, x[i], x[i])
		LEAQ(Mem{Base: words, Index: n.As64(), Scale: 2}, words)
	}
	ADDQ(Imm(uint64(vectors*lanes8)), dst)
	DECQ(steps)
	JMP(LabelRef("step"))
	Label("done")
	states = Load(Param("x"), GP64())
	for i := range x {
		VMOVDQU(x[i], Mem{Base: states, Disp: 4 * lanes8 * i})
	}
	Store(steps, Return("left"))
	SUBQ(Load(Param("words"), GP64()), words)
	Store(words, Return("used"))
	VZEROUPPER()
	RET()
}

// loadEach is a vector of the entries of t that 8 or 16 numbers of 4 bytes say.
func loadEach(t Register, at Mem, n int) VecVirtual {
	fours := make([]VecVirtual, n/4)
	for i := range n {
		r := GP32()
		MOVL(at.Offset(4*i), r)
		entry := Mem{Base: t, Index: r.As64(), Scale: 4}
		if i%4 == 0 {
			fours[i/4] = XMM()
			VMOVD(entry, fours[i/4])
		} else {
			VPINSRD(Imm(uint64(i%4)), entry, fours[i/4], fours[i/4])
		}
	}
	return joined(fours)
}

// joined makes one vector of vectors of 16 bytes: of 2 or 4.
func joined(x []VecVirtual) VecVirtual {
	y := make([]VecVirtual, len(x)/2)
	for i := range y {
		y[i] = YMM()
		VINSERTI128(Imm(1), x[2*i+1], x[2*i].AsY(), y[i])
	}
	if len(y) == 1 {
		return y[0]
	}
	z := ZMM()
	VINSERTI64X4(Imm(1), y[1], y[0].AsZ(), z)
	return z
}

// encodeParams are those of all kernels that encode with codes of 8 bytes.
const encodeParams = "func(last, src *byte, steps int, codes *uint64, x *uint32, out *byte, outStep int) (put int)"

func ransEncodeAVX2(vectors int) {
	name := fmt.Sprintf("encode%dAVX2", vectors*lanes8)
	TEXT(name, NOSPLIT, encodeParams)
	Pragma("noescape")
	comment(fmt.Sprintf("%s is encode%dAVX512 for AVX2. It writes up to 16 bytes ahead of what it puts.", name, vectors*lanes8))
	at := Load(Param("last"), GP64())
	src, steps := Load(Param("src"), GP64()), Load(Param("steps"), GP64())
	codes, states := Load(Param("codes"), GP64()), Load(Param("x"), GP64())
	out, outStep := Load(Param("out"), GP64()), Load(Param("outStep"), GP64())
	compress := GP64()
	LEAQ(compressWords(), compress)
	INCQ(at)
	INCQ(src)
	x := make([]VecVirtual, vectors)
	for i := range x {
		x[i] = loadYMM(Mem{Base: states, Disp: 4 * lanes8 * i})
	}
	Label("step")
	SUBQ(Imm(uint64(vectors*lanes8)), src)
	for i := range max(1, vectors/2) {
		PREFETCHT0(Mem{Base: out, Disp: 64 * i})
	}
	ADDQ(outStep, out)
	for i := vectors - 1; i >= 0; i-- {
		// The codes of even states and of odd ones lie apart, as VPMULUDQ needs them.
		var parts [2][]VecVirtual
		for j := range 8 {
			r := GP32()
			MOVBLZX(Mem{Base: src, Disp: 8*i + j}, r)
			code := Mem{Base: codes, Index: r.As64(), Scale: 8}
			if p := &parts[j%2]; j/2%2 == 0 {
				*p = append(*p, XMM())
				VMOVQ(code, (*p)[j/4])
			} else {
				VMOVHPS(code, (*p)[j/4], (*p)[j/4])
			}
		}
		even, odd := joined(parts[0]), joined(parts[1])
		rest := YMM() // the upper halves
		VPSRLQ(Imm(32), even, rest)
		VPBLENDD(Imm(0xaa), odd, rest, rest)
		fits, top, mask := YMM(), YMM(), GP32() // where nothing is put
		VPOR(constant(1<<freqAt-1), x[i], top)
		VPCMPGTD(top, rest, fits)
		VMOVMSKPS(fits, mask)
		words, upper, n := YMM(), XMM(), GP32()
		VPAND(constant(0xffff), x[i], words)
		VEXTRACTI128(Imm(1), words, upper)
		VPACKUSDW(upper, words.AsX(), words.AsX())
		POPCNTL(mask, n)
		SHLL(Imm(4), mask)
		VPSHUFB(Mem{Base: compress, Index: mask.As64(), Scale: 1}, words.AsX(), words.AsX())
		VMOVDQU(words.AsX(), Mem{Base: at, Disp: -16})
		LEAQ(Mem{Base: at, Index: n.As64(), Scale: 2, Disp: -16}, at)
		less := YMM()
		VPSRLD(Imm(16), x[i], less)
		VPBLENDVB(fits, x[i], less, x[i])
		xOdd, by := YMM(), YMM()
		VPSRLQ(Imm(32), x[i], xOdd)
		VPMULUDQ(x[i], even, even)
		VPMULUDQ(xOdd, odd, odd)
		VPSRLQ(Imm(32), even, even)
		VPBLENDD(Imm(0xaa), odd, even, even)
		VPAND(constant(31), rest, by)
		VPSRLVD(by, even, even)
		f, all, bias := YMM(), loadYMM(constant(probs)), YMM()
		VPSRLD(Imm(freqAt), rest, f)
		VPSUBD(f, all, f)
		VPMULLD(f, even, even)
		VPSRLD(Imm(biasAt), rest, bias)
		VPAND(constant(2*probs-1), bias, bias)
		VPADDD(bias, x[i], x[i])
		VPADDD(even, x[i], x[i])
	}
	DECQ(steps)
	JNZ(LabelRef("step"))
	for i := range x {
		VMOVDQU(x[i], Mem{Base: states, Disp: 4 * lanes8 * i})
	}
	put := Load(Param("last"), GP64())
	INCQ(put)
	SUBQ(at, put)
	Store(put, Return("put"))
	VZEROUPPER()
	RET()
}

func ransTableAVX2() {
	TEXT("tableAVX2", NOSPLIT, "func(t *uint32, f *uint16)")
	Pragma("noescape")
	comment("tableAVX2 is fillPortable. It writes up to 31 entries past the end.")
	t, f := Load(Param("t"), GP64()), Load(Param("f"), GP64())
	first := loadYMM(constant(0, 1<<probBits, 2<<probBits, 3<<probBits, 4<<probBits, 5<<probBits, 6<<probBits,
		7<<probBits))
	step, steps, zero := loadYMM(constant(lanes8<<probBits)), loadYMM(constant(2*lanes8<<probBits)), YMM()
	VPXOR(zero, zero, zero)
	values := GP32() // 32 of them, in the highest byte
	XORL(values, values)
	Label("values")
	x, y, set := YMM(), YMM(), GP32()
	VPCMPEQW(Mem{Base: f}, zero, x)
	VPCMPEQW(Mem{Base: f, Disp: 32}, zero, y)
	VPACKSSWB(y, x, x)
	VPERMQ(Imm(0xd8), x, x)
	VPMOVMSKB(x, set)
	XORL(I8(-1), set)
	JZ(LabelRef("none"))
	Label("value")
	value, n, at, less := GP32(), GP32(), GP64(), GP32()
	BSFL(set, value)
	LEAL(Mem{Base: set, Disp: -1}, less)
	ANDL(less, set)
	MOVWLZX(Mem{Base: f, Index: value.As64(), Scale: 2}, n)
	SHLL(Imm(24), value)
	ADDL(values, value)
	ORL(n, value)
	VMOVD(value, x.AsX())
	VPBROADCASTD(x.AsX(), x)
	VPADDD(first, x, x)
	VMOVDQU(x, Mem{Base: t})
	LEAQ(Mem{Base: t, Disp: 4 * lanes8}, at)
	LEAQ(Mem{Base: t, Index: n.As64(), Scale: 4}, t)
	CMPQ(at, t)
	JCC(LabelRef("next"))
	VPADDD(step, x, x)
	VPADDD(step, x, y)
	Label("fill")
	VMOVDQU(x, Mem{Base: at})
	VMOVDQU(y, Mem{Base: at, Disp: 4 * lanes8})
	VPADDD(steps, x, x)
	VPADDD(steps, y, y)
	ADDQ(Imm(2*4*lanes8), at)
	CMPQ(at, t)
	JCS(LabelRef("fill"))
	Label("next")
	TESTL(set, set)
	JNZ(LabelRef("value"))
	Label("none")
	ADDQ(Imm(2*32), f)
	ADDL(U32(32<<24), values)
	JNZ(LabelRef("values"))
	VZEROUPPER()
	RET()
}
