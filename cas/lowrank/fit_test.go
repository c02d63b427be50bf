package codec

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

// Of any numbers the twins make the same differences, and the same single precision.
func TestDifferencesTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]byte{toBF16, toF16, toF32}).Draw(t, "kind")
		w := placesOf(kind).w
		n := rapid.IntRange(1, 200).Draw(t, "elements")
		raw, base := random(n*w), random(n*w)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range rapid.IntRange(0, n).Draw(t, "odd") {
			i := rng.IntN(n)
			copy(base[i*w:], raw[i*w:(i+1)*w])
			raw[i*w+w-1] = []byte{0x7f, 0xff, 0, 0x80, 0x7c}[rng.IntN(5)]
		}
		e := middle(raw, kind) + rapid.IntRange(-20, 20).Draw(t, "off")
		got, want := make([]float32, 2*n), make([]float32, 2*n)
		differences(got[:n], got[n:], raw, base, kind, e)
		differencesPortable(want[:n], want[n:], raw, base, kind, e)
		for i, x := range want {
			if got[i] != x || x-x != 0 {
				t.Fatalf("%d of %d: %v, the twin's %v", i, n, got[i], x)
			}
		}
		l := lowRank{kind: kind, r: 2 * rapid.IntRange(1, 8).Draw(t, "pairs"), cols: minCols + n}
		columns := random(l.r * l.cols * w)
		var all [2][]float32
		i := 0
		portably(func(string) {
			all[i] = make([]float32, l.r*widthOf(l.cols))
			for k := range all[i] {
				all[i][k] = 77
			}
			l.singles(all[i], columns)
			i++
		})
		for k, x := range all[0] {
			if i == 2 && x != all[1][k] {
				t.Fatalf("number %d: %v, the twin's %v", k, x, all[1][k])
			}
		}
	})
}

// The twins sum up in another order, and come to the same but for what is rounded. What is fitted is only ever a proposal.
func TestFitTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, cols, r := rapid.IntRange(1, 30).Draw(t, "rows"), rapid.IntRange(minCols, 200).Draw(t, "cols"), rapid.IntRange(1, MaxRank).Draw(t, "rank")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		fill := func(p []float32) []float32 {
			for i := range p {
				p[i] = float32(rng.NormFloat64())
			}
			return p
		}
		var all matrix
		all.reset(rows+3, cols)
		fill(all.d)
		fill(all.w)
		m := all.part(rapid.IntRange(0, 3).Draw(t, "from"), rows)
		u, v := fill(make([]float32, rows*r)), fill(make([]float32, m.width*r))
		flags := rapid.SampledFrom([]uint64{fitAll, fitD, fitW | fitLeft, fitD | fitLeft}).Draw(t, "flags")
		same := func(what string, a, b []float32) {
			for i, x := range a {
				if math.Abs(float64(x-b[i])) > 1e-3*(10+math.Abs(float64(x))) {
					t.Fatalf("%s: number %d: %v, the twin's %v", what, i, x, b[i])
				}
			}
		}
		sums := func(n int, do func(p []float32)) []float32 {
			p := fill(make([]float32, n))
			for i := range p {
				p[i] = float32(i % 7)
			}
			do(p)
			return p
		}
		got, want := make([]float32, rows*r), make([]float32, rows*r) // a row's parts are only ever summed up
		for i, x := range sums(rows*r*blockCols, func(p []float32) { m.fitRows(p, u, v, r, flags) }) {
			got[i/blockCols] += x
		}
		for i, x := range sums(rows*r*blockCols, func(p []float32) { m.fitRowsPortable(p, u, v, r, flags) }) {
			want[i/blockCols] += x
		}
		same("rows", got, want)
		same("columns", sums(len(v), func(p []float32) { m.fitCols(p, u, v, r, flags) }), sums(len(v), func(p []float32) { m.fitColsPortable(p, u, v, r, 0, flags) }))
		same("left", sums(len(m.d), func(p []float32) { m.leave(p, u, v, r, flags) }), sums(len(m.d), func(p []float32) { m.leavePortable(p, u, v, r, flags) }))
	})
}

func TestEigen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		a := make([]float64, n*n)
		for i := range n {
			for j := range i + 1 {
				a[i*n+j] = rng.NormFloat64()
				a[j*n+i] = a[i*n+j]
			}
		}
		values, vectors := eigen(a, n)
		for k, value := range values {
			if k > 0 && value > values[k-1] {
				t.Fatal("not in order")
			}
			for i := range n {
				var x float64
				for j := range n {
					x += a[i*n+j] * vectors[j*n+k]
				}
				if math.Abs(x-value*vectors[i*n+k]) > 1e-8 {
					t.Fatalf("value %d: %v, want %v", k, x, value*vectors[i*n+k])
				}
			}
		}
	})
}

// A difference of low rank is seen; what moved every weight for itself is refused, in little time.
func TestMayBeLowRank(t *testing.T) {
	for _, h := range lowRankHints {
		for _, r := range []int{1, 8, 16} {
			raw, base := merged(1024, 256, r, h, map[int]float64{2: 4, 4: 1e5}[h.Elem])
			all := chunksOf(raw, base, h.Elem, 1<<16)
			if !MayBeLowRank(all, rowsIn(all, 256, h.Elem), 256, h) {
				t.Errorf("%v: rank %d is not seen", h, r)
			}
			if MayBeLowRank(all, 1024, 256, Hint{"I16", 2}) {
				t.Error("integers")
			}
		}
		// Two chunks of a large tensor are enough to see rank 8.
		raw, base := merged(2*cas.ChunkSize/h.Elem/4096, 4096, 8, h, map[int]float64{2: 1, 4: 1e5}[h.Elem])
		two := chunksOf(raw, base, h.Elem, cas.ChunkSize)
		if two[1].At = 2048 * 4096; !MayBeLowRank(two, 4096, 4096, h) {
			t.Errorf("%v: is not seen in two chunks", h)
		}
	}
	for _, h := range []Hint{{"F32", 4}, {"BF16", 2}} {
		base := weights(1<<19, h.Elem)
		for _, raw := range [][]byte{drift(base, h, 1e-4), step(base, h, 1e-2), base} {
			all := chunksOf(raw, base, h.Elem, 1<<16)
			if MayBeLowRank(all, rowsIn(all, 256, h.Elem), 256, h) || MayBeLowRank(chunksOf(raw, base, h.Elem, cas.ChunkSize)[:2], 1024, 4096, h) {
				t.Errorf("%v: what is of full rank is taken", h)
			}
			if _, ok := FactorColumns(all, 256, h); ok {
				t.Errorf("%v: what is of full rank has factors", h)
			}
		}
	}
}

// spreadOver are merged stretches of a tensor of so many rows, of so many of them as packing would take.
func spreadOver(rows, cols, r int, h Hint, ulps float64) []Stretch {
	line := cols * h.Elem
	per := cas.ChunkSize / line
	some := min(max(LowRankRows/per+1, 2), 16, rows/per)
	raw, base := merged(some*per, cols, r, h, ulps)
	s := chunksOf(raw, base, h.Elem, per*line)
	for i := range s {
		s[i].At = int64(i * (rows / some) * cols)
	}
	return s
}

// Long rows, of which a chunk has few, and high ranks are seen too; and no columns are made that are too long for a record that others need.
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
	raw, base := merged(2048, 256, 64, f32, 1e5)
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
	if t.Logf("columns of %d bytes", len(columns)); !ok || len(columns) > maxColumns {
		t.Errorf("columns of %d bytes: %v", len(columns), ok)
	}
}
