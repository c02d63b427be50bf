package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// lowRankAVX2 makes the kernels of lowRank for AVX2 and FMA. They come to the same bits.
func lowRankAVX2() {
	for _, n := range []int{4, 1} {
		predict16AVX2(true, n)
		predict16AVX2(false, n)
	}
	predict32AVX2(2)
	predict32AVX2(1)
	singlesAVX2(16)
	singlesAVX2(24)
	fitRowsAVX2(true)
	fitRowsAVX2(false)
	fitColsAVX2()
	for kind, name := range []string{"BF16", "F16", "F32"} {
		differencesAVX2(kind, name)
	}
}

func zeroYMM() VecVirtual {
	x := YMM()
	VPXOR(x, x, x)
	return x
}

// fromF16 makes single precision of numbers of binary16 in fields of 4 bytes. Those below 2^-14 come of what
// has the exponent of that number.
func fromF16(h VecVirtual) VecVirtual {
	x, isLarge, small, infinite := YMM(), YMM(), YMM(), YMM()
	VPSLLD(Imm(17), h, x)
	VPSRLD(Imm(4), x, x)
	VPCMPGTD(constant(0x007fffff), x, isLarge)
	VPCMPGTD(constant(0x0f7fffff), x, infinite)
	VPADDD(constant(113<<23), x, small)
	VSUBPS(constant(113<<23), small, small)
	VPADDD(constant((127-15)<<23), x, x)
	VPAND(constant(0x7f800000), infinite, infinite)
	VPOR(infinite, x, x)
	VPBLENDVB(isLarge, x, small, x)
	sign := small
	VPSRLD(Imm(15), h, sign)
	VPSLLD(Imm(31), sign, sign)
	VPOR(sign, x, x)
	return x
}

// keepOdd sets x to b where y, whose sign it clears, is limit at least.
func keepOdd(x, b, y VecVirtual, limit uint32) {
	VPAND(constant(0x7fffffff), y, y)
	VPCMPGTD(constant(limit-1), y, y)
	VPBLENDVB(y, b, x, x)
}

func predict16AVX2(bf16 bool, n int) {
	name := fmt.Sprintf("predictBF16x%dAVX", n)
	limit := uint32(0x7f7f8000)
	if !bf16 {
		name, limit = fmt.Sprintf("predictF16x%dAVX", n), 0x477ff000
	}
	TEXT(name+"2", NOSPLIT, "func(p, base *byte, stride, rows int, u, v *byte, pairs int, scale float32)")
	Pragma("noescape")
	comment(name + "2 is " + name + "512 for AVX2.")
	p, base, stride := Load(Param("p"), GP64()), Load(Param("base"), GP64()), Load(Param("stride"), GP64())
	rows, u, v := Load(Param("rows"), GP64()), Load(Param("u"), GP64()), Load(Param("v"), GP64())
	pairs := Load(Param("pairs"), GP64())
	addr, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	at, left, step, step3 := GP64(), GP64(), GP64(), GP64()
	MOVQ(pairs, step)
	SHLQ(Imm(6), step)
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	blocks := []Mem{{Base: at}, {Base: at, Index: step, Scale: 1}, {Base: at, Index: step, Scale: 2},
		{Base: at, Index: step3, Scale: 1}}[:n]
	countdown("row", rows, func() {
		sums := make([]VecVirtual, 2*n)
		for i := range sums {
			sums[i] = zeroYMM()
		}
		MOVQ(v, at)
		MOVQ(pairs, left)
		countdown("pair", left, func() {
			x := YMM()
			VPBROADCASTD(Mem{Base: u}, x)
			for i, sum := range sums {
				y := YMM()
				VPMADDWD(blocks[i/2].Offset(32*(i%2)), x, y)
				VPADDD(y, sum, sum)
			}
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		scale := YMM()
		VBROADCASTSS(addr.Addr, scale)
		for i, sum := range sums {
			VCVTDQ2PS(sum, sum)
			VMULPS(scale, sum, sum)
			b, y := YMM(), YMM()
			VPMOVZXWD(Mem{Base: base, Disp: 16 * i}, b)
			if bf16 {
				x := YMM()
				VPSLLD(Imm(16), b, x)
				VADDPS(x, sum, sum)
			} else {
				VADDPS(fromF16(b), sum, sum)
			}
			VMOVDQA(sum, y)
			if bf16 {
				roundBF16(sum)
			} else {
				roundF16(sum)
			}
			keepOdd(sum, b, y, limit)
			if i%2 == 1 {
				VPACKUSDW(sum, sums[i-1], sum)
				VPERMQ(Imm(0xd8), sum, sum)
				VMOVDQU(sum, Mem{Base: p, Disp: 16 * (i - 1)})
			}
		}
		ADDQ(stride, p)
		ADDQ(stride, base)
	})
	VZEROUPPER()
	RET()
}

// predict32AVX2 takes two rows at a time, for which there are registers.
func predict32AVX2(n int) {
	name := fmt.Sprintf("predictF32x%dAVX2", n)
	TEXT(name, NOSPLIT, "func(p, base *byte, stride, times int, u *float64, v *byte, r int, scale float64)")
	Pragma("noescape")
	comment(fmt.Sprintf("%s sets 16 columns of %d rows, times as often, of p, which are stride bytes apart, to"+
		" what is predicted of base.", name, n))
	p, base, stride := Load(Param("p"), GP64()), Load(Param("base"), GP64()), Load(Param("stride"), GP64())
	times, u, v := Load(Param("times"), GP64()), Load(Param("u"), GP64()), Load(Param("v"), GP64())
	r := Load(Param("r"), GP64())
	addr, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	at, left, step := GP64(), GP64(), GP64()
	MOVQ(r, step)
	SHLQ(Imm(3), step) // of u
	countdown("rows", times, func() {
		sums := make([][4]VecVirtual, n)
		for i := range sums {
			for q := range sums[i] {
				sums[i][q] = zeroYMM()
			}
		}
		MOVQ(v, at)
		MOVQ(r, left)
		countdown("number", left, func() {
			us := []VecVirtual{YMM(), YMM()}[:n]
			for i, m := range []Mem{{Base: u}, {Base: u, Index: step, Scale: 1}}[:n] {
				VBROADCASTSD(m, us[i])
			}
			for q := range 4 {
				x, y := XMM(), YMM()
				VMOVDQU(Mem{Base: at, Disp: 16 * q}, x)
				VPSLLD(Imm(8), x, x)
				VPSRAD(Imm(8), x, x)
				VCVTDQ2PD(x, y)
				for i, u := range us {
					VFMADD231PD(u, y, sums[i][q])
				}
			}
			ADDQ(Imm(8), u)
			ADDQ(Imm(64), at)
		})
		if n == 2 {
			ADDQ(step, u)
		}
		scale := YMM()
		VBROADCASTSD(addr.Addr, scale)
		for _, sums := range sums {
			for q, sum := range sums {
				b := YMM()
				VCVTPS2PD(Mem{Base: base, Disp: 16 * q}, b)
				VMULPD(scale, sum, sum)
				VADDPD(b, sum, sum)
				x := XMM()
				VCVTPD2PSY(sum, x)
				sums[q] = x
				if q%2 == 1 {
					x, y := joined(sums[q-1:q+1]), YMM()
					VMOVDQA(x, y)
					keepOdd(x, loadYMM(Mem{Base: base, Disp: 16 * (q - 1)}), y, 0x7f800000)
					VMOVDQU(x, Mem{Base: p, Disp: 16 * (q - 1)})
				}
			}
			ADDQ(stride, p)
			ADDQ(stride, base)
		}
	})
	VZEROUPPER()
	RET()
}

func singlesAVX2(bits int) {
	name := fmt.Sprintf("singles%dAVX", bits)
	TEXT(name+"2", NOSPLIT, "func(dst *float32, src *byte, vectors int)")
	Pragma("noescape")
	comment(name + "2 is " + name + "512 for AVX2.")
	dst, src, vectors := Load(Param("dst"), GP64()), Load(Param("src"), GP64()),
		Load(Param("vectors"), GP64())
	second, step := 0, uint32(64) // where the second ones go, and how far
	if bits == 16 {
		second, step = 64, 128
	}
	countdown("vector", vectors, func() {
		for i := range 2 {
			x := loadYMM(Mem{Base: src, Disp: 32 * i})
			if bits == 24 {
				VPSLLD(Imm(8), x, x)
				VPSRAD(Imm(8), x, x)
			} else {
				y := YMM()
				VPSLLD(Imm(16), x, y)
				VPSRAD(Imm(16), y, y)
				VCVTDQ2PS(y, y)
				VMOVUPS(y, Mem{Base: dst, Disp: 32 * i})
				VPSRAD(Imm(16), x, x)
			}
			VCVTDQ2PS(x, x)
			VMOVUPS(x, Mem{Base: dst, Disp: second + 32*i})
		}
		ADDQ(U32(step), dst)
		ADDQ(Imm(64), src)
	})
	VZEROUPPER()
	RET()
}
