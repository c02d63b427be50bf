package rans

import (
	"math/bits"

	"ckptfs/cas/simd"
)

// fill is fillPortable.
func (t *table) fill(f *Freqs) {
	switch {
	case simd.Has(simd.AVX512):
		tableAVX512(&t[0], &f[0])
	case simd.Has(simd.AVX2):
		tableAVX2(&t[0], &f[0])
	default:
		t.fillPortable(f)
	}
}

// steps decodes steps of all states into dst, and returns the rest of dst.
func (d *Decoder) steps(dst []byte) ([]byte, error) {
	lanes := len(d.x)
	n := len(dst) / lanes
	c := coding()
	if c == nil || n == 0 || lanes == LeastLanes {
		return dst, nil
	}
	kernel, least := c.decode[width(lanes)], 2*lanes // words that a step takes at most, in bytes
	rest := dst[n*lanes:]
	if len(d.words) >= least {
		read, readStep := fetching(d.Read, n, dst)
		out, outStep := fetching(d.Written, n, dst)
		left, used := kernel(
			&dst[0], n, &d.table[0], &d.x[0], &d.words[0], len(d.words), read, readStep, out, outStep)
		d.words = d.words[used:]
		dst, n = dst[(n-left)*lanes:], left
	}
	if n > 0 { // with zeros behind the words, of which it must take none
		clear(d.tail[copy(d.tail[:], d.words):])
		_, used := kernel(
			&dst[0], n, &d.table[0], &d.x[0], &d.tail[0], len(d.words)+least, &dst[0], 0, &dst[0], 0)
		if used > len(d.words) {
			return nil, errEnds
		}
		d.words = d.words[used:]
	}
	return rest, nil
}

// fetching is where n steps begin to fetch p, and how far each goes on. They fetch none where p is empty.
func fetching(p []byte, n int, none []byte) (at *byte, step int) {
	if len(p) == 0 {
		return &none[0], 0
	}
	return &p[0], (len(p)/n + line - 1) &^ (line - 1)
}

// steps puts steps of all states.
func (e *Encoder) steps(src []byte) {
	n := len(src) / len(e.x)
	c := coding()
	if c == nil || n == 0 || len(e.x) == LeastLanes {
		e.stepsPortable(src)
		return
	}
	_ = e.buf[:e.at][2*len(src)+beyond-1] // the kernels check nothing
	out, outStep := fetching(e.Written, n, src)
	if len(e.x) == ManyLanes && simd.Has(simd.AVX512) {
		var rcp, rest [32]uint32
		if e.codes.narrow(&e.set, &rcp, &rest) {
			e.at -= encode64NarrowAVX512(
				&e.buf[e.at-1], &src[len(src)-1], n, &rcp[0], &rest[0], &e.x[0], out, outStep)
			return
		}
	}
	kernel := c.encode[width(len(e.x))]
	e.at -= kernel(&e.buf[e.at-1], &src[len(src)-1], n, &e.codes[0], &e.x[0], out, outStep)
}

// narrow sets rcp and rest to the codes of set, by the values modulo 32. It reports whether these all differ.
func (c *codes) narrow(set *values, rcp, rest *[32]uint32) bool {
	var any uint32
	for _, m := range set {
		lower, upper := uint32(m), uint32(m>>32)
		if any&lower|(any|lower)&upper != 0 {
			return false
		}
		any |= lower | upper
	}
	for i, m := range set {
		for ; m != 0; m &= m - 1 {
			v := 64*i + bits.TrailingZeros64(m)
			code := c[v&255]
			rcp[v%32], rest[v%32] = uint32(code), uint32(code>>32)
		}
	}
	return true
}

// values is valuesPortable.
func (f *Freqs) values() (set values) {
	switch {
	case simd.Has(simd.AVX512):
		valuesAVX512(&set[0], &f[0])
	case simd.Has(simd.AVX2):
		valuesAVX2(&set[0], &f[0])
	default:
		return f.valuesPortable()
	}
	return set
}

// shares is sharesPortable.
func (f *Freqs) shares(c *Counts, scale float64) (sum, top int) {
	var s, t uint64
	switch {
	case simd.Has(simd.AVX512):
		s, t = sharesAVX512(&f[0], &c[0], scale)
	case simd.Has(simd.AVX2):
		s, t = sharesAVX2(&f[0], &c[0], scale)
	default:
		return f.sharesPortable(c, scale)
	}
	return int(s), int(t)
}

// add is addPortable.
func (t *tally) add(p []byte) {
	if n := len(p) / 8; n > 0 {
		tallyWords(&t[0][0], &p[0], n)
	}
}

// sum is sumPortable.
func (c *Counts) sum(t *tally, shift int, set *values) {
	switch {
	case simd.Has(simd.AVX512):
		sumAVX512(&c[0], &t[0][0], uint64(shift), &set[0])
	case simd.Has(simd.AVX2):
		sumAVX2(&c[0], &t[0][0], uint64(shift), &set[0])
	default:
		c.sumPortable(t, shift, set)
	}
}

// logs is logsPortable.
func (c *Counts) logs() (sum uint64, used, total int) {
	switch {
	case simd.Has(simd.AVX512):
		return logsAVX512(&c[0])
	case simd.Has(simd.AVX2):
		return logsAVX2(&c[0])
	}
	return c.logsPortable()
}

// holds is holdsPortable.
func (s *values) holds(p []byte) int {
	k := simd.Blocks(simd.AVX2, len(p))
	if k == 0 {
		return s.holdsPortable(p)
	}
	left := 0
	if simd.Has(simd.AVX512) {
		left = holdsAVX512(&s[0], &p[0], k)
	} else {
		left = holdsAVX2(&s[0], &p[0], k)
	}
	n := (k - left) * line
	if left > 0 {
		return n
	}
	return n + s.holdsPortable(p[n:])
}
