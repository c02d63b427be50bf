package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas/codectest"
	"ckptfs/cas/half"
)

var measured = []Format{Q8_0, Q4_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS, MXFP4, F8E4M3}

// BenchmarkRestore makes what a chunk has of blocks, of weights in bfloat16, at each level. Bytes are those
// of the blocks.
func BenchmarkRestore(b *testing.B) {
	for _, f := range measured {
		q, blocks, x := weights(b, f)
		var s Streams
		if err := q.Differ(&s, blocks, x); err != nil {
			b.Fatal(err)
		}
		codectest.Levels(func(level string) {
			b.Run(f.String()+"/"+level, func(b *testing.B) {
				b.SetBytes(int64(len(blocks)))
				b.ReportAllocs()
				dst := make([]byte, 0, len(blocks))
				for b.Loop() {
					if _, err := q.Restore(dst, &s, x); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkDiffer finds out what is left of them.
func BenchmarkDiffer(b *testing.B) {
	for _, f := range measured {
		q, blocks, x := weights(b, f)
		codectest.Levels(func(level string) {
			b.Run(f.String()+"/"+level, func(b *testing.B) {
				b.SetBytes(int64(len(blocks)))
				b.ReportAllocs()
				var s Streams
				for b.Loop() {
					if err := q.Differ(&s, blocks, x); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// weights are the blocks of a chunk whose scales differ a bit from those predicted.
func weights(t testing.TB, f Format) (q Quantiser, blocks []byte, x []float32) {
	r := rand.New(rand.NewPCG(1, 2))
	elems, size := f.Block()
	n := 256 << 10 / size * elems
	raw := codectest.Weights(2*n, 2)
	for i := range n {
		x = append(x, half.FromBF16(le.Uint16(raw[2*i:])))
	}
	q = Quantiser{Format: f}
	if f.FP8() {
		q.Scales = Scales{Rows: n / 4096, Cols: 4096, Tall: 1, Wide: 4096}
	}
	var s Streams
	blocks, err := q.Restore(nil, &s, x)
	if err != nil {
		t.Fatal(err)
	}
	if f >= Q2_K && f <= Q6_K {
		for p := blocks; len(p) > 0; p = p[size:] {
			var sc, mn [16]byte
			q.split(p, &sc, &mn)
			for i := range sc {
				sc[i] -= byte(min(math.Abs(r.NormFloat64())*2, float64(sc[i])))
				mn[i] -= byte(min(math.Abs(r.NormFloat64())*2, float64(mn[i])))
			}
			q.join(p, &sc, &mn)
			q.put16(p, 0, q.get16(p, 0)-uint16(r.IntN(30)))
		}
		if err := q.Differ(&s, blocks, x); err != nil {
			t.Fatal(err)
		}
		clear(s[maskStream:]) // the codes are those that follow
		if blocks, err = q.Restore(nil, &s, x); err != nil {
			t.Fatal(err)
		}
	}
	if f.FP8() {
		q.Scales.Values = make([]float32, len(q.Scales.Groups(n)))
		for i := range q.Scales.Values {
			q.Scales.Values[i] = math.Float32frombits(magnitude(x[4096*i:][:4096])) / f.greatest()
		}
	}
	return q, blocks, x
}
