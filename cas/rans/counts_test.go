package rans

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas/codectest"
)

// TestCounts: what occurs is counted, a sample stands for about all, and the twins agree.
func TestCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 1000), rapid.IntRange(0, 128<<10)).Draw(t, "length")
		p := codectest.Skewed(n, rapid.SampledFrom([]float64{0.01, 0.3, 3, 20, 1000}).Draw(t, "spread"))
		for range rapid.IntRange(0, 5).Draw(t, "rare ones") {
			if n > 0 {
				p[rapid.IntRange(0, n-1).Draw(t, "place")] = rapid.Byte().Draw(t, "value")
			}
		}
		var exact Counts
		for _, v := range p {
			exact[v]++
		}
		var cs []Counts
		levels(func(how string) {
			c := Counts{1, 2, 3}
			random := c.Count(p)
			for v := range c {
				if c[v] == 0 && exact[v] > 0 || !random && c[v] > 0 && exact[v] == 0 {
					t.Fatalf("%s: %d is counted %d times, and occurs %d times", how, v, c[v], exact[v])
				}
			}
			got, want := c.Estimate(n), exact.Estimate(n)
			if !random && math.Abs(got-want) > math.Sqrt(float64(n))+10 {
				t.Fatalf("%s: %.0f bytes, want %.0f", how, got, want)
			} else if random && want < 0.98*float64(n) {
				t.Fatalf("%s: %.0f bytes of %d are taken for random", how, want, n)
			}
			cs = append(cs, c)
		})
		for _, c := range cs {
			if c != cs[0] {
				t.Fatal("the twins differ")
			}
		}
		var one, two tally
		one.add(p[:n/8*8])
		if two.addPortable(p[:n/8*8]); one != two {
			t.Fatal("the twins count differently")
		}
	})
}
