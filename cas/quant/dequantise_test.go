package quant

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"ckptfs/cas"
)

// TestNumbers: blocks stand for the numbers that ggml and torch make of them.
func TestNumbers(t *testing.T) {
	digests, err := os.ReadFile("testdata/numbers.sha256")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(digests)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	for _, g := range goldens(t, "testdata") {
		x := make([]float32, len(g.x))
		if err := g.q.Dequantise(x, g.blocks); err != nil {
			t.Fatal(g.name, err)
		}
		var p []byte
		for _, v := range x {
			p = le.AppendUint32(p, bits(v))
		}
		if sum := sha256.Sum256(p); hex.EncodeToString(sum[:]) != want[g.name] {
			t.Errorf("%s: other numbers", g.name)
		}
	}
}

// TestAnyNumbers: blocks of any bytes have numbers, and what is none is the one that is none.
func TestAnyNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for f := Format(1); !f.Ruled(); f++ {
		elems, size := f.Block()
		q := Quantiser{Format: f}
		n := 400 * elems
		if f.FP8() {
			q.Scales = Scales{Type: BF16, Rows: 20, Cols: 20, Tall: 1, Wide: 20}
			for range 20 {
				q.Scales.Values = append(q.Scales.Values, BF16.value(rng.Uint32()&0xffff))
			}
		}
		p, x, none := make([]byte, n/elems*size), make([]float32, n), 0
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		if err := q.Dequantise(x, p); err != nil {
			t.Fatal(f, err)
		}
		for _, v := range x {
			if v != v {
				none++
				if bits(v) != 0x7fc00000 {
					t.Fatalf("%v: %x", f, bits(v))
				}
			}
		}
		if none == 0 && f != MXFP4 {
			t.Errorf("%v: all are numbers", f)
		}
		if err := q.Dequantise(x, p[1:]); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%v: %v", f, err)
		}
	}
}

func BenchmarkDequantise(b *testing.B) {
	for _, f := range []Format{Q8_0, Q4_K, Q5_K, Q6_K, Q2_K, MXFP4, F8E4M3} {
		b.Run(f.String(), func(b *testing.B) {
			elems, size := f.Block()
			x, p := make([]float32, 1<<17), make([]byte, 1<<17/elems*size)
			q := Quantiser{Format: f}
			b.SetBytes(2 << 17) // as bfloat16
			for b.Loop() {
				if err := q.Dequantise(x, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
