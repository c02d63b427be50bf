package recipe

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ckptfs/cas/quant"
)

// BenchmarkDecode is of a chunk of 256 KiB, of bases that are at hand.
func BenchmarkDecode(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, format := range []quant.Format{quant.Q8_0, quant.Q4_K, quant.Q6_K, quant.Q4_0} {
		elems, size := format.Block()
		n := (256 << 10) / size * elems
		x := make([]float32, n)
		for i := range x {
			x[i] = rounder(BF16)(float32(rng.NormFloat64() * 0.02))
		}
		bases := make([]byte, 2*n)
		narrow(bases, x, BF16)
		q := quant.Quantiser{Format: format}
		var s quant.Streams
		raw, err := q.Restore(nil, &s, x)
		if err != nil {
			b.Fatal(err)
		}
		for _, takes := range []string{"whole", "rows"} {
			take := Run(BF16, 0, n)
			if takes == "rows" {
				take = Take{BF16, []Group{{n / 32, []Stretch{{0, 32, 32}}}}}
			}
			prog := Program{take, Widen{}, Quantise{Quantiser: q}}.Append(nil)
			stored, ok := Encode(nil, prog, raw, bases, len(raw))
			if !ok {
				b.Fatal("not encoded")
			}
			b.Run(fmt.Sprint(format, "/", takes), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				var out []byte
				for b.Loop() {
					if out, err = Decode(out[:0], stored, bases, len(raw)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkTranspose: a chunk of a transpose, of 36 bases that are at hand.
func BenchmarkTranspose(b *testing.B) {
	const rows, cols, k = 768, 3072, 22
	base := make([]byte, 4*rows*cols)
	prog := append(Program{Take{F32, []Group{{cols, []Stretch{{5, k, rows}}}}},
		Transpose{cols, k, 100, 65536}}.Append(nil), 0)
	out := make([]byte, 0, 262144)
	b.SetBytes(262144)
	for b.Loop() {
		if _, err := Decode(out, prog, base, 262144); err != nil {
			b.Fatal(err)
		}
	}
}
