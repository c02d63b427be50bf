package codec

import (
	"math/bits"

	"golang.org/x/sys/cpu"
)

// wide says that the kernels in AVX-512 can be used and pay: with VBMI2 come processors that do not clock down for them.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL &&
	cpu.X86.HasAVX512CD && cpu.X86.HasAVX512VBMI && cpu.X86.HasAVX512VBMI2 && cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT

// makeTable is tablePortable.
func makeTable(t *ransTable, f *freqs) {
	if wide {
		tableAVX512(&t[0], &f[0])
	} else {
		tablePortable(t, f)
	}
}

// steps decodes steps of all states into dst, and returns what is left of it.
func (d *ransDecoder) steps(dst []byte) ([]byte, error) {
	lanes := len(d.x)
	n := len(dst) / lanes
	if !wide || n == 0 || lanes == leastLanes {
		return dst, nil
	}
	kernel, read := decode64AVX512, 2*lanes
	switch lanes {
	case someLanes:
		kernel = decode32AVX512
	case fewLanes:
		kernel = decode16AVX512
	}
	rest := dst[n*lanes:]
	if len(d.words) >= read {
		raw, rawStep := fetching(d.raw, n, dst)
		out, outStep := fetching(d.out, n, dst)
		left, used := kernel(&dst[0], n, &d.table[0], &d.x[0], &d.words[0], len(d.words), raw, rawStep, out, outStep)
		d.words = d.words[used:]
		dst, n = dst[(n-left)*lanes:], left
	}
	if n > 0 { // with zeros behind the words it goes on as long as it took none of those
		clear(d.tail[copy(d.tail[:], d.words):])
		_, used := kernel(&dst[0], n, &d.table[0], &d.x[0], &d.tail[0], len(d.words)+read, &dst[0], 0, &dst[0], 0)
		if used > len(d.words) {
			return nil, errEnds
		}
		d.words = d.words[used:]
	}
	return rest, nil
}

// fetching is where n steps begin to fetch p, and by how much each goes on; none is what may be fetched instead of nothing.
func fetching(p []byte, n int, none []byte) (at *byte, step int) {
	if len(p) == 0 {
		return &none[0], 0
	}
	return &p[0], (len(p)/n + line - 1) &^ (line - 1)
}

// steps puts steps of all states.
func (e *ransEncoder) steps(src []byte) {
	n := len(src) / len(e.x)
	if !wide || n == 0 || len(e.x) == leastLanes {
		e.stepsPortable(src)
		return
	}
	kernel := encode64AVX512
	switch len(e.x) {
	case someLanes:
		kernel = encode32AVX512
	case fewLanes:
		kernel = encode16AVX512
	}
	_ = e.buf[:e.at][2*len(src)-1] // the kernels check nothing
	out, outStep := fetching(e.out, n, src)
	if len(e.x) == manyLanes {
		var rcp, rest [32]uint32
		if e.code.narrow(&e.set, &rcp, &rest) {
			e.at -= encode64NarrowAVX512(&e.buf[e.at-1], &src[len(src)-1], n, &rcp[0], &rest[0], &e.x[0], out, outStep)
			return
		}
	}
	e.at -= kernel(&e.buf[e.at-1], &src[len(src)-1], n, &e.code[0], &e.x[0], out, outStep)
}

// narrow sets rcp and rest to the codes of set, by the values modulo 32, and reports whether those all differ.
func (c *ransCode) narrow(set *values, rcp, rest *[32]uint32) bool {
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
func (f *freqs) values() (set values) {
	if !wide {
		return f.valuesPortable()
	}
	valuesAVX512(&set[0], &f[0])
	return set
}

// shares is sharesPortable.
func (f *freqs) shares(c *counts, scale float64) (sum, top int) {
	if !wide {
		return f.sharesPortable(c, scale)
	}
	s, t := sharesAVX512(&f[0], &c[0], scale)
	return int(s), int(t)
}

// add is addPortable.
func (t *tally) add(p []byte) {
	if n := len(p) / 8; n > 0 {
		tallyWords(&t[0][0], &p[0], n)
	}
}

// ones is onesPortable.
func ones(p []byte) int {
	n := 0
	if k := blocks(len(p)); k > 0 {
		n, p = onesPOPCNT(&p[0], k), p[k*wideBlock:]
	}
	return n + onesPortable(p)
}

// sum is sumPortable.
func (c *counts) sum(t *tally, shift int, set *values) {
	if wide {
		sumAVX512(&c[0], &t[0][0], uint64(shift), &set[0])
	} else {
		c.sumPortable(t, shift, set)
	}
}

// logs is logsPortable.
func (c *counts) logs() (sum uint64, used, total int) {
	if wide {
		return logsAVX512(&c[0])
	}
	return c.logsPortable()
}

// holds is holdsPortable.
func (s *values) holds(p []byte) int {
	n := 0
	if k := blocks(len(p)); k > 0 {
		n = (k - holdsAVX512(&s[0], &p[0], k)) * line
		if n < k*line {
			return n
		}
	}
	return n + s.holdsPortable(p[n:])
}

// pack is packPortable; it may write 63 bytes of dst more.
func pack(dst, bitmap, p []byte) []byte {
	n := 0
	if k := blocks(len(p)); k > 0 {
		_, _ = dst[len(p)+64:], bitmap[8*k-1] // the kernel checks nothing
		n = packAVX512(&dst[0], &bitmap[0], &p[0], k)
		bitmap, p = bitmap[8*k:], p[64*k:]
	}
	return dst[:n+len(packPortable(dst[n:], bitmap, p))]
}

// union is unionPortable, from the first byte on.
func union(any, zero []byte, planes [][]byte) {
	k := blocks(len(any))
	if k > 0 {
		var at [8]*byte
		for i, p := range planes {
			_ = p[64*k-1]
			at[i] = &p[0]
		}
		_ = zero[64*k-1]
		unionAVX512(&any[0], &zero[0], &at[0], len(planes), k)
	}
	unionPortable(any, zero, planes, 64*k)
}

// scatter is scatterPortable.
func scatter(p, bitmap []byte, rest *[maxPlane + 8]byte) {
	n := 0
	if k := blocks(len(p)); k > 0 {
		_ = bitmap[8*k-1]
		n = spreadAVX512(&p[0], &bitmap[0], &rest[0], k)
		bitmap, p = bitmap[8*k:], p[64*k:]
	}
	scatterPortable(p, bitmap, rest, n)
}

// number sets of to the groups of the elements of base, of w bytes, and counts them.
func (g *groups) number(shape groupShape, base []byte, w int) {
	done := 0
	if k := blocks(len(g.of) * w); k > 0 && (w == 2 || w == 4) {
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

// blocks is how many blocks of the kernels in AVX-512 n bytes have; without these none.
func blocks(n int) int {
	if !wide {
		return 0
	}
	return n / wideBlock
}

// count counts the groups' elements.
func (g *groups) count() {
	k := blocks(len(g.of))
	if k > 0 {
		countGroupsAVX512(&g.counts[0], &g.of[0], k, g.n)
	}
	g.countPortable(64 * k)
}

// sort sets dst, which has room for gaps, to p, sorted by group: see sorted.
func (g *groups) sort(dst, p []byte) {
	at := g.starts(gap)
	k := blocks(len(p))
	if k > 0 {
		_, _ = dst[:len(p)+g.n*gap], g.of[:len(p)]
		groupAVX512(&dst[0], &p[0], &g.of[0], k, g.n, &at[0])
	}
	g.sortPortable(dst, p, &at, 64*k)
}

// unsort sets p to what sorted has by group, without gaps.
func (g *groups) unsort(p, sorted []byte) {
	at := g.starts(0)
	k := blocks(len(p))
	if k > 0 {
		_, _ = sorted[:len(p)], g.of[:len(p)]
		ungroupAVX512(&p[0], &sorted[0], &g.of[0], k, g.n, &at[0])
	}
	g.unsortPortable(p, sorted, &at, 64*k)
}
