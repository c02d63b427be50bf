package codec

// groups are elements sorted by the exponents of a base. How far a step of training moves a number, in units
// of its last place, depends on its exponent most of all.
type groups struct {
	n      int
	counts [maxGroups]int
	of     []byte // each element's group
}

const maxGroups = 6

// groupShape says which exponents make which group. An element's group is top minus its bits from shift on,
// without the sign, but 0 at least and n-1 at most.
type groupShape struct{ n, shift, top int }

// ofPortable sets of to the elements' groups. base has as many elements, of w bytes.
func (g groupShape) ofPortable(of, base []byte, w int) {
	for i := range of {
		e := loadElem(base[i*w:], w) & (1<<(8*w-1) - 1) >> g.shift
		of[i] = byte(min(max(g.top-int(e), 0), g.n-1))
	}
}

// chooseGroups says how to sort elements of w bytes by the exponents of base. n is 1 where sorting does not
// pay.
func chooseGroups(base []byte, w, shift int) groupShape {
	const sample, run = 2048, 64 // bytes
	var t [256]int
	step := max(run, len(base)/sample*run/w&^(run-1))
	total := 0
	for ; len(base) >= run; base = base[min(step, len(base)):] {
		if w == 2 {
			for i := 0; i < run; i += 2 {
				t[byte(le.Uint16(base[i:])<<1>>(shift+1))]++
			}
		} else {
			for i := 0; i < run; i += 4 {
				t[byte(le.Uint32(base[i:])<<1>>(shift+1))]++
			}
		}
		total += run / w
	}
	g := groupShape{n: 1, shift: shift, top: 255}
	sum := 0
	for ; g.top > 0; g.top-- {
		if sum += t[g.top]; sum > total/64 {
			break
		}
	}
	for g.n < maxGroups && g.top-g.n > 0 && sum < total-total/32 {
		sum += t[g.top-g.n]
		g.n++
	}
	return g
}

// sortBy sorts elements by those of their base, of w bytes each. The result is valid until the next call.
// Verification sorts again, since it must not trust what the encoder made.
func (s *planeState) sortBy(shape groupShape, base []byte, w int) *groups {
	g := &s.groups
	*g = groups{n: shape.n, of: s.group[:len(base)/w]}
	g.number(shape, base, w)
	return g
}

// countPortable adds the elements from i on to the counts.
func (g *groups) countPortable(i int) {
	for _, k := range g.of[i:] {
		g.counts[k]++
	}
}

// gap is the room that sort leaves behind each group's bytes, into which its kernel may write.
const gap = 64

// starts are where the groups begin in sorted elements, with gaps between them.
func (g *groups) starts(gap int) (at [maxGroups]int) {
	sum := 0
	for k, n := range g.counts {
		at[k] = sum
		sum += n + gap
	}
	return at
}

// sorted are the bytes of each group in p, which sort set.
func (g *groups) sorted(p []byte) (of [maxGroups][]byte) {
	for k, n := range g.counts[:g.n] {
		of[k] = p[:n:n]
		p = p[n+gap:]
	}
	return of
}

// sort sets the planes dst, with room for gaps, to the bytes of the planes p, sorted by group (see sorted).
// All planes have a byte of each element.
func (g *groups) sort(dst, p [][]byte) {
	for len(p) > 0 {
		n, done, at := g.sortBlocks(dst, p)
		for i := range n {
			g.sortPortable(dst[i], p[i], at, done)
		}
		dst, p = dst[n:], p[n:]
	}
}

// unsort sets the planes p to the bytes of sorted, which lie by group, without gaps, and have room for 16
// more.
func (g *groups) unsort(p, sorted [][]byte) {
	for len(p) > 0 {
		n, done, at := g.unsortBlocks(p, sorted)
		for i := range n {
			g.unsortPortable(p[i], sorted[i], at, done)
		}
		p, sorted = p[n:], sorted[n:]
	}
}

// sortPortable puts each byte of p from i on to where its group goes on in dst, at at.
func (g *groups) sortPortable(dst, p []byte, at [maxGroups]int, i int) {
	for ; i < len(p); i++ {
		k := g.of[i]
		dst[at[k]] = p[i]
		at[k]++
	}
}

// unsortPortable undoes sortPortable.
func (g *groups) unsortPortable(p, sorted []byte, at [maxGroups]int, i int) {
	for ; i < len(p); i++ {
		k := g.of[i]
		p[i] = sorted[at[k]]
		at[k]++
	}
}
