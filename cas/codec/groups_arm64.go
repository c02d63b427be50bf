package codec

import (
	"math/bits"
	"sync"

	"ckptfs/cas/simd"
)

// number sets of to the groups of the elements of base, of w bytes, and counts them.
func (g *groups) number(shape groupShape, base []byte, w int) {
	done := 0
	if k := simd.Blocks(simd.NEON, len(g.of)); k > 0 && (w == 2 || w == 4) {
		done = k * simd.Block
		_ = base[:done*w] // the kernels check nothing
		kernel := groupOf4NEON
		if w == 2 {
			kernel = groupOf2NEON
		}
		kernel(&g.of[0], &base[0], k, uint64(shape.shift), uint64(shape.top), uint64(shape.n-1))
	}
	shape.ofPortable(g.of[done:], base[done*w:], w)
	g.count()
}

// count counts the groups' elements.
func (g *groups) count() {
	k := simd.Blocks(simd.NEON, len(g.of))
	if k > 0 {
		countGroupsNEON(&g.counts[0], &g.of[0], k)
	}
	g.countPortable(64 * k)
}

// sortBlocks is sort for whole blocks of n planes, which is one. It returns how many elements are done, and
// where the groups go on.
func (g *groups) sortBlocks(dst, p [][]byte) (n, done int, at [maxGroups]int) {
	at = g.starts(gap)
	k := simd.Blocks(simd.NEON, len(g.of))
	if k > 0 {
		_, _ = dst[0][:len(g.of)+g.n*gap], p[0][:len(g.of)]
		groupNEON(&dst[0][0], &p[0][0], &g.of[0], k, g.n, &at[0], &shuffles().compress[0][0])
	}
	return 1, k * simd.Block, at
}

// unsortBlocks is sortBlocks for unsort.
func (g *groups) unsortBlocks(p, sorted [][]byte) (n, done int, at [maxGroups]int) {
	at = g.starts(0)
	k := simd.Blocks(simd.NEON, len(g.of))
	if k > 0 {
		_, _ = sorted[0][:len(g.of)+16], p[0][:len(g.of)]
		ungroupNEON(&p[0][0], &sorted[0][0], &g.of[0], k, g.n, &at[0], &shuffles().expand[0][0])
	}
	return 1, k * simd.Block, at
}

// shuffle is what TBL needs for each mask of 8 bytes, 0x80 where nothing goes.
type shuffle [256][8]byte

// shuffles bring the bytes of the lanes that are set to the front, and the next bytes to those lanes.
var shuffles = sync.OnceValue(func() *struct{ compress, expand shuffle } {
	var s struct{ compress, expand shuffle }
	for mask := range 256 {
		for i := range 8 {
			s.compress[mask][i], s.expand[mask][i] = 0x80, 0x80
		}
		for m, k := uint(mask), byte(0); m != 0; m, k = m&(m-1), k+1 {
			i := bits.TrailingZeros(m)
			s.compress[mask][k], s.expand[mask][i] = byte(i), k
		}
	}
	return &s
})

// groupOf2NEON is ofPortable for blocks times 64 elements.
//
//go:noescape
func groupOf2NEON(dst, base *byte, blocks int, shift, top, last uint64)

// groupOf4NEON is ofPortable for blocks times 64 elements.
//
//go:noescape
func groupOf4NEON(dst, base *byte, blocks int, shift, top, last uint64)

// countGroupsNEON adds to n[g] how many of blocks times 64 elements are of group g, for all that there can
// be.
//
//go:noescape
func countGroupsNEON(n *int, group *byte, blocks int)

// groupNEON undoes ungroupNEON. It writes up to 8 bytes past what it puts of each group.
//
//go:noescape
func groupNEON(dst, src, group *byte, blocks, groups int, at *int, compress *byte)

// ungroupNEON sets blocks times 64 bytes of dst, each to the next one of its group, of which the next is at
// src[at[g]]. It sets at to what comes then, and reads up to 8 bytes past what it takes of each group.
//
//go:noescape
func ungroupNEON(dst, src, group *byte, blocks, groups int, at *int, expand *byte)
