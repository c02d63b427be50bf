package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
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

// gathering returns what takes numbers out of a table. A gather clears its mask in the end: were that set by
// KXNOR of itself, each would wait for the one before.
func gathering(kernel func(m, k, x Op), scale uint8) func(table Register, at VecVirtual) VecVirtual {
	all := K()
	KXNORW(all, all, all)
	return func(table Register, at VecVirtual) VecVirtual {
		k, x := K(), ZMM()
		KMOVW(all, k)
		VPXORD(x, x, x) // what was there is not waited for
		kernel(Mem{Base: table, Index: at, Scale: scale}, k, x)
		return x
	}
}

func ransTable() {
	TEXT("tableAVX512", NOSPLIT, "func(t *uint32, f *uint16)")
	Pragma("noescape")
	comment("tableAVX512 is fillPortable. It writes up to 63 entries past the end.")
	t, f := Load(Param("t"), GP64()), Load(Param("f"), GP64())
	iota := GLOBL("places", RODATA|NOPTR)
	for i := range lanes {
		DATA(4*i, U32(i<<probBits))
	}
	first, step, steps := ZMM(), broadcast(lanes<<probBits), broadcast(2*lanes<<probBits)
	VMOVDQU32(iota, first)
	values := GP32() // 64 of them, in the highest byte
	XORL(values, values)
	Label("values")
	x, y, k, upper, set := ZMM(), ZMM(), K(), K(), GP64()
	VMOVDQU16(Mem{Base: f}, x)
	VMOVDQU16(Mem{Base: f, Disp: 64}, y)
	VPTESTMW(x, x, k)
	VPTESTMW(y, y, upper)
	KUNPCKDQ(k, upper, k)
	KMOVQ(k, set)
	TESTQ(set, set)
	JZ(LabelRef("none"))
	Label("value")
	value, n, less, at := GP64(), GP64(), GP64(), GP64()
	BSFQ(set, value)
	LEAQ(Mem{Base: set, Disp: -1}, less)
	ANDQ(less, set)
	MOVWQZX(Mem{Base: f, Index: value, Scale: 2}, n)
	SHLL(Imm(24), value.As32())
	ADDL(values, value.As32())
	ORL(n.As32(), value.As32())
	VPBROADCASTD(value.As32(), x)
	VPADDD(first, x, x)
	VMOVDQU32(x, Mem{Base: t})
	LEAQ(Mem{Base: t, Disp: 4 * lanes}, at)
	LEAQ(Mem{Base: t, Index: n, Scale: 4}, t)
	CMPQ(at, t) // of most values one vector is all
	JCC(LabelRef("next"))
	VPADDD(step, x, x)
	VPADDD(step, x, y)
	Label("fill")
	VMOVDQU32(x, Mem{Base: at})
	VMOVDQU32(y, Mem{Base: at, Disp: 4 * lanes})
	VPADDD(steps, x, x)
	VPADDD(steps, y, y)
	VMOVDQU32(x, Mem{Base: at, Disp: 4 * lanes * 2})
	VMOVDQU32(y, Mem{Base: at, Disp: 4 * lanes * 3})
	VPADDD(steps, x, x)
	VPADDD(steps, y, y)
	ADDQ(U32(4*4*lanes), at)
	CMPQ(at, t)
	JCS(LabelRef("fill"))
	Label("next")
	TESTQ(set, set)
	JNZ(LabelRef("value"))
	Label("none")
	ADDQ(U32(2*64), f)
	ADDL(U32(64<<24), values)
	JNZ(LabelRef("values"))
	VZEROUPPER()
	RET()
}

var highestAt *Mem

// highestOfFour is where the highest of every 4 bytes is, four times over.
func highestOfFour() Mem {
	if highestAt == nil {
		p := make([]byte, 64)
		for i := range p {
			p[i] = byte(i%lanes*4 + 3)
		}
		m := table("highest", p)
		highestAt = &m
	}
	return *highestAt
}

// ransDecode makes two kernels: one gathers entries of the table, the other loads them one by one.
func ransDecode(vectors int, loads bool) {
	name := fmt.Sprintf("decode%d%sAVX512", vectors*lanes, kindOf(loads))
	TEXT(name, NOSPLIT, decodeParams)
	Pragma("noescape")
	comment(fmt.Sprintf("%s decodes so many steps of %d bytes each, or fewer: it begins none when of the n bytes at words less", name, vectors*lanes),
		fmt.Sprintf("than %d are left, which is what a step reads, and uses at most. Each step has the processor fetch %d lines of 64 bytes", 2*vectors*lanes, vectors),
		"at raw, which are to be read next, and as many at out, which are to be written, and goes on by rawStep and outStep.")
	dst, steps := Load(Param("dst"), GP64()), Load(Param("steps"), GP64())
	t, states := Load(Param("t"), GP64()), Load(Param("x"), GP64())
	words, last := Load(Param("words"), GP64()), Load(Param("n"), GP64())
	LEAQ(Mem{Base: words, Index: last, Scale: 1, Disp: -2 * vectors * lanes}, last)
	raw, rawStep := Load(Param("raw"), GP64()), Load(Param("rawStep"), GP64())
	out, outStep := Load(Param("out"), GP64()), Load(Param("outStep"), GP64())
	var gather func(table Register, at VecVirtual) VecVirtual
	if loads {
		places := AllocLocal(64)
		gather = func(table Register, at VecVirtual) VecVirtual {
			VMOVDQU32(at, places)
			return loadEach(table, places, lanes)
		}
	} else {
		gather = gathering(VPGATHERDD, 4)
	}
	low, least := broadcast(probs-1), broadcast(minState)
	var highest VecVirtual
	parts := make([]Register, vectors) // masks
	if vectors > 1 {
		highest = ZMM()
		VMOVDQU8(highestOfFour(), highest)
		for i := 1; i < vectors; i++ {
			r := GP64()
			MOVQ(U64(0xffff<<(16*i)), r)
			parts[i] = K()
			KMOVQ(r, parts[i])
		}
	}
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
	for i := range vectors {
		PREFETCHT0(Mem{Base: raw, Disp: 64 * i})
		PREFETCHT0(Mem{Base: out, Disp: 64 * i})
	}
	ADDQ(rawStep, raw)
	ADDQ(outStep, out)
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
	}
	out64 := ZMM()
	if vectors == 1 {
		VPSRLD(Imm(24), e[0], e[0])
		VPMOVDB(e[0], Mem{Base: dst})
	} else {
		VPERMB(e[0], highest, out64) // of each state's 4 bytes, four times over
		for i := 1; i < vectors; i++ {
			VPERMB(e[i], highest, parts[i], out64)
		}
		if vectors == 2 {
			VMOVDQU8(out64.AsY(), Mem{Base: dst})
		} else {
			VMOVDQU8(out64, Mem{Base: dst})
		}
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

// Of 32 states the encoder has those of even number in one vector and those of odd number in another, since
// then the lower words of both, by turns, are those of all in order. Of 16 states only the lower halves of
// both vectors count.
const (
	pairLanes = 2 * lanes

	shiftAt = 0 // in the upper half of a ransCode
	biasAt  = 5
	freqAt  = 19
)

// coder holds what a kernel of the encoder needs in its loop.
type coder struct {
	at, ones                Register
	even, some              Register // masks: of even ones, of those that there are
	evens, odds             Register // numbers of states
	below, all, biases, nil VecVirtual
}

// codes are those of a vector's next bytes: what the even states are multiplied by, what the odd ones, each
// in the lower half of 8 bytes, and the upper halves of all codes.
type codes struct{ even, odd, rest VecVirtual }

// kindOf names a kernel that loads what its sibling gathers.
func kindOf(loads bool) string {
	if loads {
		return "Loads"
	}
	return ""
}

// ransEncode makes three kernels. Two gather or load codes of 8 bytes, two vectors of them for one of states.
// The third is for values that differ modulo 32, of which the codes fit in registers.
func ransEncode(vectors int, narrow, loads bool) {
	name, params := fmt.Sprintf("encode%d%sAVX512", vectors*lanes, kindOf(loads)), encodeParams
	if narrow {
		name = fmt.Sprintf("encode%dNarrowAVX512", vectors*lanes)
		params = strings.Replace(encodeParams, "codes *uint64", "rcp, rest *uint32", 1)
	}
	TEXT(name, NOSPLIT, params)
	Pragma("noescape")
	comment(fmt.Sprintf("%s codes steps times %d bytes, of which the last is at src, and puts words up to the byte at last, so many bytes.", name, vectors*lanes),
		fmt.Sprintf("Each step has the processor fetch %d lines of 64 bytes at out, which are to be written, and goes on by outStep.", vectors))
	c := coder{at: Load(Param("last"), GP64())}
	src, steps, states := Load(Param("src"), GP64()), Load(Param("steps"), GP64()), Load(Param("x"), GP64())
	out, outStep := Load(Param("out"), GP64()), Load(Param("outStep"), GP64())
	INCQ(c.at)
	INCQ(src)
	c.init(vectors)
	var next func(at int) [2]codes
	switch {
	case narrow:
		next = inRegisters(Load(Param("rcp"), GP64()), Load(Param("rest"), GP64()), src)
	case loads:
		next = loaded(Load(Param("codes"), GP64()), src, c.even, vectors)
	default:
		next = gathered(Load(Param("codes"), GP64()), src, c.even, vectors)
	}
	pairs := (vectors + 1) / 2
	x := make([][2]VecVirtual, pairs)
	for i := range x {
		a, b := ZMM(), ZMM()
		VMOVDQU32(Mem{Base: states, Disp: 4 * pairLanes * i}, a)
		if vectors > 1 {
			VMOVDQU32(Mem{Base: states, Disp: 4*pairLanes*i + 4*lanes}, b)
		}
		x[i] = permute(a, b, evens, odds)
	}
	Label("step")
	SUBQ(Imm(uint64(vectors*lanes)), src)
	for i := range vectors {
		PREFETCHT0(Mem{Base: out, Disp: 64 * i})
	}
	ADDQ(outStep, out)
	for i := pairs - 1; i >= 0; i-- {
		pair := next(pairLanes * i)
		var full [2]Register
		for j := range pair {
			full[j] = c.full(x[i][j], pair[j])
		}
		c.put(x[i], full)
		for j := range pair {
			c.code(x[i][j], pair[j], full[j])
		}
	}
	DECQ(steps)
	JNZ(LabelRef("step"))
	for i, x := range x {
		v := permute(x[0], x[1], lowers, uppers)
		VMOVDQU32(v[0], Mem{Base: states, Disp: 4 * pairLanes * i})
		if vectors > 1 {
			VMOVDQU32(v[1], Mem{Base: states, Disp: 4*pairLanes*i + 4*lanes})
		}
	}
	put := Load(Param("last"), GP64())
	INCQ(put)
	SUBQ(c.at, put)
	Store(put, Return("put"))
	VZEROUPPER()
	RET()
}

// order is what permute takes the states in.
type order struct {
	name string
	at   func(i int) int
	data *Mem
}

var (
	evens  = &order{name: "evens", at: func(i int) int { return 2 * i }}
	odds   = &order{name: "odds", at: func(i int) int { return 2*i + 1 }}
	lowers = &order{name: "lowers", at: func(i int) int { return i/2 + i%2*lanes }}
	uppers = &order{name: "uppers", at: func(i int) int { return lanes/2 + i/2 + i%2*lanes }}
)

// permute takes states from a and, from 16 on, from b, once in each order.
func permute(a, b VecVirtual, orders ...*order) (v [2]VecVirtual) {
	for i, o := range orders {
		if o.data == nil {
			m := GLOBL(o.name, RODATA|NOPTR)
			for i := range lanes {
				DATA(4*i, U32(o.at(i)))
			}
			o.data = &m
		}
		v[i] = ZMM()
		VMOVDQU32(*o.data, v[i])
		VPERMI2D(b, a, v[i])
	}
	return v
}

func (c *coder) init(vectors int) {
	c.below, c.all, c.biases, c.nil = broadcast(1<<freqAt-1), broadcast(probs), broadcast(2*probs-1), ZMM()
	VPXORD(c.nil, c.nil, c.nil)
	c.ones, c.evens, c.odds = GP64(), GP32(), GP32()
	MOVL(U32(0x55555555), c.evens)
	MOVL(U32(0xaaaaaaaa), c.odds)
	MOVQ(I64(-1), c.ones)
	c.even = K()
	KMOVD(c.evens, c.even)
	c.some = K()
	if vectors == 1 {
		r := GP32()
		MOVL(U32(0xff), r)
		KMOVW(r, c.some)
	} else {
		KXNORW(c.some, c.some, c.some)
	}
}

// gathered returns what gathers the codes of 32 bytes.
func gathered(table, src, even Register, vectors int) func(at int) [2]codes {
	gather := gathering(VPGATHERDQ, 8)
	low, r := YMM(), GP32()
	MOVL(U32(0xff), r)
	VPBROADCASTD(r, low)
	return func(at int) (pair [2]codes) {
		fours := YMM()
		if vectors == 1 {
			VMOVDQU32(Mem{Base: src}, fours.AsX())
		} else {
			VMOVDQU32(Mem{Base: src, Disp: at}, fours)
		}
		var e [4]VecVirtual
		for i := range e {
			v := YMM()
			switch i {
			case 0:
				VPANDD(low, fours, v)
			case 3:
				VPSRLD(Imm(24), fours, v)
			default:
				VPSRLD(Imm(uint64(8*i)), fours, v)
				VPANDD(low, v, v)
			}
			e[i] = gather(table, v)
		}
		return inPairs(e, even)
	}
}

// inPairs are the codes of vectors of which the first has those of every fourth byte, and so on.
func inPairs(e [4]VecVirtual, even Register) (pair [2]codes) {
	for i := range pair {
		rest := ZMM()
		VMOVDQA64(e[i+2], rest)
		VMOVSHDUP(e[i], even, rest)
		pair[i] = codes{e[i], e[i+2], rest}
	}
	return pair
}

// loaded returns what loads the codes of 32 bytes one by one.
func loaded(table, src, even Register, vectors int) func(at int) [2]codes {
	return func(at int) [2]codes {
		var e [4]VecVirtual
		for i := range e {
			twos := make([]VecVirtual, min(4, 2*vectors))
			for j := range 2 * len(twos) {
				r := GP32()
				MOVBLZX(Mem{Base: src, Disp: at + 4*j + i}, r)
				code := Mem{Base: table, Index: r.As64(), Scale: 8}
				if j%2 == 0 {
					twos[j/2] = XMM()
					VMOVQ(code, twos[j/2])
				} else {
					VMOVHPS(code, twos[j/2], twos[j/2])
				}
			}
			e[i] = joined(twos).AsZ().(VecVirtual)
		}
		return inPairs(e, even)
	}
}

// inRegisters returns what takes the codes of 32 bytes from registers.
func inRegisters(rcp, rest, src Register) func(at int) [2]codes {
	var rcps, rests [2]VecVirtual
	for i := range rcps {
		rcps[i], rests[i] = ZMM(), ZMM()
		VMOVDQU32(Mem{Base: rcp, Disp: 64 * i}, rcps[i])
		VMOVDQU32(Mem{Base: rest, Disp: 64 * i}, rests[i])
	}
	return func(at int) (pair [2]codes) {
		twos, upper := ZMM(), ZMM()
		VPMOVZXWD(Mem{Base: src, Disp: at}, twos)
		VPSRLD(Imm(8), twos, upper)
		for i, v := range []VecVirtual{twos, upper} { // of which only the 5 lowest bits count
			w, odd := ZMM(), ZMM()
			VMOVDQA64(v, w)
			VPERMI2D(rcps[1], rcps[0], w)
			VPERMI2D(rests[1], rests[0], v)
			VPSRLQ(Imm(32), w, odd)
			pair[i] = codes{w, odd, v}
		}
		return pair
	}
}

// full says which states are too large to be coded as they are: where x >> freqAt is not less than the
// frequency.
func (c *coder) full(x VecVirtual, p codes) Register {
	least, k := ZMM(), K()
	VPORD(c.below, x, least)
	VPCMPUD(Imm(5), p.rest, least, c.some, k) // not less
	return k
}

// put puts the lower words of those states before what was put already.
func (c *coder) put(x [2]VecVirtual, full [2]Register) {
	words := ZMM()
	VPSLLD(Imm(16), x[1], words)
	VMOVDQU16(x[0], c.even, words)
	a, b, k := GP32(), GP32(), K()
	KMOVW(full[0], a)
	KMOVW(full[1], b)
	PDEPL(c.evens, a, a)
	PDEPL(c.odds, b, b)
	ORL(b, a)
	KMOVD(a, k)
	vbmi2("VPCOMPRESSW", true, words, k, words)
	POPCNTL(a, a)
	m, some := GP64(), K()
	BZHIQ(a.As64(), c.ones, m)
	KMOVD(m.As32(), some)
	ADDQ(a.As64(), a.As64())
	SUBQ(a.As64(), c.at)
	VMOVDQU16(words, some, Mem{Base: c.at})
}

// code codes a byte of each state.
func (c *coder) code(x VecVirtual, p codes, full Register) {
	VPSRLD(Imm(16), x, full, x)
	q, even, xOdd := ZMM(), ZMM(), ZMM()
	VPMULUDQ(p.even, x, even)
	VPSRLQ(Imm(32), x, xOdd)
	VPMULUDQ(p.odd, xOdd, q)
	VMOVSHDUP(even, c.even, q)
	shiftRight(p.rest, c.nil, q)
	f, bias := ZMM(), ZMM()
	VPSRLD(Imm(freqAt), p.rest, f)
	VPSUBD(f, c.all, f)
	VPMULLD(f, q, q)
	VPSRLD(Imm(biasAt), p.rest, bias)
	VPANDD(c.biases, bias, bias)
	VPADDD(bias, x, x)
	VPADDD(q, x, x)
}

// shiftRight shifts to and, above it, upper, by the 5 lowest bits of by.
func shiftRight(by, upper, to VecVirtual) {
	Instruction(&ir.Instruction{Opcode: "VPSHRDVD", Operands: []Op{by, upper, to},
		Inputs: []Op{by, upper, to}, Outputs: []Op{to}, ISA: []string{"AVX512_VBMI2"}})
}
