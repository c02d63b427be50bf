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

// TestHolds: a line with a single value that the set lacks is found, wherever it is, and whatever the value.
func TestHolds(t *testing.T) {
	for v := range 256 {
		set := values{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		set[v/64] &^= 1 << (v % 64)
		p := make([]byte, 4*line)
		for i := range p {
			if p[i] = byte(i); p[i] == byte(v) {
				p[i]++
			}
		}
		levels(func(how string) {
			if n := set.holds(p); n != len(p) {
				t.Fatalf("%s: %d of %d bytes are before a line with %d, which none has", how, n, len(p), v)
			}
			at := (v*37 + 11) % len(p)
			was := p[at]
			p[at] = byte(v)
			if n := set.holds(p); n != at/line*line {
				t.Fatalf("%s: %d bytes are before the line with %d, want %d", how, n, v, at/line*line)
			}
			p[at] = was
		})
	}
}
