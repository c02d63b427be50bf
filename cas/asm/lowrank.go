package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// lowRank makes the kernels that predict, of blocks of 16 columns, and those that fit factors.
func lowRank() {
	for _, n := range []int{4, 1} {
		predict16(true, n)
		predict16(false, n)
	}
	predict32(4)
	predict32(1)
	singles(16)
	singles(24)
	fitRows(true)
	fitRows(false)
	fitCols()
	for kind, name := range []string{"BF16", "F16", "F32"} {
		differences(kind, name)
	}
}

func zero() VecVirtual {
	v := ZMM()
	VPXORD(v, v, v)
	return v
}

// countdown is a loop that is run as often as count, which it uses up, says.
func countdown(name string, count Register, body func()) {
	Label(name)
	body()
	DECQ(count)
	JNZ(LabelRef(name))
}

// predict16 takes so many blocks of columns of a row at a time, so that whole lines of the cache are written.
func predict16(bf16 bool, n int) {
	name, what := "predictBF16x%dAVX512", "bfloat16"
	if !bf16 {
		name, what = "predictF16x%dAVX512", "binary16"
	}
	name = fmt.Sprintf(name, n)
	TEXT(name, NOSPLIT, "func(p, base *byte, stride, rows int, u, v *byte, pairs int, scale float32)")
	Pragma("noescape")
	comment(fmt.Sprintf("%s sets %d columns of each row of p, which are stride bytes apart, to what is predicted of base, numbers in %s.", name, 16*n, what))
	p, base, stride := Load(Param("p"), GP64()), Load(Param("base"), GP64()), Load(Param("stride"), GP64())
	rows, u, v := Load(Param("rows"), GP64()), Load(Param("u"), GP64()), Load(Param("v"), GP64())
	pairs, scale := Load(Param("pairs"), GP64()), ZMM()
	addr, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(addr.Addr, scale)
	limit := uint32(0x477ff000)
	if bf16 {
		limit = 0x7f7f8000
	}
	top, finite, half, one := broadcast(0x7fffffff), broadcast(limit), broadcast(0x7fff), broadcast(1)
	at, left, step, step3 := GP64(), GP64(), GP64(), GP64()
	MOVQ(pairs, step)
	SHLQ(Imm(6), step)
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	blocks := []Mem{{Base: at}, {Base: at, Index: step, Scale: 1}, {Base: at, Index: step, Scale: 2},
		{Base: at, Index: step3, Scale: 1}}[:n]
	countdown("row", rows, func() {
		var sums [4]VecVirtual
		for i := range n {
			sums[i] = zero()
		}
		MOVQ(v, at)
		MOVQ(pairs, left)
		countdown("pair", left, func() {
			x := ZMM()
			VPBROADCASTD(Mem{Base: u}, x)
			for i, m := range blocks {
				y := ZMM()
				VPMADDWD(m, x, y)
				VPADDD(y, sums[i], sums[i])
			}
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		for i, sum := range sums[:n] {
			VCVTDQ2PS(sum, sum)
			VMULPS(scale, sum, sum)
			b, h := ZMM(), YMM()
			if bf16 {
				VPMOVZXWD(Mem{Base: base, Disp: 32 * i}, b)
				x := ZMM()
				VPSLLD(Imm(16), b, x)
				VADDPS(x, sum, sum)
			} else {
				VMOVDQU(Mem{Base: base, Disp: 32 * i}, h)
				VCVTPH2PS(h, b)
				VADDPS(b, sum, sum)
			}
			odd, x := K(), ZMM()
			VPANDD(top, sum, x)
			VPCMPUD(Imm(5), finite, x, odd) // not less
			if bf16 {
				VPSRLD(Imm(16), sum, x)
				VPANDD(one, x, x)
				VPADDD(half, sum, sum)
				VPADDD(x, sum, sum)
				VPSRLD(Imm(16), sum, sum)
				VMOVDQA32(b, odd, sum)
				VPMOVDW(sum, h)
			} else {
				y := YMM()
				VCVTPS2PH(Imm(0), sum, y)
				VMOVDQU16(h, odd, y)
				h = y
			}
			VMOVDQU(h, Mem{Base: p, Disp: 32 * i})
		}
		ADDQ(stride, p)
		ADDQ(stride, base)
	})
	VZEROUPPER()
	RET()
}

// predict32 takes so many rows at a time: of numbers of 24 bits what makes them double precision takes as
// long as a product.
func predict32(n int) {
	name := fmt.Sprintf("predictF32x%dAVX512", n)
	TEXT(name, NOSPLIT, "func(p, base *byte, stride, times int, u *float64, v *byte, r int, scale float64)")
	Pragma("noescape")
	comment(fmt.Sprintf("%s sets 16 columns of %d rows, times as often, of p, which are stride bytes apart, to what is predicted of base.", name, n))
	p, base, stride := Load(Param("p"), GP64()), Load(Param("base"), GP64()), Load(Param("stride"), GP64())
	times, u, v := Load(Param("times"), GP64()), Load(Param("u"), GP64()), Load(Param("v"), GP64())
	r, scale := Load(Param("r"), GP64()), ZMM()
	addr, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSD(addr.Addr, scale)
	top, finite := broadcast(0x7fffffff), broadcast(0x7f800000)
	at, left, step, step3 := GP64(), GP64(), GP64(), GP64()
	MOVQ(r, step)
	SHLQ(Imm(3), step) // of u
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	countdown("rows", times, func() {
		var sums [4][2]VecVirtual
		for i := range n {
			sums[i] = [2]VecVirtual{zero(), zero()}
		}
		MOVQ(v, at)
		MOVQ(r, left)
		countdown("number", left, func() {
			x, low, high, y := ZMM(), ZMM(), ZMM(), YMM()
			VPSLLD(Imm(8), Mem{Base: at}, x)
			VPSRAD(Imm(8), x, x)
			VCVTDQ2PD(x.AsY(), low)
			VEXTRACTI64X4(Imm(1), x, y)
			VCVTDQ2PD(y, high)
			for i, m := range []Mem{{Base: u}, {Base: u, Index: step, Scale: 1},
				{Base: u, Index: step, Scale: 2}, {Base: u, Index: step3, Scale: 1}}[:n] {
				VFMADD231PD_BCST(m, low, sums[i][0])
				VFMADD231PD_BCST(m, high, sums[i][1])
			}
			ADDQ(Imm(8), u)
			ADDQ(Imm(64), at)
		})
		if n == 4 {
			ADDQ(step3, u)
		}
		for i := range n {
			b, lowB, highB, y := ZMM(), ZMM(), ZMM(), YMM()
			low, high := sums[i][0], sums[i][1]
			VMOVUPS(Mem{Base: base}, b)
			VCVTPS2PD(b.AsY(), lowB)
			VEXTRACTF64X4(Imm(1), b, y)
			VCVTPS2PD(y, highB)
			VMULPD(scale, low, low)
			VMULPD(scale, high, high)
			VADDPD(lowB, low, low)
			VADDPD(highB, high, high)
			out, y2, x, odd := ZMM(), YMM(), ZMM(), K()
			VCVTPD2PS(low, out.AsY())
			VCVTPD2PS(high, y2)
			VINSERTF64X4(Imm(1), y2, out, out)
			VPANDD(top, out, x)
			VPCMPUD(Imm(5), finite, x, odd)
			VMOVDQA32(b, odd, out)
			VMOVDQU32(out, Mem{Base: p})
			ADDQ(stride, p)
			ADDQ(stride, base)
		}
	})
	VZEROUPPER()
	RET()
}

// fitFlags are flags and masks of what they have of d and of w.
func fitFlags() (flags, d, w Register) {
	flags = Load(Param("flags"), GP64())
	d, w = K(), K()
	x := GP64()
	MOVQ(flags, x)
	KMOVW(x.As32(), d)
	SHRQ(Imm(16), x)
	KMOVW(x.As32(), w)
	return flags, d, w
}

// fitRows takes 64 columns, four blocks of v, of one row after the other.
func fitRows(project bool) {
	if project {
		TEXT("fitRowsAVX512", NOSPLIT, "func(sums, u, v, d, w *float32, r, rows, stride int, flags uint64)")
		comment("fitRowsAVX512 adds to sums, of which each row has r times 16 numbers, the products of v and of what is left of 64 columns of d, each by w; rows of d and w are stride bytes apart. Where flags lack fitD, d is zeros, fitW, w is ones, and fitLeft, nothing is predicted of d.")
	} else {
		TEXT("leaveAVX512", NOSPLIT, "func(sums, u, v, d, w *float32, r, rows, stride int, flags uint64)")
		comment("leaveAVX512 sets sums, rows of which are stride bytes apart too, to what is left of 64 columns of d, each by w, as fitRowsAVX512 has it.")
	}
	Pragma("noescape")
	g, u, v := Load(Param("sums"), GP64()), Load(Param("u"), GP64()), Load(Param("v"), GP64())
	d, w, r := Load(Param("d"), GP64()), Load(Param("w"), GP64()), Load(Param("r"), GP64())
	rows, stride := Load(Param("rows"), GP64()), Load(Param("stride"), GP64())
	flags, full, weigh := fitFlags()
	step, step3, at, left := GP64(), GP64(), GP64(), GP64()
	MOVQ(r, step)
	SHLQ(Imm(6), step)
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	blocks := []Mem{{Base: at}, {Base: at, Index: step, Scale: 1}, {Base: at, Index: step, Scale: 2},
		{Base: at, Index: step3, Scale: 1}}
	countdown("row", rows, func() {
		var x [4]VecVirtual
		for i := range x {
			x[i] = zero()
		}
		BTQ(Imm(32), flags)
		JCC(LabelRef("left"))
		MOVQ(v, at)
		MOVQ(r, left)
		countdown("predict", left, func() {
			y := ZMM()
			VBROADCASTSS(Mem{Base: u}, y)
			for i, m := range blocks {
				VFMADD231PS(m, y, x[i])
			}
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		Label("left")
		for i := range x {
			y := ZMM()
			VMOVUPS_Z(Mem{Base: d, Disp: 64 * i}, full, y)
			VSUBPS(x[i], y, x[i])
			VMULPS(Mem{Base: w, Disp: 64 * i}, x[i], weigh, x[i])
			if !project {
				VMOVUPS(x[i], Mem{Base: g, Disp: 64 * i})
			}
		}
		if project {
			MOVQ(v, at)
			MOVQ(r, left)
			countdown("project", left, func() {
				y, z := ZMM(), ZMM()
				VMOVUPS(Mem{Base: g}, y)
				VMULPS(blocks[1], x[1], z)
				VFMADD231PS(blocks[0], x[0], y)
				VFMADD231PS(blocks[3], x[3], z)
				VFMADD231PS(blocks[2], x[2], y)
				VADDPS(z, y, y)
				VMOVUPS(y, Mem{Base: g})
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

// fitCols takes a block of 16 columns of four rows at a time.
func fitCols() {
	TEXT("fitColsAVX512", NOSPLIT, "func(sums, v, u, d, w *float32, r, fours, stride int, flags uint64)")
	Pragma("noescape")
	comment("fitColsAVX512 adds to sums, which is as v, the products of u and of what is left of a block of columns of d, each by w, of four times fours rows, which are stride bytes apart. Where flags lack fitD, d is zeros, fitW, w is ones, and fitLeft, nothing is predicted of d.")
	g, v, u := Load(Param("sums"), GP64()), Load(Param("v"), GP64()), Load(Param("u"), GP64())
	d, w, r := Load(Param("d"), GP64()), Load(Param("w"), GP64()), Load(Param("r"), GP64())
	fours, stride := Load(Param("fours"), GP64()), Load(Param("stride"), GP64())
	flags, full, weigh := fitFlags()
	step, step3, at, left := GP64(), GP64(), GP64(), GP64()
	MOVQ(r, step)
	SHLQ(Imm(2), step)
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	rows := []Mem{{Base: u}, {Base: u, Index: step, Scale: 1}, {Base: u, Index: step, Scale: 2},
		{Base: u, Index: step3, Scale: 1}}
	countdown("rows", fours, func() {
		var x [4]VecVirtual
		for i := range x {
			x[i] = zero()
		}
		BTQ(Imm(32), flags)
		JCC(LabelRef("left"))
		MOVQ(v, at)
		MOVQ(r, left)
		countdown("predict", left, func() {
			y := ZMM()
			VMOVUPS(Mem{Base: at}, y)
			for i, m := range rows {
				VFMADD231PS_BCST(m, y, x[i])
			}
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		SUBQ(step, u)
		Label("left")
		for i := range x {
			y := ZMM()
			VMOVUPS_Z(Mem{Base: d}, full, y)
			VSUBPS(x[i], y, x[i])
			VMULPS(Mem{Base: w}, x[i], weigh, x[i])
			ADDQ(stride, d)
			ADDQ(stride, w)
		}
		MOVQ(g, at)
		MOVQ(r, left)
		countdown("spread", left, func() {
			y, z := ZMM(), ZMM()
			VMOVUPS(Mem{Base: at}, y)
			VMULPS_BCST(rows[1], x[1], z)
			VFMADD231PS_BCST(rows[0], x[0], y)
			VFMADD231PS_BCST(rows[3], x[3], z)
			VFMADD231PS_BCST(rows[2], x[2], y)
			VADDPS(z, y, y)
			VMOVUPS(y, Mem{Base: at})
			ADDQ(Imm(4), u)
			ADDQ(Imm(64), at)
		})
		ADDQ(step3, u)
	})
	VZEROUPPER()
	RET()
}

// differences makes what differencesPortable does of 16 elements at a time.
func differences(kind int, name string) {
	TEXT("differences"+name+"AVX512", NOSPLIT, "func(d, w *float32, raw, base *byte, blocks int, least, middle uint64)")
	Pragma("noescape")
	comment("differences" + name + "AVX512 sets d to the differences of blocks times 16 elements, and w to how they count: by their exponents, which are least at least and count as 1 at middle.")
	d, w, raw, base := Load(Param("d"), GP64()), Load(Param("w"), GP64()), Load(Param("raw"), GP64()),
		Load(Param("base"), GP64())
	blocks, least, middle := Load(Param("blocks"), GP64()), ZMM(), ZMM()
	x := Load(Param("least"), GP64())
	VPBROADCASTD(x.(GPVirtual).As32(), least)
	x = Load(Param("middle"), GP64())
	VPBROADCASTD(x.(GPVirtual).As32(), middle)
	mask, sharpest, faintest, one := broadcast(255), broadcast(0xfffffffc), broadcast(20), broadcast(127)
	countdown("block", blocks, func() {
		number := func(p Register) VecVirtual {
			v := ZMM()
			switch kind {
			case 0:
				VPMOVZXWD(Mem{Base: p}, v)
				VPSLLD(Imm(16), v, v)
			case 1:
				VCVTPH2PS(Mem{Base: p}, v)
			default:
				VMOVUPS(Mem{Base: p}, v)
			}
			return v
		}
		x, by, e, weight, finite, known := number(raw), ZMM(), ZMM(), ZMM(), K(), K()
		VSUBPS(number(base), x, by)
		VPSRLD(Imm(23), by, e)
		VPANDD(mask, e, e)
		VPCMPUD(Imm(4), mask, e, finite) // not equal
		VPSRLD(Imm(23), x, e)
		VPANDD(mask, e, e)
		VPMAXSD(least, e, e)
		VPSUBD(middle, e, e)
		VPMAXSD(sharpest, e, e)
		VPCMPD(Imm(2), faintest, e, known) // less or equal
		KANDW(finite, known, known)
		VPADDD(e, e, e)
		VPSUBD(e, one, weight)
		VPSLLD_Z(Imm(23), weight, known, weight)
		VMOVDQA32_Z(by, known, by)
		VMOVUPS(weight, Mem{Base: w})
		VMOVUPS(by, Mem{Base: d})
		for _, p := range []Register{d, w} {
			ADDQ(Imm(64), p)
		}
		step := uint64(32)
		if kind == 2 {
			step = 64
		}
		for _, p := range []Register{raw, base} {
			ADDQ(Imm(step), p)
		}
	})
	VZEROUPPER()
	RET()
}

// singles makes single precision of factors.
func singles(bits int) {
	name := fmt.Sprintf("singles%dAVX512", bits)
	TEXT(name, NOSPLIT, "func(dst *float32, src *byte, vectors int)")
	Pragma("noescape")
	comment(fmt.Sprintf("%s sets dst to vectors times 64 bytes of src, numbers of %d bits; of pairs the first ones come before the second ones.", name, bits))
	dst, src, vectors := Load(Param("dst"), GP64()), Load(Param("src"), GP64()),
		Load(Param("vectors"), GP64())
	countdown("vector", vectors, func() {
		x, y := ZMM(), ZMM()
		VMOVDQU32(Mem{Base: src}, x)
		if bits == 24 {
			VPSLLD(Imm(8), x, x)
			VPSRAD(Imm(8), x, x)
			VCVTDQ2PS(x, x)
			VMOVUPS(x, Mem{Base: dst})
			ADDQ(Imm(64), dst)
		} else {
			VPSLLD(Imm(16), x, y)
			VPSRAD(Imm(16), y, y)
			VPSRAD(Imm(16), x, x)
			VCVTDQ2PS(y, y)
			VCVTDQ2PS(x, x)
			VMOVUPS(y, Mem{Base: dst})
			VMOVUPS(x, Mem{Base: dst, Disp: 64})
			ADDQ(Imm(128), dst)
		}
		ADDQ(Imm(64), src)
	})
	VZEROUPPER()
	RET()
}
