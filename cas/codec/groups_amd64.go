package codec

import "ckptfs/cas/simd"

// number sets of to the groups of the elements of base, of w bytes, and counts them.
func (g *groups) number(shape groupShape, base []byte, w int) {
	done := 0
	if k := simd.Blocks(simd.AVX512, len(g.of) * w); k > 0 && (w == 2 || w == 4) {
		kernel := groupOf4AVX512
		if w == 2 {
			kernel = groupOf2AVX512
		}
		_ = base[64*k-1]
		kernel(&g.of[0], &base[0], k, uint64(shape.shift), uint64(shape.top), uint64(shape.n-1), &g.counts[0])
		done = k * 64 / w
		last := done
		for _, n := range g.counts[:maxGroups-1] {
			last -= n
		}
		g.counts[maxGroups-1] = last
	}
	shape.ofPortable(g.of[done:], base[done*w:], w)
	g.countPortable(done)
}

// count counts the groups' elements.
func (g *groups) count() {
	k := simd.Blocks(simd.AVX512, len(g.of))
	if k > 0 {
		countGroupsAVX512(&g.counts[0], &g.of[0], k, g.n)
	}
	g.countPortable(64 * k)
}

// sort sets dst, with room for gaps, to the bytes of p, sorted by group (see sorted).
func (g *groups) sort(dst, p []byte) {
	at := g.starts(gap)
	k := simd.Blocks(simd.AVX512, len(p))
	if k > 0 {
		_, _ = dst[:len(p)+g.n*gap], g.of[:len(p)]
		groupAVX512(&dst[0], &p[0], &g.of[0], k, g.n, &at[0])
	}
	g.sortPortable(dst, p, &at, 64*k)
}

// unsort sets p to the bytes of sorted, which lie by group, without gaps.
func (g *groups) unsort(p, sorted []byte) {
	at := g.starts(0)
	k := simd.Blocks(simd.AVX512, len(p))
	if k > 0 {
		_, _ = sorted[:len(p)], g.of[:len(p)]
		ungroupAVX512(&p[0], &sorted[0], &g.of[0], k, g.n, &at[0])
	}
	g.unsortPortable(p, sorted, &at, 64*k)
}
