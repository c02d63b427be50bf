package prefix

import (
	"math/rand/v2"
	"testing"
)

func TestPosting(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 7))
	for range 50 {
		var p posting
		have := map[uint32]bool{}
		high := 1 + r.IntN(20_000)
		for range r.IntN(3000) {
			if a := uint32(r.IntN(high)); !have[a] {
				have[a] = true
				p.add(a)
			}
			if r.IntN(500) == 0 {
				high += r.IntN(200_000)
			}
		}
		check := func() {
			t.Helper()
			all := p.all(nil)
			if p.n != len(have) || len(all) != len(have) || len(p.words) > 2*p.n {
				t.Fatalf("%d, all %d of %d, %d words", p.n, len(all), len(have), len(p.words))
			}
			for _, a := range append(all, p.latest(4, nil)...) {
				if !have[a] {
					t.Fatalf("%d is not in it", a)
				}
			}
			words, blocks := filtered{words: p.words, base: p.base}, filtered{words: p.any, base: p.base / 64}
			for k := uint32(0); p.words != nil && k < 300_000/64; k++ {
				w := words.at(k)
				if blocks.at(k/64)>>(k%64)&1 != 0 != (w != 0) {
					t.Fatalf("word %d is %x, and any of its block %x", k, w, blocks.at(k/64))
				}
				for i := range uint32(64) {
					if w>>i&1 != 0 != have[k*64+i] {
						t.Fatalf("bit %d of word %d", i, k)
					}
				}
			}
		}
		check()
		for a := range have {
			if r.IntN(3) == 0 {
				delete(have, a)
			}
		}
		p.keep(func(a uint32) bool { return have[a] })
		check()
	}
}
