//go:build !amd64

package codec

// wide is for tests, which try both.
var wide = false

func makeTable(t *ransTable, f *freqs) { tablePortable(t, f) }

func (d *ransDecoder) steps(dst []byte) ([]byte, error) { return dst, nil }

func (e *ransEncoder) steps(src []byte) { e.stepsPortable(src) }

func (f *freqs) values() values { return f.valuesPortable() }

func (f *freqs) shares(c *counts, scale float64) (sum, top int) { return f.sharesPortable(c, scale) }

func (t *tally) add(p []byte) { t.addPortable(p) }

func ones(p []byte) int { return onesPortable(p) }

func (c *counts) sum(t *tally, shift int, set *values) { c.sumPortable(t, shift, set) }

func (c *counts) logs() (sum uint64, used, total int) { return c.logsPortable() }

func (s *values) holds(p []byte) int { return s.holdsPortable(p) }

func pack(dst, bitmap, p []byte) []byte { return packPortable(dst, bitmap, p) }

func union(any, zero []byte, planes [][]byte) { unionPortable(any, zero, planes, 0) }

func scatter(p, bitmap []byte, rest *[maxPlane + 8]byte) { scatterPortable(p, bitmap, rest, 0) }

func (g *groups) number(shape groupShape, base []byte, w int) {
	shape.ofPortable(g.of, base, w)
	g.countPortable(0)
}

func (g *groups) count() { g.countPortable(0) }

func (g *groups) sort(dst, p []byte) {
	at := g.starts(gap)
	g.sortPortable(dst, p, &at, 0)
}

func (g *groups) unsort(p, sorted []byte) {
	at := g.starts(0)
	g.unsortPortable(p, sorted, &at, 0)
}
