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

// sortBlocks is sort for whole blocks of as many of the planes as a kernel takes together, n. It returns how
// many elements are done, and where the groups go on.
func (g *groups) sortBlocks(dst, p [][]byte) (n, done int, at [maxGroups]int) {
	at = g.starts(gap)
	k := simd.Blocks(simd.AVX2, len(g.of))
	if k == 0 {
		return 1, 0, at
	}
	n = together(len(p))
	to, from := firsts(dst[:n], len(g.of)+g.n*gap), firsts(p[:n], len(g.of))
	switch {
	case simd.Has(simd.AVX512):
		groupAVX512(to[0], from[0], &g.of[0], k, g.n, &at[0])
	case n == 1:
		group1AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	case n == 2:
		group2AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	case n == 3:
		group3AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	default:
		group4AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	}
	return n, k * simd.Block, at
}

// unsortBlocks is sortBlocks for unsort.
func (g *groups) unsortBlocks(p, sorted [][]byte) (n, done int, at [maxGroups]int) {
	at = g.starts(0)
	k := simd.Blocks(simd.AVX2, len(g.of))
	if k == 0 {
		return 1, 0, at
	}
	n = together(len(p))
	to, from := firsts(p[:n], len(g.of)), firsts(sorted[:n], len(g.of)+16)
	switch {
	case simd.Has(simd.AVX512):
		ungroupAVX512(to[0], from[0], &g.of[0], k, g.n, &at[0])
	case n == 1:
		ungroup1AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	case n == 2:
		ungroup2AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	case n == 3:
		ungroup3AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	default:
		ungroup4AVX2(&to[0], &from[0], &g.of[0], k, g.n, &at[0])
	}
	return n, k * simd.Block, at
}

// together is how many of n planes a kernel takes.
func together(n int) int {
	if simd.Has(simd.AVX512) {
		return 1
	}
	return min(n, 4)
}

// firsts are the first bytes of some planes. It checks that each has n bytes: the kernels check nothing.
func firsts(planes [][]byte, n int) (at [4]*byte) {
	for i, p := range planes {
		at[i] = &p[:n][0]
	}
	return at
}
