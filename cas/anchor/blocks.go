package anchor

import (
	"math"
	"sync"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// dequantise sets x to the numbers of blocks (package quant says how they lie). It need not be exact: what is
// looked at is which are the greatest.
func dequantise(f quant.Format, x []float32, p []byte) {
	elems, size := f.Block()
	switch f {
	case quant.F8E4M3, quant.F8E5M2:
		table := e4m3()
		if f == quant.F8E5M2 {
			table = e5m2()
		}
		for i, c := range p[:len(x)] {
			x[i] = table[c]
		}
		return
	}
	for ; len(x) >= elems; x, p = x[elems:], p[size:] {
		block(f, x[:elems], p[:size])
	}
}

func scale(p []byte) float32 { return half.FromF16(le.Uint16(p)) }

func block(f quant.Format, x []float32, p []byte) {
	switch f {
	case quant.Q8_0:
		d := scale(p)
		for i, c := range p[2:34] {
			x[i] = d * float32(int8(c))
		}
	case quant.Q4_0:
		nibbles(x, p[2:18], scale(p), func(c byte) float32 { return float32(c) - 8 })
	case quant.Q4_1:
		nibbles(x, p[4:20], scale(p), func(c byte) float32 { return float32(c) })
		shift(x, scale(p[2:]))
	case quant.Q5_0, quant.Q5_1:
		fives(f, x, p)
	case quant.IQ4_NL:
		nibbles(x, p[2:18], scale(p), table4)
	case quant.IQ4_XS:
		high := le.Uint16(p[2:])
		for j := range 8 {
			sc := int(p[4+j/2]>>(j%2*4)&15) | int(high>>(2*j)&3)<<4
			nibbles(x[32*j:32*j+32], p[8+16*j:24+16*j], scale(p)*float32(sc-32), table4)
		}
	case quant.MXFP4:
		nibbles(x, p[1:17], float32(math.Ldexp(1, int(p[0])-127)), func(c byte) float32 { return e2m1[c] })
	case quant.Q2_K:
		d, m := scale(p[80:]), scale(p[82:])
		for i := range x {
			s := p[i/16]
			x[i] = d*float32(s&15)*float32(twos(p[16:80], i)) - m*float32(s>>4)
		}
	case quant.Q3_K:
		d, s := scale(p[108:]), p[96:108]
		for i := range x {
			j := i / 16
			sc := s[j%8]>>(j/8*4)&15 | s[8+j%4]>>(j/4*2)&3<<4
			c := twos(p[32:96], i) | p[i%32]>>(i/32)&1<<2
			x[i] = d * float32(int(sc)-32) * (float32(c) - 4)
		}
	case quant.Q4_K, quant.Q5_K:
		fourths(f, x, p)
	case quant.Q6_K:
		d := scale(p[208:])
		for i := range x {
			h, l := i/128, i%128
			lo := p[64*h+l%64] >> (l / 64 * 4) & 15
			hi := p[128+32*h+l%32] >> (l / 32 * 2) & 3
			x[i] = d * float32(int8(p[192+i/16])) * float32(int(lo|hi<<4)-32)
		}
	}
}

// nibbles are 32 codes in 16 bytes.
func nibbles(x []float32, p []byte, d float32, value func(c byte) float32) {
	for j, c := range p[:16] {
		x[j], x[j+16] = d*value(c&15), d*value(c>>4)
	}
}

func shift(x []float32, by float32) {
	for i := range x {
		x[i] += by
	}
}

// fives is Q5_0 and Q5_1.
func fives(f quant.Format, x []float32, p []byte) {
	d, m, head := scale(p), float32(0), 2
	if f == quant.Q5_1 {
		m, head = scale(p[2:]), 4
	} else {
		m = -16 * d
	}
	high, q := le.Uint32(p[head:]), p[head+4:]
	for j := range 16 {
		x[j] = d*float32(uint32(q[j]&15)|high>>j&1<<4) + m
		x[j+16] = d*float32(uint32(q[j]>>4)|high>>(j+16)&1<<4) + m
	}
}

// twos is code i of two bits.
func twos(p []byte, i int) byte { return p[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3 }

// fourths is Q4_K and Q5_K.
func fourths(f quant.Format, x []float32, p []byte) {
	d, m, s := scale(p), scale(p[2:]), p[4:16]
	q := p[16:]
	var high []byte
	if f == quant.Q5_K {
		high, q = p[16:48], p[48:]
	}
	for j := range 8 {
		var sc, mn byte
		if j < 4 {
			sc, mn = s[j]&63, s[j+4]&63
		} else {
			sc, mn = s[j+4]&15|s[j-4]>>6<<4, s[j+4]>>4|s[j]>>6<<4
		}
		a, b := d*float32(sc), m*float32(mn)
		for l := range 32 {
			c := q[j/2*32+l] >> (j % 2 * 4) & 15
			if high != nil {
				c |= high[l] >> j & 1 << 4
			}
			x[32*j+l] = a*float32(c) - b
		}
	}
}

func table4(c byte) float32 {
	return [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}[c]
}

var e2m1 = [16]float32{0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6}

var (
	e4m3 = sync.OnceValue(func() *[256]float32 { return eights(3, 7) })
	e5m2 = sync.OnceValue(func() *[256]float32 { return eights(2, 15) })
)

// eights are the numbers of eight bits with such a mantissa and bias. Those that are none, or infinite, are
// taken as greater than all others.
func eights(mantissa uint, bias int) *[256]float32 {
	t := new([256]float32)
	for c := range t {
		m, e := c&(1<<mantissa-1), c>>mantissa&(1<<(7-mantissa)-1)
		v := math.Ldexp(float64(m+1<<mantissa), e-bias-int(mantissa))
		if e == 0 {
			v = math.Ldexp(float64(m), 1-bias-int(mantissa))
		}
		if mantissa == 3 && c&0x7f == 0x7f || mantissa == 2 && e == 31 {
			v = math.Inf(1)
		}
		if c >= 128 {
			v = -v
		}
		t[c] = float32(v)
	}
	return t
}
