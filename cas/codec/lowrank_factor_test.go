package codec

import (
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
	"ckptfs/cas/lowrank"
)

// A difference of low rank is seen; what moved every weight for itself is refused, in little time.
func TestMayBeLowRank(t *testing.T) {
	for _, h := range lowRankHints {
		for _, r := range []int{1, 8, 16} {
			raw, base := codectest.Merged(1024, 256, r, h.DType, map[int]float64{2: 4, 4: 1e5}[h.Elem])
			all := chunksOf(raw, base, h.Elem, 1<<16)
			if !MayBeLowRank(all, lowrank.RowsIn(all, 256, kindOf(h)), 256, h) {
				t.Errorf("%v: rank %d is not seen", h, r)
			}
			if MayBeLowRank(all, 1024, 256, Hint{"I16", 2}) {
				t.Error("integers")
			}
		}
		// Two chunks of a large tensor are enough to see rank 8.
		raw, base := codectest.Merged(2*cas.ChunkSize/h.Elem/4096, 4096, 8, h.DType,
			map[int]float64{2: 1, 4: 1e5}[h.Elem])
		two := chunksOf(raw, base, h.Elem, cas.ChunkSize)
		if two[1].At = 2048 * 4096; !MayBeLowRank(two, 4096, 4096, h) {
			t.Errorf("%v: is not seen in two chunks", h)
		}
	}
	for _, h := range []Hint{{"F32", 4}, {"BF16", 2}} {
		base := codectest.Weights(1<<19, h.Elem)
		for _, raw := range [][]byte{drift(base, h, 1e-4), step(base, h, 1e-2), base} {
			all := chunksOf(raw, base, h.Elem, 1<<16)
			if MayBeLowRank(all, lowrank.RowsIn(all, 256, kindOf(h)), 256, h) ||
				MayBeLowRank(chunksOf(raw, base, h.Elem, cas.ChunkSize)[:2], 1024, 4096, h) {
				t.Errorf("%v: what is of full rank is taken", h)
			}
			if _, ok := FactorColumns(all, 256, h); ok {
				t.Errorf("%v: what is of full rank has factors", h)
			}
		}
	}
}

// spreadOver are merged stretches of a tensor of so many rows, of so many of them as packing would take.
func spreadOver(rows, cols, r int, h Hint, ulps float64) []lowrank.Stretch {
	line := cols * h.Elem
	per := cas.ChunkSize / line
	some := min(max(lowrank.SampleRows/per+1, 2), 16, rows/per)
	raw, base := codectest.Merged(some*per, cols, r, h.DType, ulps)
	s := chunksOf(raw, base, h.Elem, per*line)
	for i := range s {
		s[i].At = int64(i * (rows / some) * cols)
	}
	return s
}

// Long rows, of which a chunk has few, and high ranks are seen too; and no columns are made that are too long
// for a record that others need.
func TestMayBeLowRankShapes(t *testing.T) {
	f32, b16 := Hint{"F32", 4}, Hint{"BF16", 2}
	for _, c := range []struct {
		rows, cols, r int
		h             Hint
		ulps          float64
		want          bool
	}{
		{1024, 8192, 16, f32, 1e5, true},
		{1024, 8192, 32, f32, 1e5, true},
		{4096, 2048, 64, f32, 1e5, true},
		{150, 8192, 32, f32, 1e5, true},
		{1024, 16384, 32, b16, 3, true},
		{2048, 1024, 32, b16, 3, true},
		{4096, 4096, 64, b16, 3, true},
	} {
		s := spreadOver(c.rows, c.cols, c.r, c.h, c.ulps)
		start := time.Now()
		got := MayBeLowRank(s, c.rows, c.cols, c.h)
		t.Logf("%+v: %v in %v of %d stretches", c, got, time.Since(start), len(s))
		if got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	// Rows that did not move hide nothing: an embedding of which few did is of full rank.
	raw, base := codectest.Merged(2048, 256, 64, f32.DType, 1e5)
	for i := range 2048 {
		if i%4 > 0 {
			copy(raw[i*1024:], base[i*1024:][:1024])
		}
	}
	if MayBeLowRank(chunksOf(raw, base, 4, cas.ChunkSize), 2048, 256, f32) {
		t.Error("an embedding is taken for low rank")
	}
	s := spreadOver(2048, 14336, 38, b16, 16)
	columns, ok := FactorColumns(s, 14336, b16)
	if t.Logf("columns of %d bytes", len(columns)); !ok || len(columns) > 1<<20 {
		t.Errorf("columns of %d bytes: %v", len(columns), ok)
	}
}
