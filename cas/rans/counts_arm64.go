package rans

import "ckptfs/cas/simd"

// sum is sumPortable.
func (c *Counts) sum(t *tally, shift int, set *values) {
	if !simd.Has(simd.NEON) {
		c.sumPortable(t, shift, set)
		return
	}
	sumNEON(&c[0], &t[0][0], uint64(shift), &set[0])
}

// holds is holdsPortable.
func (s *values) holds(p []byte) int {
	k := simd.Blocks(simd.NEON, len(p))
	if k == 0 {
		return s.holdsPortable(p)
	}
	left := holdsNEON(&s[0], &p[0], k)
	n := (k - left) * line
	if left > 0 {
		return n
	}
	return n + s.holdsPortable(p[n:])
}

// sumNEON is sumPortable.
//
//go:noescape
func sumNEON(c *uint32, t *uint16, shift uint64, set *uint64)

// holdsNEON returns how many of the lines of 64 bytes are left where the first has a value that set lacks.
//
//go:noescape
func holdsNEON(set *uint64, p *byte, lines int) (left int)
