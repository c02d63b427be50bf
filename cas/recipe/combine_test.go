package recipe

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestCombine: what is combined by the rules takes next to nothing, and what differs from it little more.
func TestCombine(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const n, k = 3000, 3
	for _, to := range []Type{F32, BF16, F16} {
		w := to.Size()
		x := make([]float32, k*n)
		for i := range x {
			x[i] = rounder(to)(float32(rng.NormFloat64() * 0.02))
		}
		bases := make([]byte, k*n*w)
		narrow(bases, x, to)
		for form := range Form(forms) {
			if !form.Known() {
				continue
			}
			vectors := k
			if v := form.vectors(); v > 0 {
				vectors = v
			}
			op := Combine{Form: form, To: to, C: []float32{0.7, 0.2, 0.1}[:vectors]}
			sum := make([]float32, n)
			op.Combined(sum, x[:vectors*n])
			raw := make([]byte, n*w)
			narrow(raw, sum, to)
			prog := Program{Run(to, 0, vectors*n), Widen{}, op}
			if stored := roundTrip(t, prog, raw, bases); len(stored) > 50 {
				t.Errorf("type %d, form %d: %d bytes", to, form, len(stored))
			}
			for _, i := range []int{1, 2, n - 1} { // among them a NaN
				raw[i*w] ^= byte(rng.Uint32())
				raw[i*w+w-1] = 0xff
			}
			if stored := roundTrip(t, prog, raw, bases); len(stored) > 400 {
				t.Errorf("type %d, form %d, differing: %d bytes", to, form, len(stored))
			}
		}
	}
	if got := rounder(BF16)(1 + 1.0/512); got != 1 {
		t.Error(got)
	}
	for _, w := range []int{2, 4} {
		for range 1000 {
			x := rng.Uint32() & (1<<(8*w-1)<<1 - 1)
			if got := unordinal(ordinal(x, w), w); got != x {
				t.Fatal(x, got)
			}
		}
	}
	if ordinal(math.Float32bits(-1), 4) >= ordinal(math.Float32bits(-0.5), 4) {
		t.Error("not in order")
	}
}

// TestCombineNoNumbers: what processors have several of comes out as one.
func TestCombineNoNumbers(t *testing.T) {
	inf := float32(math.Inf(1))
	odd, negative := math.Float32frombits(0x7fa00001), math.Float32frombits(0xffc12345)
	x := []float32{
		inf, odd, negative, 1,
		-inf, negative, odd, negative,
		inf, 0, odd, 2,
	}
	for form := range Form(forms) {
		if !form.Known() {
			continue
		}
		o := Combine{Form: form, C: []float32{1, 1, 1}[:max(form.vectors(), 2)], To: F32}
		got := make([]float32, 4)
		o.Combined(got, x[:4*len(o.C)])
		for i, v := range got {
			if b := math.Float32bits(v); v == v || b != quiet {
				t.Errorf("form %d, number %d: %08x", form, i, b)
			}
		}
	}
}
