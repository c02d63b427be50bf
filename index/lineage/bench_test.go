package lineage

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// chains is a forest of n models: chains of one length, or a random forest in which new models descend from
// late ones.
func chains(b *testing.B, n, length int) *Forest {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	f := New()
	for i := 1; i <= n; i++ {
		m := Model{Seq: uint64(i)}
		switch {
		case length > 0 && i%length != 1:
			m.Parent = uint64(i - 1)
		case length == 0 && i > 100:
			m.Parent = uint64(i - 1 - r.IntN(100))
		}
		if m.Parent != 0 {
			m.How = Previous
		}
		if err := f.Add(m); err != nil {
			b.Fatal(err)
		}
	}
	return f
}

func BenchmarkMRCA(b *testing.B) {
	for _, c := range []struct {
		name      string
		n, length int
	}{{"one chain of 100k", 100_000, 100_000}, {"evolved forest of 60k", 60_000, 0},
		{"evolved forest of 1M", 1_000_000, 0}} {
		b.Run(c.name, func(b *testing.B) {
			f := chains(b, c.n, c.length)
			r := rand.New(rand.NewPCG(3, 4))
			pairs := make([][2]uint64, 4096)
			for i := range pairs {
				pairs[i] = [2]uint64{1 + r.Uint64N(uint64(c.n)), 1 + r.Uint64N(uint64(c.n))}
			}
			for i := 0; b.Loop(); i++ {
				p := pairs[i%len(pairs)]
				f.MRCA(p[0], p[1])
			}
		})
	}
}

func BenchmarkAt(b *testing.B) {
	const n = 100_000
	f := chains(b, n, n)
	r := rand.New(rand.NewPCG(3, 4))
	depths := make([]int, 4096)
	for i := range depths {
		depths[i] = r.IntN(n)
	}
	for i := 0; b.Loop(); i++ {
		f.At(n, depths[i%len(depths)])
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, owners := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("%d owners", owners), func(b *testing.B) {
			f := New()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			i := uint64(1)
			for ; b.Loop(); i++ {
				m := Model{Seq: i}
				if i > 1 {
					m.Parent, m.How = i-1, Previous
				}
				for o := max(1, int(i)-owners+1); o <= int(i); o++ {
					m.Owned = append(m.Owned, Share{uint64(o), 1, 1})
				}
				if err := f.Add(m); err != nil {
					b.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(i), "B/model")
			runtime.KeepAlive(f)
		})
	}
}
