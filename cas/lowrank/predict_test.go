package lowrank

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas/codectest"
)

var kinds = []Kind{BF16, F16, F32}

// wants predicts as the package comment says it, by numbers of any precision.
func (l *Shape) wants(base, u, columns []byte) (p []byte) {
	w := l.Kind.Width()
	prec := uint(2000)
	number := func(p []byte) int64 {
		if w == 4 {
			return int64(number24(p))
		}
		return int64(int16(le.Uint16(p)))
	}
	for i := range l.N {
		row, col := (l.At+i)/l.Cols, (l.At+i)%l.Cols
		block, k := col/blockCols, col%blockCols
		width := min(blockCols, l.Cols-block*blockCols)
		v := columns[block*blockCols*l.Rank*w:]
		var sum int64
		for j := range l.Rank {
			at := j*width + k
			if w == 2 {
				at = j/2*2*width + 2*k + j%2
			}
			sum += number(u[(row*l.Rank+j)*w:]) * number(v[at*w:])
		}
		elem := base[i*w : (i+1)*w]
		b := float64(float(elem, l.Kind))
		if b-b != 0 {
			p = append(p, elem...)
			continue
		}
		if w == 2 { // to the nearest, step by step
			s, _ := new(big.Float).SetInt64(int64(int32(sum))).Float32()
			x, _ := new(big.Float).SetMantExp(big.NewFloat(float64(s)), int(l.Exp)).Float32()
			if math.IsInf(float64(x), 0) {
				p = append(p, elem...)
				continue
			}
			y, _ := new(big.Float).SetPrec(prec).Add(big.NewFloat(b), big.NewFloat(float64(x))).Float32()
			if y == 0 && b == 0 {
				y = float32(b) + x // the sign of zero
			}
			inf, value := uint16(0x7f80), codectest.BF16Value
			if l.Kind == F16 {
				inf, value = 0x7c00, codectest.F16Value
			}
			h := codectest.HalfOf(y, value, inf)
			if h&inf == inf {
				p = append(p, elem...)
				continue
			}
			p = le.AppendUint16(p, h)
			continue
		}
		x, _ := new(big.Float).SetMantExp(new(big.Float).SetInt64(sum), int(l.Exp)).Float64()
		d, _ := new(big.Float).SetPrec(prec).Add(big.NewFloat(b), big.NewFloat(x)).Float64()
		if d == 0 && b == 0 {
			d = b + x
		}
		y, _ := big.NewFloat(d).Float32()
		if math.IsInf(float64(y), 0) {
			p = append(p, elem...)
			continue
		}
		p = le.AppendUint32(p, math.Float32bits(y))
	}
	return p
}

// TestPredict: of any base, factors and scale kernels and twin predict what the package comment says.
func TestPredict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		l := Shape{Kind: kind, Rank: 2 * rapid.IntRange(1, MaxRank/2).Draw(t, "pairs"),
			Cols: rapid.IntRange(MinCols, 150).Draw(t, "cols"),
			Exp:  rapid.Int8().Draw(t, "e"), N: rapid.IntRange(1, 1000).Draw(t, "elements")}
		l.At = rapid.IntRange(0, l.Cols-1).Draw(t, "at")
		w := l.Kind.Width()
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		some := func(n, small int) []byte {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			for i := 0; i+w <= n && small > 0; i += w {
				kind.store(p[i:], int64(rng.IntN(2*small+1)-small))
			}
			return p
		}
		base := some(l.N*w, 0)
		for i := 0; i < l.N; i += 3 { // what is not finite, zeros, and the least and the largest
			odd := [][]int64{{0x7f80, 0xff80, 0x7fff, 0, 0x8000, 1, 0x7f7f, 0xff7f},
				{0x7c00, 0xfc00, 0x7e01, 0, 0x8000, 1, 0x7bff, 0xfbff},
				{0x7f800000, 0xff800000, 0x7f800001, 0, 1 << 31, 1, 0x7f7fffff, 0xff7fffff}}[l.Kind-1]
			kind.store(base[i*w:], odd[rng.IntN(len(odd))])
		}
		small := rapid.SampledFrom([]int{0, 1, 100, 5000}).Draw(t, "small")
		u, v := some(l.Rows()*l.Rank*w, small), some(l.Cols*l.Rank*w, small)
		if rapid.Bool().Draw(t, "least") {
			for _, p := range [][]byte{u, v} {
				for i := 0; i < len(p); i += w {
					kind.store(p[i:], 1<<(8*w-1-w/4*8))
				}
			}
		}
		want := l.wants(base, u, v)
		codectest.Levels(func(how string) {
			got := bytes.Repeat([]byte{0xee}, l.N*w)
			l.Predict(new(Scratch), got, base, u, v)
			for i := range l.N {
				if !bytes.Equal(got[i*w:(i+1)*w], want[i*w:(i+1)*w]) {
					t.Fatalf("%s: element %d, % x: % x, want % x", how, i, base[i*w:(i+1)*w], got[i*w:(i+1)*w], want[i*w:(i+1)*w])
				}
			}
		})
	})
}
