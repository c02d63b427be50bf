package codec

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// skewed are n bytes around 100 of which, on average, each is spread from it.
func skewed(n int, spread float64) []byte {
	r := rand.New(rand.NewPCG(13, 14))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(100 + int(math.Round(spread*r.NormFloat64())))
	}
	return p
}

// frequencies are those of p, which has two values at least.
func frequencies(p []byte) (f freqs, c counts) {
	c.count(p)
	f.normalize(&c)
	return f, c
}

// cost is how many bits it takes to code what was counted with frequencies f.
func cost(f *freqs, c *counts) (bits float64) {
	for v, k := range c {
		if k > 0 {
			bits += float64(k) * math.Log2(probs/float64(f[v]))
		}
	}
	return bits
}

// portably runs f with the kernels and without.
func portably(f func(how string)) {
	defer func(was bool) { wide = was }(wide)
	if wide {
		f("kernels")
	}
	wide = false
	f("portable")
}

// runs draws what a stream is to hold: each with two values at least.
func runs(t *rapid.T) (rs [][]byte) {
	for range rapid.IntRange(1, 5).Draw(t, "runs") {
		n := rapid.OneOf(rapid.IntRange(2, 200), rapid.IntRange(2, 20000)).Draw(t, "length")
		p := skewed(n, rapid.SampledFrom([]float64{0.01, 0.1, 0.3, 1, 10, 1000}).Draw(t, "spread"))
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
		lanes := rapid.SampledFrom([]int{leastLanes, fewLanes, someLanes, manyLanes}).Draw(t, "lanes")
		fs := make([]freqs, len(rs))
		var total int
		for i, p := range rs {
			fs[i], _ = frequencies(p)
			total += len(p)
		}
		var streams [][]byte
		portably(func(how string) {
			var e ransEncoder
			e.reset(total, lanes)
			for i := len(rs) - 1; i >= 0; i-- {
				e.run(rs[i], &fs[i])
			}
			streams = append(streams, e.end())
		})
		if !bytes.Equal(streams[0], streams[len(streams)-1]) {
			t.Fatalf("the twin encodes differently")
		}
		portably(func(how string) {
			var d ransDecoder
			if err := d.init(streams[0], lanes); err != nil {
				t.Fatal(how, err)
			}
			for i, p := range rs {
				got := bytes.Repeat([]byte{0xee}, len(p)+32)
				if err := d.run(got[:len(p)], &fs[i]); err != nil || !bytes.Equal(got[:len(p)], p) || !bytes.Equal(got[len(p):], bytes.Repeat([]byte{0xee}, 32)) {
					t.Fatalf("%s: %v: % x, want % x", how, err, got, p)
				}
			}
			if err := d.end(); err != nil {
				t.Fatal(how, err)
			}
		})
	})
}

// TestRansIsClose holds the coder to the entropy of what it codes, table included.
func TestRansIsClose(t *testing.T) {
	for _, spread := range []float64{0.3, 0.5, 1, 3, 10, 60} {
		p := skewed(128<<10, spread)
		f, _ := frequencies(p)
		var c counts
		for _, v := range p {
			c[v]++
		}
		var bits float64
		for _, k := range c {
			if k > 0 {
				bits -= float64(k) * math.Log2(float64(k)/float64(len(p)))
			}
		}
		var e ransEncoder
		e.reset(len(p), manyLanes)
		e.run(p, &f)
		table := len(appendFreqs(nil, &f))
		got := len(e.end()) - 4*manyLanes
		t.Logf("spread %v: entropy %.0f bytes, coded %d (estimated %.0f), frequencies %d", spread, bits/8, got, cost(&f, &c)/8, table)
		if excess := float64(got) - bits/8; excess > 0.003*bits/8+10 {
			t.Errorf("spread %v: %.0f bytes too many", spread, excess)
		}
		if table > 160 {
			t.Errorf("spread %v: %d bytes of frequencies", spread, table)
		}
	}
}

func TestFreqs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c counts
		for range rapid.IntRange(2, 256).Draw(t, "values") {
			v := rapid.Byte().Draw(t, "value")
			k := rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 300), rapid.IntRange(1, 100000)).Draw(t, "count")
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
		var f, g freqs
		f.normalize(&c)
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
		portably(func(how string) {
			g = f
			if f.normalize(&c); f != g {
				t.Fatalf("%s: the frequencies differ", how)
			}
			if f.values() != f.valuesPortable() {
				t.Fatalf("%s: the values differ", how)
			}
		})
		p := appendFreqs([]byte("before"), &f)
		rest, err := readFreqs(&g, append(p[6:], "behind"...))
		if err != nil || string(rest) != "behind" || f != g {
			t.Fatalf("%v: %v, want %v", err, g, f)
		}
		portably(func(string) {
			var a, b ransTable
			makeTable(&a, &f)
			tablePortable(&b, &f)
			if !bytes.Equal(fmt.Append(nil, a[:probs]), fmt.Append(nil, b[:probs])) {
				t.Fatal("the tables differ")
			}
		})
	})
}

// FuzzRans: kernel and twin agree on whatever they are given, and write nothing else.
func FuzzRans(f *testing.F) {
	fs, _ := frequencies(skewed(1000, 5))
	var e ransEncoder
	e.reset(1000, fewLanes)
	e.run(skewed(1000, 5), &fs)
	f.Add(appendFreqs(nil, &fs), e.end(), uint16(1000), uint16(0), byte(1))
	f.Add(appendFreqs(nil, &fs), e.end(), uint16(500), uint16(500), byte(3))
	f.Fuzz(func(t *testing.T, table, stream []byte, n, m uint16, lanes byte) {
		var fs freqs
		if _, err := readFreqs(&fs, table); err != nil {
			return
		}
		var outs [][]byte
		portably(func(string) {
			var d ransDecoder
			out := bytes.Repeat([]byte{0xee}, int(n)+int(m)+32)
			err := d.init(stream, []int{leastLanes, fewLanes, someLanes, manyLanes}[lanes%4])
			if err == nil {
				err = d.run(out[:n], &fs)
			}
			if err == nil {
				err = d.run(out[n:][:m], &fs)
			}
			if err == nil {
				err = d.end()
			}
			if !bytes.Equal(out[int(n)+int(m):], bytes.Repeat([]byte{0xee}, 32)) {
				t.Fatal("something else was written to")
			}
			if err != nil {
				out = nil
			}
			outs = append(outs, out)
		})
		if !bytes.Equal(outs[0], outs[len(outs)-1]) {
			t.Fatal("the twin decodes differently")
		}
	})
}

func BenchmarkRans(b *testing.B) {
	for _, spread := range []float64{0.3, 2, 60} {
		p := skewed(128<<10, spread)
		f, c := frequencies(p)
		dst := make([]byte, len(p))
		var e ransEncoder
		var d ransDecoder
		e.reset(len(p), manyLanes)
		e.run(p, &f)
		stream := bytes.Clone(e.end())
		portably(func(how string) {
			b.Run(fmt.Sprintf("%.1f bits/encode/%s", cost(&f, &c)/float64(len(p)), how), func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					e.reset(len(p), manyLanes)
					e.run(p, &f)
					e.end()
				}
			})
			b.Run(fmt.Sprintf("%.1f bits/decode/%s", cost(&f, &c)/float64(len(p)), how), func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					_ = d.init(stream, manyLanes)
					if err := d.run(dst, &f); err != nil || d.end() != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
	p := skewed(128<<10, 5)
	f, _ := frequencies(p)
	stored := appendFreqs(nil, &f)
	b.Run("count", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			var c counts
			c.count(p)
		}
	})
	b.Run("frequencies", func(b *testing.B) {
		var t ransTable
		for b.Loop() {
			_, _ = readFreqs(&f, stored)
			makeTable(&t, &f)
		}
	})
}
