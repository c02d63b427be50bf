package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// quantKernels makes the kernels of package quant, those for AVX-512 and for AVX2 of the same text.
func quantKernels() {
	for _, v := range []vectors{{true, 16}, {false, 8}} {
		v.extremes(32)
		v.extremes(16)
		v.magnitude()
		v.predictK("Q4K", 144, 16)
		v.predictK("Q5K", 176, 48)
		v.predictQ6K()
		v.predictQ80()
		v.predictNibbles("Q40", 18, 2, 8.5, false, false)
		v.predictNibbles("Q41", 20, 4, 0.5, true, false)
		v.predictNibbles("Q50", 22, 2, 16.5, false, true)
		v.predictNibbles("Q51", 24, 4, 0.5, true, true)
		v.predictMXFP4()
		for _, divides := range []bool{true, false} {
			v.f8(divides, false)
			v.f8(divides, true)
		}
	}
	awq(false)
	awq(true)
	steady8()
	spread()
	rangeFactors()
}

// vectors are those of a level, of so many lanes of 4 bytes.
type vectors struct {
	wide  bool
	lanes int
}

// begin begins a function of that name at this level.
func (v vectors) begin(name, signature, doc string) {
	level := "AVX2"
	if v.wide {
		level = "AVX512"
	}
	TEXT(name+level, NOSPLIT, signature)
	Pragma("noescape")
	comment(name + level + " " + doc)
}

func (v vectors) reg() VecVirtual {
	if v.wide {
		return ZMM()
	}
	return YMM()
}

func (v vectors) load(m Mem) VecVirtual {
	x := v.reg()
	VMOVUPS(m, x)
	return x
}

// each is c in every lane: a register, of which there are enough for AVX-512, else memory. It is to be asked
// for before the loop.
func (v vectors) each(c uint32) Op {
	if v.wide {
		return broadcast(c)
	}
	return constant(c)
}

// same is a number of memory in every lane.
func (v vectors) same(m Mem) VecVirtual {
	x := v.reg()
	VBROADCASTSS(m, x)
	return x
}

func (v vectors) and(a Op, x, to VecVirtual) {
	if v.wide {
		VPANDD(a, x, to)
	} else {
		VPAND(a, x, to)
	}
}

func (v vectors) or(a Op, x, to VecVirtual) {
	if v.wide {
		VPORD(a, x, to)
	} else {
		VPOR(a, x, to)
	}
}

func (v vectors) xor(a Op, x, to VecVirtual) {
	if v.wide {
		VPXORD(a, x, to)
	} else {
		VPXOR(a, x, to)
	}
}

func (v vectors) zero() VecVirtual {
	x := v.reg()
	v.xor(x, x, x)
	return x
}

// numbers sets lanes of x that are no number to 0.
func (v vectors) numbers(x VecVirtual) {
	const ordered = 7
	if v.wide {
		k := K()
		VCMPPS(Imm(ordered), x, x, k)
		VMOVDQA32_Z(x, k, x)
		return
	}
	m := YMM()
	VCMPPS(Imm(ordered), x, x, m)
	VPAND(m, x, x)
}
