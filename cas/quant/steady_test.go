package quant

import (
	"math/rand/v2"
	"testing"
)

// TestSteadyNoNumber: an infinity times 0 is the least, whatever sign a processor gives to what is none.
func TestSteadyNoNumber(t *testing.T) {
	v := [8]float32{inf, -inf, inf, 1, -1, 0, inf, -inf}
	for name, f := range map[string]func(*[8]float32, float32, float32, float32) uint64{
		"portable": steady8Portable, "": steady8,
	} {
		if got := f(&v, 0, -128, 127); got != 0x8080000000808080 {
			t.Errorf("%s: %016x", name, got)
		}
		if got := f(&v, 0, 3, 63); got != 0x0303030303030303 {
			t.Errorf("%s: %016x", name, got)
		}
	}
}

// TestFitsCounts: codes are counted as they are corrected.
func TestFitsCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const n = 1024
	for _, q := range all() {
		x := hostile(r, n)
		q.scaled(n, r.Uint32)
		elems, size := q.Block()
		blocks := make([]byte, n/elems*size)
		for i := range blocks {
			blocks[i] = byte(r.Uint32())
		}
		least := n
		for v := range uint8(q.Format.Variants()) {
			var s Streams
			var k correction
			q.Variant = v
			q.differ(&s, blocks, x, &k)
			least = min(least, k.codes)
		}
		if _, share, err := Fits(q, blocks, x); err != nil || share != float64(n-least)/n {
			t.Errorf("%v: %v, want %v; %v", q.Format, share, float64(n-least)/n, err)
		}
	}
}
