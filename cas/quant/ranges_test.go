package quant

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas/codectest"
)

// sameBits is the number as bits; all that are none are the same.
func sameBits(x float32) uint32 {
	if x != x {
		x = nan
	}
	return bits(x)
}

// TestTwinsRanges: ranges of parts, and factors of those, of numbers and streams of all kinds.
func TestTwinsRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	any := func() float32 {
		switch rng.IntN(6) {
		case 0:
			return math.Float32frombits(rng.Uint32())
		case 1:
			return []float32{0, inf, -inf, nan, math.MaxFloat32, 0x1p-149}[rng.IntN(6)]
		case 2:
			return float32(rng.IntN(300)) / 2
		}
		return float32(rng.NormFloat64())
	}
	for range 20_000 {
		n := 1 + rng.IntN(slabBlocks)
		x := hostile(rng, 256*n)
		var e extremes
		extremesPortable(&e, x, 32, 0)
		levels := float32([]int{15, 31}[rng.IntN(2)])
		var before, spread, want ranges
		before.spreadPortable(&e, n)
		spread = before
		for i := range n {
			before.step[i], before.low[i] = any(), any()
			before.perStep[i], before.perLow[i] = any(), any()
			before.scales[i], before.offsets[i] = rng.Uint64(), rng.Uint64()&(63*each)
		}
		want = before
		var f factors
		want.factorsPortable(&f, levels, n)
		codectest.Levels(func(level string) {
			var got ranges
			if got.spread(&e, n); got != spread {
				t.Fatalf("%s: ranges %v, the twin's %v", level, got, spread)
			}
			got = before
			var g factors
			got.factors(&g, levels, n)
			if got.scales != want.scales || got.offsets != want.offsets {
				t.Fatalf("%s: %x and %x, the twin's %x and %x, of %+v", level, got.scales, got.offsets,
					want.scales, want.offsets, before)
			}
			for i := range 8 * n {
				if sameBits(f.a[i]) != sameBits(g.a[i]) || sameBits(f.b[i]) != sameBits(g.b[i]) {
					t.Fatalf("%s: factors %v, %v, the twin's %v, %v", level, g.a[i], g.b[i], f.a[i], f.b[i])
				}
			}
		})
	}
}

// TestRestoreFrom: blocks come of numbers that are given a few at a time, into memory that has other bytes,
// and none come where these end in an error.
func TestRestoreFrom(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	for _, q := range all() {
		if q.Format.Apart() {
			continue
		}
		elems, size := q.Block()
		n := 256 * (1 + rng.IntN(30))
		x := hostile(rng, n)
		blocks := make([]byte, n/elems*size)
		for i := range blocks {
			blocks[i] = byte(rng.Uint32())
		}
		var s Streams
		if err := q.Differ(&s, blocks, x); err != nil {
			t.Fatal(err)
		}
		codectest.Levels(func(level string) {
			at := 0
			next := func(slab []float32) ([]float32, error) {
				at += copy(slab, x[at:])
				return slab, nil
			}
			dirty := make([]byte, len(blocks)+7)
			for i := range dirty {
				dirty[i] = 0xa5
			}
			got, err := q.RestoreFrom(dirty[:3], &s, n, make([]float32, Slab), next)
			if err != nil || string(got[3:]) != string(blocks) || dirty[len(dirty)-1] != 0xa5 {
				t.Fatalf("%s: %v: other blocks, %v", level, q.Format, err)
			}
		})
		got, err := q.RestoreFrom([]byte("a"), &s, n, make([]float32, Slab),
			func([]float32) ([]float32, error) { return nil, errEnds })
		if string(got) != "a" || err != errEnds {
			t.Errorf("%v: %d bytes, %v", q.Format, len(got), err)
		}
	}
}

var errEnds = errors.New("no numbers")
