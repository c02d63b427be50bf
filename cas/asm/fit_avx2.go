package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// fitMasks are flags and, over and over, what they have of d and of w.
func fitMasks() (flags Register, d, w VecVirtual) {
	flags, d, w = Load(Param("flags"), GP64()), YMM(), YMM()
	VMOVQ(flags, d.AsX())
	VPBROADCASTD(d.AsX(), d)
	VPSLLD(Imm(31-16), d, w)
	VPSLLD(Imm(31), d, d)
	for _, x := range []VecVirtual{d, w} {
		VPSRAD(Imm(31), x, x)
	}
	return flags, d, w
}

// leftOf sets x, what is predicted, to what is left of d, by w.
func leftOf(x VecVirtual, d, w Mem, full, weigh VecVirtual) {
	y := YMM()
	VPAND(d, full, y)
	VSUBPS(x, y, x)
	VMULPS(w, x, y)
	VBLENDVPS(weigh, y, x, x)
}

// halves are the two vectors of AVX2 of one of AVX-512 in memory.
func halves(m Mem) [2]Mem { return [2]Mem{m, m.Offset(32)} }

// fitRowsAVX2 takes 64 columns of one row after the other.
func fitRowsAVX2(project bool) {
	name := "leaveAVX"
	if project {
		name = "fitRowsAVX"
	}
	TEXT(name+"2", NOSPLIT, "func(sums, u, v, d, w *float32, r, rows, stride int, flags uint64)")
	Pragma("noescape")
	comment(name + "2 is " + name + "512 for AVX2.")
	g, u, v := Load(Param("sums"), GP64()), Load(Param("u"), GP64()), Load(Param("v"), GP64())
	d, w, r := Load(Param("d"), GP64()), Load(Param("w"), GP64()), Load(Param("r"), GP64())
	rows, stride := Load(Param("rows"), GP64()), Load(Param("stride"), GP64())
	flags, full, weigh := fitMasks()
	step, step3, at, left := GP64(), GP64(), GP64(), GP64()
	MOVQ(r, step)
	SHLQ(Imm(6), step)
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	blocks := []Mem{{Base: at}, {Base: at, Index: step, Scale: 1}, {Base: at, Index: step, Scale: 2},
		{Base: at, Index: step3, Scale: 1}}
	countdown("row", rows, func() {
		var x [4][2]VecVirtual
		for i := range x {
			x[i] = [2]VecVirtual{zeroYMM(), zeroYMM()}
		}
		BTQ(Imm(32), flags)
		JCC(LabelRef("left"))
		MOVQ(v, at)
		MOVQ(r, left)
		countdown("predict", left, func() {
			y := YMM()
			VBROADCASTSS(Mem{Base: u}, y)
			for i, m := range blocks {
				for h, m := range halves(m) {
					VFMADD231PS(m, y, x[i][h])
				}
			}
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		Label("left")
		for i := range x {
			for h, x := range x[i] {
				off := 64*i + 32*h
				leftOf(x, Mem{Base: d, Disp: off}, Mem{Base: w, Disp: off}, full, weigh)
				if !project {
					VMOVUPS(x, Mem{Base: g, Disp: off})
				}
			}
		}
		if project {
			MOVQ(v, at)
			MOVQ(r, left)
			countdown("project", left, func() {
				for h, sum := range halves(Mem{Base: g}) {
					y, z := YMM(), YMM()
					VMOVUPS(sum, y)
					VMULPS(halves(blocks[1])[h], x[1][h], z)
					VFMADD231PS(halves(blocks[0])[h], x[0][h], y)
					VFMADD231PS(halves(blocks[3])[h], x[3][h], z)
					VFMADD231PS(halves(blocks[2])[h], x[2][h], y)
					VADDPS(z, y, y)
					VMOVUPS(y, sum)
				}
				ADDQ(Imm(64), g)
				ADDQ(Imm(64), at)
			})
		} else {
			ADDQ(stride, g)
		}
		ADDQ(stride, d)
		ADDQ(stride, w)
	})
	VZEROUPPER()
	RET()
}

// fitColsAVX2 takes a block of 16 columns of four rows at a time.
func fitColsAVX2() {
	TEXT("fitColsAVX2", NOSPLIT, "func(sums, v, u, d, w *float32, r, fours, stride int, flags uint64)")
	Pragma("noescape")
	comment("fitColsAVX2 is fitColsAVX512 for AVX2.")
	g, v, u := Load(Param("sums"), GP64()), Load(Param("v"), GP64()), Load(Param("u"), GP64())
	d, w, r := Load(Param("d"), GP64()), Load(Param("w"), GP64()), Load(Param("r"), GP64())
	fours, stride := Load(Param("fours"), GP64()), Load(Param("stride"), GP64())
	flags, full, weigh := fitMasks()
	step, step3, at, left := GP64(), GP64(), GP64(), GP64()
	MOVQ(r, step)
	SHLQ(Imm(2), step)
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	rows := []Mem{{Base: u}, {Base: u, Index: step, Scale: 1}, {Base: u, Index: step, Scale: 2},
		{Base: u, Index: step3, Scale: 1}}
	countdown("rows", fours, func() {
		var x [4][2]VecVirtual
		for i := range x {
			x[i] = [2]VecVirtual{zeroYMM(), zeroYMM()}
		}
		BTQ(Imm(32), flags)
		JCC(LabelRef("left"))
		MOVQ(v, at)
		MOVQ(r, left)
		countdown("predict", left, func() {
			y := [2]VecVirtual{loadYMM(Mem{Base: at}), loadYMM(Mem{Base: at, Disp: 32})}
			for i, m := range rows {
				t := YMM()
				VBROADCASTSS(m, t)
				for h, y := range y {
					VFMADD231PS(t, y, x[i][h])
				}
			}
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		SUBQ(step, u)
		Label("left")
		for _, x := range x {
			for h, x := range x {
				leftOf(x, Mem{Base: d, Disp: 32 * h}, Mem{Base: w, Disp: 32 * h}, full, weigh)
			}
			ADDQ(stride, d)
			ADDQ(stride, w)
		}
		MOVQ(g, at)
		MOVQ(r, left)
		countdown("spread", left, func() {
			y := [2]VecVirtual{loadYMM(Mem{Base: at}), loadYMM(Mem{Base: at, Disp: 32})}
			z := [2]VecVirtual{YMM(), YMM()}
			for _, i := range []int{1, 0, 3, 2} { // the order of AVX-512
				t := YMM()
				VBROADCASTSS(rows[i], t)
				for h, x := range x[i] {
					switch {
					case i == 1:
						VMULPS(t, x, z[h])
					case i == 3:
						VFMADD231PS(t, x, z[h])
					default:
						VFMADD231PS(t, x, y[h])
					}
				}
			}
			for h, y := range y {
				VADDPS(z[h], y, y)
				VMOVUPS(y, Mem{Base: at, Disp: 32 * h})
			}
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		ADDQ(step3, u)
	})
	VZEROUPPER()
	RET()
}

func differencesAVX2(kind int, name string) {
	name = "differences" + name + "AVX"
	TEXT(name+"2", NOSPLIT, "func(d, w *float32, raw, base *byte, blocks int, least, middle uint64)")
	Pragma("noescape")
	comment(name + "2 is " + name + "512 for AVX2.")
	d, w, raw, base := Load(Param("d"), GP64()), Load(Param("w"), GP64()), Load(Param("raw"), GP64()),
		Load(Param("base"), GP64())
	blocks, least, middle := Load(Param("blocks"), GP64()), YMM(), YMM()
	VMOVQ(Load(Param("least"), GP64()), least.AsX())
	VMOVQ(Load(Param("middle"), GP64()), middle.AsX())
	VPBROADCASTD(least.AsX(), least)
	VPBROADCASTD(middle.AsX(), middle)
	SHLQ(Imm(1), blocks)
	countdown("block", blocks, func() {
		number := func(p Register) VecVirtual {
			x := YMM()
			if kind == 2 {
				VMOVUPS(Mem{Base: p}, x)
				return x
			}
			VPMOVZXWD(Mem{Base: p}, x)
			if kind == 1 {
				return fromF16(x)
			}
			VPSLLD(Imm(16), x, x)
			return x
		}
		x, by, e, known, weight := number(raw), YMM(), YMM(), YMM(), YMM()
		mask, one := loadYMM(constant(255)), loadYMM(constant(127))
		VSUBPS(number(base), x, by)
		VPSRLD(Imm(23), x, e)
		VPAND(mask, e, e)
		VPMAXSD(least, e, e)
		VPSUBD(middle, e, e)
		VPMAXSD(constant(0xfffffffc), e, e)
		VPCMPGTD(constant(20), e, known)
		VPSRLD(Imm(23), by, x)
		VPAND(mask, x, x)
		VPCMPEQD(mask, x, x) // not finite
		VPOR(x, known, known)
		VPADDD(e, e, e)
		VPSUBD(e, one, weight)
		VPSLLD(Imm(23), weight, weight)
		VPANDN(weight, known, weight)
		VPANDN(by, known, by)
		VMOVUPS(weight, Mem{Base: w})
		VMOVUPS(by, Mem{Base: d})
		for _, p := range []Register{d, w} {
			ADDQ(Imm(32), p)
		}
		step := uint64(16)
		if kind == 2 {
			step = 32
		}
		for _, p := range []Register{raw, base} {
			ADDQ(Imm(step), p)
		}
	})
	VZEROUPPER()
	RET()
}
