package quant

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas/half"
)

var folder = flag.String("quants", "", "a folder of more goldens, that testdata/make.py wrote, for TestLeft")

// A golden is what a quantiser made of x: blocks of a format, with an importance matrix or plain, in a build
// without FMA or one with; or codes of FP8, by groups of elements that share a scale, and in which
// arithmetic.
type golden struct {
	name   string
	q      Quantiser
	imat   bool
	blocks []byte
	x      []float32
}

func goldens(t testing.TB, dir string) (all []golden) {
	raw, err := os.ReadFile(filepath.Join(dir, "weights.bf16"))
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(raw)/2)
	for i := range x {
		x[i] = half.FromBF16(le.Uint16(raw[2*i:]))
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.*.*"))
	if err != nil || len(names) == 0 {
		t.Fatal("no goldens in", dir, err)
	}
	for _, name := range names {
		g := golden{name: filepath.Base(name), x: x}
		part := strings.Split(g.name, ".")
		var ok bool
		if g.q.Format, ok = ByName(part[0]); !ok {
			t.Fatal(name)
		}
		if g.blocks, err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		if g.imat = part[1] == "imat"; g.q.Format.FP8() {
			g.scales(part[1], int(part[2][0]-'0'), len(raw) > 10_000)
		}
		all = append(all, g)
	}
	return all
}

// scales takes the scales that follow the codes.
func (g *golden) scales(group string, variant int, large bool) {
	s := &g.q.Scales
	*s = Scales{Rows: 16, Cols: 256}
	if large {
		s.Rows, s.Cols = 128, 1536
	}
	n := s.Rows * s.Cols
	g.x = g.x[:n]
	switch group {
	case "tensor":
		s.Tall, s.Wide = s.Rows, s.Cols
	case "row":
		s.Tall, s.Wide = 1, s.Cols
	case "block":
		s.Tall, s.Wide = 8, 64
		if large {
			s.Tall, s.Wide = 128, 128
		}
	}
	switch variant {
	case DivideBF16, TimesBF16:
		s.Type = BF16
	case DivideF16:
		s.Type = F16
		g.x = slices.Clone(g.x)
		for i, x := range g.x {
			g.x[i] = half.FromF16(f16(x))
		}
	}
	for p := g.blocks[n:]; len(p) > 0; p = p[4:] {
		s.Values = append(s.Values, math.Float32frombits(le.Uint32(p)))
	}
	g.blocks, g.q.Variant = g.blocks[:n:n], uint8(variant)
}

// atLeast is the share of codes that follows, of blocks from real quantisers: as the specification measured
// it, rounded down. The goldens have few blocks: one code in 4096 is 0.024 %.
func (g *golden) atLeast() float64 {
	switch g.q.Format {
	case Q4_K, Q5_K, Q6_K, Q8_0, MXFP4:
		return 1
	case Q2_K, Q3_K, IQ4_NL, IQ4_XS:
		return 0.998
	case Q4_0, Q4_1, Q5_0, Q5_1:
		if g.imat {
			return 0.985
		}
	}
	return 1
}

// whole reports whether all follows from x.
func (g *golden) whole() bool {
	switch g.q.Format {
	case Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4:
		return !g.imat
	}
	return false
}

func TestGoldens(t *testing.T) {
	for _, g := range goldens(t, "testdata") {
		t.Run(g.name, func(t *testing.T) {
			n := len(g.x)
			if !g.q.Format.FP8() {
				n = 14 * 256 // those after them have parts whose scale is 0
			}
			elems, size := g.q.Format.Block()
			q, share, err := Fits(g.q, g.blocks[:n/elems*size], g.x[:n])
			if err != nil {
				t.Fatal(err)
			}
			if share < g.atLeast() {
				t.Errorf("variant %d: %.4f %% of codes follow, want %.4f", q.Variant, 100*share, 100*g.atLeast())
			}
			var s Streams
			if err := q.Differ(&s, g.blocks, g.x); err != nil {
				t.Fatal(err)
			}
			if left := s.bytes(); left > 0 && g.whole() {
				t.Errorf("variant %d: %d bytes are left", q.Variant, left)
			}
			restores(t, &q, &s, g.blocks, g.x)
		})
	}
}

func (s *Streams) bytes() (n int) {
	for _, p := range s {
		n += len(p)
	}
	return n
}

// restores fails unless s gives blocks.
func restores(t testing.TB, q *Quantiser, s *Streams, blocks []byte, x []float32) {
	t.Helper()
	if n := s.bytes(); n > q.Bound(len(x)) {
		t.Fatalf("%d bytes of streams, the bound is %d", n, q.Bound(len(x)))
	}
	without := *q
	without.Scales.Values = nil
	got, err := without.Restore([]byte("before"), s, x)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := bytes.CutPrefix(got, []byte("before")); !ok || !bytes.Equal(got, blocks) {
		for i := range got {
			if got[i] != blocks[i] {
				t.Fatalf("%v, variant %d: byte %d of %d is %#x, want %#x", q.Format, q.Variant, i, len(blocks), got[i],
					blocks[i])
			}
		}
		t.Fatalf("%d bytes, want %d", len(got), len(blocks))
	}
}

// TestLeft prints what is left of blocks of each format: of the streams, each coded by itself at its entropy.
func TestLeft(t *testing.T) {
	if *folder == "" {
		t.Skip("no -quants")
	}
	for _, g := range goldens(t, *folder) {
		n := min(1<<30, len(g.blocks))
		q, share, err := Fits(g.q, g.blocks[:n], g.x)
		if err != nil {
			t.Fatal(err)
		}
		var s Streams
		if err := q.Differ(&s, g.blocks, g.x); err != nil {
			t.Fatal(err)
		}
		restores(t, &q, &s, g.blocks, g.x)
		total := 0.0
		var by []string
		for i, p := range s {
			if bits := entropy(p); bits > 0 {
				total += bits
				by = append(by, fmt.Sprintf("%d:%.3f", i, 100*bits/8/float64(len(g.blocks))))
			}
		}
		fmt.Printf("%-18s variant %d %9.5f %% of codes %6.3f %% left  %s\n", g.name, q.Variant, 100*share,
			100*total/8/float64(len(g.blocks)), strings.Join(by, " "))
	}
}

// entropy is that of order 0, in bits.
func entropy(p []byte) (bits float64) {
	var n [256]int
	for _, b := range p {
		n[b]++
	}
	if slices.Max(n[:]) == len(p) {
		return 0
	}
	for _, n := range n {
		if n > 0 {
			bits -= float64(n) * math.Log2(float64(n)/float64(len(p)))
		}
	}
	return bits
}
