package codec

import (
	"bytes"
	"testing"

	"ckptfs/cas/codectest"
)

// What these tests have in common: no kernel reads or writes past the ends of what it is given. The lengths
// are those of whole blocks and of what is left beside them.
var edgeLengths = []int{1, 63, 64, 65, 128, 200, 8192, 20000}

func TestGroupsAtEdges(t *testing.T) {
	for _, n := range edgeLengths {
		for w, shape := range map[int]groupShape{
			2: {n: 6, shift: 10, top: 17}, 4: {n: 5, shift: 23, top: 121},
		} {
			of := codectest.Edge(t, make([]byte, n))
			for _, base := range [][]byte{codectest.Weights(n*w, w), codectest.Random(n * w)} {
				base = codectest.Edge(t, base)
				want := groups{n: shape.n, of: make([]byte, n)}
				shape.ofPortable(want.of, base, w)
				want.countPortable(0)
				codectest.Levels(func(how string) {
					g := groups{n: shape.n, of: of}
					g.number(shape, base, w)
					counts := g.counts
					g.counts = [maxGroups]int{}
					if g.count(); !bytes.Equal(of, want.of) || counts != want.counts || g.counts != counts {
						t.Fatalf("%s, %d elements of %d bytes: %v and %v, want %v", how, n, w, counts,
							g.counts, want.counts)
					}
					for planes := 1; planes <= 4; planes++ {
						all := sortPlanes(&g, planes, func(n int) []byte {
							return codectest.Edge(t, make([]byte, n))
						})
						if err := all.unsort(&g); err != nil {
							t.Fatalf("%s, %d elements of %d bytes: %v", how, n, w, err)
						}
					}
				})
			}
		}
	}
}

func TestSparseAtEdges(t *testing.T) {
	rest := (*[maxPlane + 8]byte)(codectest.Edge(t, make([]byte, maxPlane+8)))
	for _, n := range append(edgeLengths, maxPlane-1, maxPlane) {
		full, sparse := bytes.Repeat([]byte{7}, n), codectest.Random(n)
		for i := range sparse {
			sparse[i] *= sparse[i] >> 1 & 1
		}
		p, back := codectest.Edge(t, make([]byte, n)), codectest.Edge(t, make([]byte, n))
		bitmap, packed := codectest.Edge(t, make([]byte, (n+7)/8)), codectest.Edge(t, make([]byte, n+64))
		any, zero := codectest.Edge(t, make([]byte, n)), codectest.Edge(t, make([]byte, n))
		for _, of := range [][]byte{full, sparse} {
			copy(p, of)
			codectest.Levels(func(how string) {
				copy(rest[:], pack(packed, bitmap, p))
				if scatter(back, bitmap, rest); !bytes.Equal(back, p) {
					t.Fatalf("%s, %d bytes: others come back", how, n)
				}
				if got, want := ones(bitmap), n-bytes.Count(p, []byte{0}); got != want {
					t.Fatalf("%s: %d of %d bytes are not zero, want %d", how, got, n, want)
				}
				if union(any, zero, [][]byte{p, p}); !bytes.Equal(any, p) {
					t.Fatalf("%s, %d bytes: a union with itself is another", how, n)
				}
				for i, z := range zero {
					if (z == 1) != (p[i] == 0) || z > 1 {
						t.Fatalf("%s, %d bytes: at %d %d of %d", how, n, i, z, p[i])
					}
				}
			})
		}
	}
}

func TestPlanesAtEdges(t *testing.T) {
	for _, n := range edgeLengths {
		shapes(func(w, rot int) {
			src := codectest.Edge(t, codectest.Random(n*w))
			base := codectest.Edge(t, codectest.Weights(n*w, 4))
			diffs, back := codectest.Edge(t, make([]byte, n*w)), codectest.Edge(t, make([]byte, n*w))
			var p [8][]byte
			for k := range w {
				p[k] = codectest.Edge(t, make([]byte, n))
			}
			codectest.Levels(func(how string) {
				check := func(what string, j joiner) {
					j.join(back, &p, 0)
					if k, ok := j.same(src, &p, 0); !ok || k > len(src) || !bytes.Equal(back, src) {
						t.Fatalf("%s, %s, %d elements of %d bytes: others come back", how, what, n, w)
					}
				}
				split(&p, src, w, rot)
				check("alone", merger{w, rot})
				splitDiff(&p, diffs, src, base, w, rot == 1)
				check("differences", undiffer{base, w, rot == 1})
			})
		})
	}
}

// TestSameFinds: whichever byte differs, what compares planes with elements says so.
func TestSameFinds(t *testing.T) {
	for _, n := range []int{64, 128} {
		shapes(func(w, rot int) {
			src, base := codectest.Random(n*w), codectest.Weights(n*w, 4)
			var p [8][]byte
			for k := range w {
				p[k] = make([]byte, n)
			}
			codectest.Levels(func(how string) {
				finds := func(what string, j joiner) {
					for i := range src {
						src[i] ^= 1 << (i % 8)
						if k, ok := j.same(src, &p, 0); i < k && ok {
							t.Fatalf("%s, %s, elements of %d bytes: byte %d differs", how, what, w, i)
						}
						src[i] ^= 1 << (i % 8)
					}
				}
				split(&p, src, w, rot)
				finds("alone", merger{w, rot})
				splitDiff(&p, make([]byte, n*w), src, base, w, rot == 1)
				finds("differences", undiffer{base, w, rot == 1})
			})
		})
	}
}
