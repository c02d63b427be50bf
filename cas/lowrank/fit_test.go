package lowrank

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas/codectest"
)

// Of any numbers the twins make the same differences, and the same single precision.
func TestDifferencesTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		w := kind.Width()
		n := rapid.IntRange(1, 200).Draw(t, "elements")
		raw, base := codectest.Random(n*w), codectest.Random(n*w)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range rapid.IntRange(0, n).Draw(t, "odd") {
			i := rng.IntN(n)
			copy(base[i*w:], raw[i*w:(i+1)*w])
			raw[i*w+w-1] = []byte{0x7f, 0xff, 0, 0x80, 0x7c}[rng.IntN(5)]
		}
		e := middle(raw, kind) + rapid.IntRange(-20, 20).Draw(t, "off")
		want := make([]float32, 2*n)
		differencesPortable(want[:n], want[n:], raw, base, kind, e)
		codectest.Levels(func(how string) {
			got := make([]float32, 2*n)
			differences(got[:n], got[n:], raw, base, kind, e)
			for i, x := range want {
				if got[i] != x || x-x != 0 {
					t.Fatalf("%s, %d of %d: %v, the twin's %v", how, i, n, got[i], x)
				}
			}
		})
		l := Shape{Kind: kind, Rank: 2 * rapid.IntRange(1, 8).Draw(t, "pairs"), Cols: MinCols + n}
		columns := codectest.Random(l.ColumnsLen())
		var all [][]float32
		codectest.Levels(func(string) {
			x := make([]float32, l.Rank*widthOf(l.Cols))
			for k := range x {
				x[k] = 77
			}
			l.singles(x, columns)
			all = append(all, x)
		})
		for _, x := range all {
			if !slices.Equal(x, all[len(all)-1]) {
				t.Fatalf("%v, the twin's %v", x, all[len(all)-1])
			}
		}
	})
}

// The twins sum up in another order than kernels, and come to the same but for what is rounded; kernels come
// to the same bits. What is fitted is only ever a proposal.
func TestFitTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, cols, r := rapid.IntRange(1, 30).Draw(t, "rows"), rapid.IntRange(MinCols, 200).Draw(t, "cols"),
			rapid.IntRange(1, MaxRank).Draw(t, "rank")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		fill := func(p []float32) []float32 {
			for i := range p {
				p[i] = float32(rng.NormFloat64())
			}
			return p
		}
		var whole matrix
		whole.reset(rows+3, cols)
		fill(whole.d)
		fill(whole.w)
		m := whole.part(rapid.IntRange(0, 3).Draw(t, "from"), rows)
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
		type fits struct{ rows, cols, left []float32 }
		var all []fits
		var hows []string
		codectest.Levels(func(how string) {
			f := fits{rows: make([]float32, rows*r)} // a row's parts are only ever summed up
			for i, x := range sums(rows*r*blockCols, func(p []float32) { m.fitRows(p, u, v, r, flags) }) {
				f.rows[i/blockCols] += x
			}
			f.cols = sums(len(v), func(p []float32) { m.fitCols(p, u, v, r, flags) })
			f.left = sums(len(m.d), func(p []float32) { m.leave(p, u, v, r, flags) })
			all, hows = append(all, f), append(hows, how)
		})
		twin := all[len(all)-1]
		for i, f := range all[:len(all)-1] {
			same(hows[i]+", rows", f.rows, twin.rows)
			same(hows[i]+", columns", f.cols, twin.cols)
			same(hows[i]+", left", f.left, twin.left)
			if !reflect.DeepEqual(f, all[0]) {
				t.Fatalf("%s fits other bits than %s", hows[i], hows[0])
			}
		}
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
