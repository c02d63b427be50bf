package rans

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas/codectest"
)

// frequencies are those of p, which has two values at least.
func frequencies(p []byte) (f Freqs, c Counts) {
	c.Count(p)
	f.Normalize(&c)
	return f, c
}

// cost is how many bits it takes to code what was counted with frequencies f.
func cost(f *Freqs, c *Counts) (bits float64) {
	for v, k := range c {
		if k > 0 {
			bits += float64(k) * math.Log2(probs/float64(f[v]))
		}
	}
	return bits
}

// runs draws what a stream is to hold: each with two values at least.
func runs(t *rapid.T) (rs [][]byte) {
	for range rapid.IntRange(1, 5).Draw(t, "runs") {
		n := rapid.OneOf(rapid.IntRange(2, 200), rapid.IntRange(2, 20000)).Draw(t, "length")
		p := codectest.Skewed(n, rapid.SampledFrom([]float64{0.01, 0.1, 0.3, 1, 10, 1000}).Draw(t, "spread"))
		p[0], p[n-1] = rapid.Byte().Draw(t, "first"), rapid.Byte().Draw(t, "last")
		if p[0] == p[n-1] {
			p[0]++
		}
		rs = append(rs, p)
	}
	return rs
}

func TestRans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := runs(t)
		lanes := rapid.SampledFrom([]int{LeastLanes, FewLanes, SomeLanes, ManyLanes}).Draw(t, "lanes")
		fs := make([]Freqs, len(rs))
		var total int
		for i, p := range rs {
			fs[i], _ = frequencies(p)
			total += len(p)
		}
		var streams [][]byte
		levels(func(how string) {
			var e Encoder
			e.Reset(total, lanes)
			for i := len(rs) - 1; i >= 0; i-- {
				e.Run(rs[i], &fs[i])
			}
			streams = append(streams, e.End())
		})
		for _, s := range streams {
			if !bytes.Equal(s, streams[0]) {
				t.Fatalf("they encode differently")
			}
		}
		levels(func(how string) {
			var d Decoder
			if err := d.Init(streams[0], lanes); err != nil {
				t.Fatal(how, err)
			}
			for i, p := range rs {
				got := bytes.Repeat([]byte{0xee}, len(p)+32)
				if err := d.Run(got[:len(p)], &fs[i]); err != nil || !bytes.Equal(got[:len(p)], p) ||
					!bytes.Equal(got[len(p):], bytes.Repeat([]byte{0xee}, 32)) {
					t.Fatalf("%s: %v: % x, want % x", how, err, got, p)
				}
			}
			if err := d.End(); err != nil {
				t.Fatal(how, err)
			}
		})
	})
}

// TestRansIsClose holds the coder to the entropy of what it codes, table included.
func TestRansIsClose(t *testing.T) {
	for _, spread := range []float64{0.3, 0.5, 1, 3, 10, 60} {
		p := codectest.Skewed(128<<10, spread)
		f, _ := frequencies(p)
		var c Counts
		for _, v := range p {
			c[v]++
		}
		var bits float64
		for _, k := range c {
			if k > 0 {
				bits -= float64(k) * math.Log2(float64(k)/float64(len(p)))
			}
		}
		var e Encoder
		e.Reset(len(p), ManyLanes)
		e.Run(p, &f)
		size := len(appended(&f))
		got := len(e.End()) - 4*ManyLanes
		t.Logf("spread %v: entropy %.0f bytes, coded %d (estimated %.0f), frequencies %d", spread, bits/8, got, cost(&f, &c)/8, size)
		if excess := float64(got) - bits/8; excess > 0.003*bits/8+10 {
			t.Errorf("spread %v: %.0f bytes too many", spread, excess)
		}
		if size > 160 {
			t.Errorf("spread %v: %d bytes of frequencies", spread, size)
		}
	}
}

func TestFreqs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Counts
		for range rapid.IntRange(2, 256).Draw(t, "values") {
			v := rapid.Byte().Draw(t, "value")
			counts := rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 300), rapid.IntRange(1, 100000))
			k := counts.Draw(t, "count")
			c[v] = uint32(k)
		}
		used := 0
		for _, k := range c {
			if k > 0 {
				used++
			}
		}
		if used < 2 {
			return
		}
		var f, g Freqs
		f.Normalize(&c)
		sum := 0
		for v, k := range f {
			sum += int(k)
			if k == 0 != (c[v] == 0) {
				t.Fatalf("%d is counted %d times, and has frequency %d", v, c[v], k)
			}
		}
		if sum != probs {
			t.Fatalf("they add up to %d: %v", sum, f)
		}
		levels(func(how string) {
			g = f
			if f.Normalize(&c); f != g {
				t.Fatalf("%s: the frequencies differ", how)
			}
			if f.values() != f.valuesPortable() {
				t.Fatalf("%s: the values differ", how)
			}
		})
		p := appended(&f)
		rest, err := g.Read(append(slices.Clone(p), "behind"...))
		if err != nil || string(rest) != "behind" || f != g {
			t.Fatalf("%v: %v, want %v", err, g, f)
		}
		levels(func(string) {
			var a, b table
			a.fill(&f)
			b.fillPortable(&f)
			if !bytes.Equal(fmt.Append(nil, a[:probs]), fmt.Append(nil, b[:probs])) {
				t.Fatal("the tables differ")
			}
		})
	})
}

// appended is f as it is stored, however long that is.
func appended(f *Freqs) []byte {
	p, _ := f.Append(nil, mostFreqs)
	return p
}

// TestFreqsGivesUp: frequencies that take more bytes than they may are not appended.
func TestFreqsGivesUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Counts{1: 1}
		for _, v := range rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "bytes") {
			c[v]++
		}
		c[0]++
		var f Freqs
		f.Normalize(&c)
		whole := appended(&f)
		for most := range len(whole) {
			if p, ok := f.Append([]byte("before"), most); ok || string(p) != "before" {
				t.Fatalf("%d bytes are appended where %d may be", len(p)-6, most)
			}
		}
		if p, ok := f.Append([]byte("before"), len(whole)); !ok || string(p) != "before"+string(whole) {
			t.Fatalf("%d bytes are not appended where as many may be", len(whole))
		}
	})
}

// FuzzRans: kernel and twin agree on whatever they are given, and write nothing else.
func FuzzRans(f *testing.F) {
	fs, _ := frequencies(codectest.Skewed(1000, 5))
	var e Encoder
	e.Reset(1000, FewLanes)
	e.Run(codectest.Skewed(1000, 5), &fs)
	f.Add(appended(&fs), e.End(), uint16(1000), uint16(0), byte(1))
	f.Add(appended(&fs), e.End(), uint16(500), uint16(500), byte(3))
	f.Fuzz(func(t *testing.T, freqs, stream []byte, n, m uint16, lanes byte) {
		var fs Freqs
		if _, err := fs.Read(freqs); err != nil {
			return
		}
		var outs [][]byte
		levels(func(string) {
			var d Decoder
			out := bytes.Repeat([]byte{0xee}, int(n)+int(m)+32)
			err := d.Init(stream, []int{LeastLanes, FewLanes, SomeLanes, ManyLanes}[lanes%4])
			if err == nil {
				err = d.Run(out[:n], &fs)
			}
			if err == nil {
				err = d.Run(out[n:][:m], &fs)
			}
			if err == nil {
				err = d.End()
			}
			if !bytes.Equal(out[int(n)+int(m):], bytes.Repeat([]byte{0xee}, 32)) {
				t.Fatal("something else was written to")
			}
			if err != nil {
				out = nil
			}
			outs = append(outs, out)
		})
		for _, out := range outs {
			if !bytes.Equal(out, outs[0]) {
				t.Fatal("they decode differently")
			}
		}
	})
}

// TestRansAtEdges: no kernel reads or writes past the ends of what it is given.
func TestRansAtEdges(t *testing.T) {
	for _, lanes := range []int{FewLanes, SomeLanes, ManyLanes} {
		for _, n := range []int{lanes, lanes + 1, 3 * lanes, 40*lanes - 1, 1000 * lanes} {
			p := codectest.Edge(t, codectest.Skewed(n, 3))
			f, _ := frequencies(p)
			levels(func(how string) {
				e := Encoder{buf: codectest.Edge(t, make([]byte, 4*lanes+2*n+2))}
				e.Reset(n, lanes)
				e.Run(p, &f)
				stream := codectest.Edge(t, e.End())
				got := codectest.Edge(t, make([]byte, n))
				var d Decoder
				if err := d.Init(stream, lanes); err != nil {
					t.Fatal(err)
				}
				if err := d.Run(got, &f); err != nil || d.End() != nil || !bytes.Equal(got, p) {
					t.Fatalf("%s, %d bytes, %d states: %v", how, n, lanes, err)
				}
			})
		}
	}
}

func BenchmarkRans(b *testing.B) {
	for _, spread := range []float64{0.3, 2, 60} {
		p := codectest.Skewed(128<<10, spread)
		f, c := frequencies(p)
		dst := make([]byte, len(p))
		var e Encoder
		var d Decoder
		e.Reset(len(p), ManyLanes)
		e.Run(p, &f)
		stream := bytes.Clone(e.End())
		levels(func(how string) {
			b.Run(fmt.Sprintf("%.1f bits/encode/%s", cost(&f, &c)/float64(len(p)), how), func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					e.Reset(len(p), ManyLanes)
					e.Run(p, &f)
					e.End()
				}
			})
			b.Run(fmt.Sprintf("%.1f bits/decode/%s", cost(&f, &c)/float64(len(p)), how), func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					_ = d.Init(stream, ManyLanes)
					if err := d.Run(dst, &f); err != nil || d.End() != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
	p := codectest.Skewed(128<<10, 5)
	f, _ := frequencies(p)
	stored := appended(&f)
	b.Run("count", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			var c Counts
			c.Count(p)
		}
	})
	b.Run("frequencies", func(b *testing.B) {
		var t table
		for b.Loop() {
			_, _ = f.Read(stored)
			t.fill(&f)
		}
	})
}
