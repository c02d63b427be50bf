package codec

import "ckptfs/cas/simd"

// number sets of to the groups of the elements of base, of w bytes, and counts them.
func (g *groups) number(shape groupShape, base []byte, w int) {
	done := 0
	switch {
	case w != 2 && w != 4:
	case simd.Has(simd.AVX512):
		done = g.numberAVX512(shape, base, w)
	case simd.Has(simd.AVX2):
		done = g.numberAVX2(shape, base, w)
	}
	shape.ofPortable(g.of[done:], base[done*w:], w)
	g.countPortable(done)
}

// numberAVX512 is number for as many elements as its kernels take, which it returns.
func (g *groups) numberAVX512(shape groupShape, base []byte, w int) int {
	k := len(g.of) * w / simd.Block
	if k == 0 {
		return 0
	}
	_ = base[64*k-1]
	kernel := groupOf4AVX512
	if w == 2 {
		kernel = groupOf2AVX512
	}
	kernel(&g.of[0], &base[0], k, uint64(shape.shift), uint64(shape.top), uint64(shape.n-1), &g.counts[0])
	done := k * simd.Block / w
	last := done
	for _, n := range g.counts[:maxGroups-1] {
		last -= n
	}
	g.counts[maxGroups-1] = last
	return done
}

// numberAVX2 is number for as many elements as its kernels take, which it returns.
func (g *groups) numberAVX2(shape groupShape, base []byte, w int) int {
	k := len(g.of) / simd.Block
	if k == 0 {
		return 0
	}
	_ = base[64*k*w-1]
	kernel := groupOf4AVX2
	if w == 2 {
		kernel = groupOf2AVX2
	}
	kernel(&g.of[0], &base[0], k, uint64(shape.shift), uint64(shape.top), uint64(shape.n-1))
	countGroupsAVX2(&g.counts[0], &g.of[0], k)
	return simd.Block * k
}

// count counts the groups' elements.
func (g *groups) count() {
	k := simd.Blocks(simd.AVX2, len(g.of))
	switch {
	case k == 0:
	case simd.Has(simd.AVX512):
		countGroupsAVX512(&g.counts[0], &g.of[0], k, g.n)
	default:
		countGroupsAVX2(&g.counts[0], &g.of[0], k)
	}
	g.countPortable(64 * k)
}

// sort sets dst, with room for gaps, to the bytes of p, sorted by group (see sorted).
func (g *groups) sort(dst, p []byte) {
	at := g.starts(gap)
	k := simd.Blocks(simd.AVX2, len(p))
	if k > 0 {
		_, _ = dst[:len(p)+g.n*gap], g.of[:len(p)]
		if simd.Has(simd.AVX512) {
			groupAVX512(&dst[0], &p[0], &g.of[0], k, g.n, &at[0])
		} else {
			groupAVX2(&dst[0], &p[0], &g.of[0], k, g.n, &at[0])
		}
	}
	g.sortPortable(dst, p, &at, 64*k)
}

// unsort sets p to the bytes of sorted, which lie by group, without gaps. sorted has room for 16 more.
func (g *groups) unsort(p, sorted []byte) {
	at := g.starts(0)
	k := simd.Blocks(simd.AVX2, len(p))
	if k > 0 {
		_, _ = sorted[:len(p)+16], g.of[:len(p)]
		if simd.Has(simd.AVX512) {
			ungroupAVX512(&p[0], &sorted[0], &g.of[0], k, g.n, &at[0])
		} else {
			ungroupAVX2(&p[0], &sorted[0], &g.of[0], k, g.n, &at[0])
		}
	}
	g.unsortPortable(p, sorted, &at, 64*k)
}
