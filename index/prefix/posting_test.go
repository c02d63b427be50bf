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
			for first := uint32(0); p.words != nil && first < 300_000/64; first += block {
				var buf [block]uint64
				any := p.anyOf(first)
				for k, w := range p.block(first, &buf) {
					if any>>k&1 != 0 != (w != 0) {
						t.Fatalf("word %d is %x, and any of its block %x", first+uint32(k), w, any)
					}
					for i := range uint32(64) {
						if w>>i&1 != 0 != have[(first+uint32(k))*64+i] {
							t.Fatalf("bit %d of word %d", i, first+uint32(k))
						}
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
