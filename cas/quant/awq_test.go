package quant

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"ckptfs/cas/codectest"
	"ckptfs/cas/half"
)

// awqLayer is a layer as AutoAWQ makes it: weights of so many inputs, each of so many outputs, in binary16,
// and what became of them, in groups of so many inputs.
type awqLayer struct {
	x     []float32
	codes []byte
	q     Quantiser
	ch    channels // by which they were made
}

func newAWQ(r *rand.Rand, inputs, outputs, group int, folded bool) *awqLayer {
	h := func(v float64) float32 { return asF16(float32(v)) }
	l := &awqLayer{x: make([]float32, inputs*outputs), codes: make([]byte, inputs*outputs)}
	for i := range l.x {
		l.x[i] = h(0.02 * r.NormFloat64())
	}
	for range inputs {
		l.ch.inputs = append(l.ch.inputs, h(math.Exp(0.5*r.NormFloat64())))
	}
	for range outputs {
		t := float32(1)
		if folded {
			t = h(math.Exp(0.5 * r.NormFloat64()))
		}
		l.ch.outputs = append(l.ch.outputs, t)
	}
	l.q = Quantiser{Format: AWQ, Variant: HalfF16,
		Scales: Scales{Type: F16, Rows: inputs, Cols: outputs, Tall: group, Wide: 1}}
	y := func(i, o int) float32 {
		return asF16(asF16(float32(l.x[i*outputs+o]*l.ch.inputs[i])) / l.ch.outputs[o])
	}
	var scales, zeros []byte
	for g := range inputs / group {
		all := make([]byte, outputs)
		for o := range outputs {
			lo, hi := inf, -inf
			for i := g * group; i < (g+1)*group; i++ {
				lo, hi = min(lo, y(i, o)), max(hi, y(i, o))
			}
			// One group in three is clipped.
			if r.IntN(3) == 0 {
				top := max(hi, -lo) * 0.8
				lo, hi = max(lo, -top), min(hi, top)
			}
			a := asF16(asF16(hi-lo) / 15)
			z := float32(math.RoundToEven(float64(-asF16(lo / a))))
			all[o] = byte(min(max(z, 0), 15))
			scales = le.AppendUint16(scales, f16(a))
			for i := g * group; i < (g+1)*group; i++ {
				v := math.RoundToEven(float64(asF16(min(max(y(i, o), lo), hi) / a)))
				l.codes[i*outputs+o] = byte(min(max(v+float64(all[o]), 0), 15))
			}
		}
		words := make([]byte, outputs/2)
		packLanes(words, all)
		zeros = append(zeros, words...)
	}
	l.q.Aside = append(scales, zeros...)
	return l
}

// part is the quantiser of n elements from at on, and their words.
func (l *awqLayer) part(at, n int) (Quantiser, []byte) {
	q := l.q
	q.Scales.At = at
	first, count, size, zeros := q.Scales.AsideOf(n)
	all := q.Scales.Rows / q.Scales.Tall * size
	q.Aside = append(bytes.Clone(l.q.Aside[first*size:(first+count)*size]),
		l.q.Aside[all+first*zeros:all+(first+count)*zeros]...)
	words := make([]byte, n/2)
	packLanes(words, l.codes[at:at+n])
	return q, words
}

// TestAWQ: codes of weights that were multiplied by factors follow once these are found.
func TestAWQ(t *testing.T) {
	for _, c := range []struct {
		name            string
		inputs, outputs int
		folded          bool
		most            float64 // share of codes that do not follow
	}{
		{"inputs", 256, 384, false, 0.0005},
		{"few outputs", 512, 64, false, 0.005},
		{"inputs and outputs", 512, 256, true, 0.006},
	} {
		l := newAWQ(rand.New(rand.NewPCG(31, 32)), c.inputs, c.outputs, 128, c.folded)
		for _, from := range []int{0, 3*c.outputs + 16} {
			n := len(l.x) - from - 2*c.outputs/3/8*8
			q, words := l.part(from, n)
			x := l.x[from : from+n]
			var s Streams
			if err := q.Differ(&s, words, x); err != nil {
				t.Fatal(err)
			}
			got, err := q.Restore(nil, &s, x)
			if err != nil || !bytes.Equal(got, words) {
				t.Fatalf("%s: other words come back, %v", c.name, err)
			}
			fit, share, err := Fits(q, words, x)
			if err != nil {
				t.Fatal(err)
			}
			sizes := 0
			for _, p := range s[:maskStream] {
				sizes += len(p)
			}
			t.Logf("%s from %d: variant %d, %.4f %% do not follow; %d bytes of factors for %d", c.name, from,
				fit.Variant, 100*(1-share), sizes, len(words))
			if 1-share > c.most {
				t.Errorf("%s from %d: %.4f %% do not follow", c.name, from, 100*(1-share))
			}
			if wrong := len(s[factorStream+2]) > 0; wrong != c.folded {
				t.Errorf("%s from %d: factors of outputs: %v", c.name, from, wrong)
			}
			// Weights that have nothing to do with them.
			other := newAWQ(rand.New(rand.NewPCG(33, 34)), c.inputs, c.outputs, 128, c.folded)
			if _, share, _ := Fits(q, words, other.x[from:from+n]); share > 0.5 {
				t.Errorf("%s: %.2f follow of others", c.name, share)
			}
		}
	}
}

// TestAsF16: all numbers of single precision with the upper bits of binary16's, and those around the halves.
func TestAsF16(t *testing.T) {
	for k := range 1 << 16 {
		for _, low := range []uint32{0, 1, 0x0fff, 0x1000, 0x1001, 0x17ff, 0x1fff} {
			for _, x := range []uint32{uint32(k)<<16 | low, bits(half.FromF16(uint16(k))) + low} {
				want := half.FromF16(half.ToF16(x))
				if got := asF16(math.Float32frombits(x)); got != want && (got == got || want == want) ||
					bits(got)>>31 != bits(want)>>31 {
					t.Fatalf("%08x becomes %x, want %x", x, bits(got), bits(want))
				}
			}
		}
	}
}

// TestLanes: words come back, and output o is where AutoAWQ has it.
func TestLanes(t *testing.T) {
	codes, words := []byte{0, 1, 2, 3, 4, 5, 6, 7}, make([]byte, 4)
	packLanes(words, codes)
	if got := le.Uint32(words); got != 0x75316420 {
		t.Errorf("%08x", got)
	}
	back := make([]byte, 8)
	if unpackLanes(back, words); !bytes.Equal(back, codes) {
		t.Errorf("%v", back)
	}
}

// TestRows: all levels make the same codes of a row, of any numbers, scales and factors, also around what
// binary16 has; and read nothing else.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 38))
	edges := func(n int) []float32 {
		p := codectest.Edge(t, make([]byte, 4*n))
		x := unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), n)
		copy(x, hostile(r, n))
		for i := range x {
			switch r.IntN(4) {
			case 0: // half way between two of binary16, or beside that
				f := half.FromF16(uint16(r.Uint32()))
				x[i] = math.Float32frombits(bits(f) + 0xfff + uint32(r.IntN(3)))
			case 1:
				x[i] = half.FromF16(uint16(r.Uint32()))
			}
		}
		return x
	}
	for round := range 600 {
		n := 8 * (1 + r.IntN(40))
		if round > 50 {
			n = 256
		}
		x, factors, room := edges(n), edges(n+8), codectest.Edge(t, make([]byte, n))
		of := row{output: 8, scales: edges(n), zeros: codectest.Edge(t, make([]byte, n))}
		for i := range of.zeros {
			of.zeros[i] = byte(r.IntN(16))
			switch round % 3 {
			case 1: // codes in between
				of.scales[i] = asF16(float32(math.Abs(r.NormFloat64())) / 4)
				x[i] = float32(r.NormFloat64())
			case 2:
				x[i] = float32(r.IntN(41)-20) / 2 * of.scales[i]
			}
		}
		s := []float32{1, asF16(float32(math.Exp(r.NormFloat64()))), edges(1)[0]}[round%3]
		for v := range uint8(AWQ.Variants()) {
			for _, t8 := range [][]float32{nil, factors} {
				var all [][]byte
				codectest.Levels(func(string) {
					of.predict(v, room, x, s, t8)
					all = append(all, bytes.Clone(room))
				})
				if !codectest.Same(all) {
					t.Fatalf("variant %d, factors of outputs %v: the levels differ: %v", v, t8 != nil, all)
				}
			}
		}
	}
}

// BenchmarkAWQ is of a chunk of 256 KiB, with and without factors of outputs. Bytes are those of the words.
func BenchmarkAWQ(b *testing.B) {
	for _, folded := range []bool{false, true} {
		l := newAWQ(rand.New(rand.NewPCG(35, 36)), 512, 1024, 128, folded)
		q, words := l.part(0, len(l.x))
		var s Streams
		if err := q.Differ(&s, words, l.x); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("restore/folded=", folded), func(b *testing.B) {
			b.SetBytes(int64(len(words)))
			dst := make([]byte, 0, len(words))
			for b.Loop() {
				if _, err := q.Restore(dst, &s, l.x); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint("differ/folded=", folded), func(b *testing.B) {
			b.SetBytes(int64(len(words)))
			for b.Loop() {
				if err := q.Differ(&s, words, l.x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
