//go:build !amd64 && !arm64

package codec

func split2(p0, p1, src []byte, rot int) { split2Portable(p0, p1, src, rot) }

func merge2(dst, p0, p1 []byte, rot int) { merge2Portable(dst, p0, p1, rot) }

func split4(p0, p1, p2, p3, src []byte, rot int) { split4Portable(p0, p1, p2, p3, src, rot) }

func merge4(dst, p0, p1, p2, p3 []byte, rot int) { merge4Portable(dst, p0, p1, p2, p3, rot) }

func split8(p *[8][]byte, src []byte, rot int) { split8Portable(p, src, rot) }

func merge8(dst []byte, p *[8][]byte, rot int) { merge8Portable(dst, p, rot) }

func same(want []byte, p *[8][]byte, w, rot int) (n int, ok bool) { return 0, true }

func (g *groups) number(shape groupShape, base []byte, w int) {
	shape.ofPortable(g.of, base, w)
	g.countPortable(0)
}

func (g *groups) count() { g.countPortable(0) }

func (g *groups) sortBlocks(_, _ [][]byte) (n, done int, at [maxGroups]int) {
	return 1, 0, g.starts(gap)
}

func (g *groups) unsortBlocks(_, _ [][]byte) (n, done int, at [maxGroups]int) {
	return 1, 0, g.starts(0)
}

func diff(d, a, base []byte, w int, floats bool) { diffPortable(d, a, base, w, floats) }

func undiff(d, base []byte, w int, floats bool) { undiffPortable(d, base, w, floats) }

func ones(p []byte) int { return onesPortable(p) }

func pack(dst, bitmap, p []byte) []byte { return packPortable(dst, bitmap, p) }

func union(any, zero []byte, planes [][]byte) { unionPortable(any, zero, planes, 0) }

func scatter(p, bitmap []byte, rest *[maxPlane + 8]byte) { scatterPortable(p, bitmap, rest, 0) }
