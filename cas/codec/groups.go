package codec

// groups are elements sorted by the exponents of a base: how much a number is moved by a step of training, in
// units of its last place, hangs on its exponent most of all.
type groups struct {
	n      int
	counts [maxGroups]int
	of     []byte // each element's group
}

const maxGroups = 6

// groupShape says which exponents make which group: the sign aside, top minus the bits from shift on is the
// group's number, but 0 at least and n-1 at most.
type groupShape struct{ n, shift, top int }

// ofPortable sets of to the elements' groups. base has as many elements, of w bytes.
func (g groupShape) ofPortable(of, base []byte, w int) {
	for i := range of {
		e := loadElem(base[i*w:], w) & (1<<(8*w-1) - 1) >> g.shift
		of[i] = byte(min(max(g.top-int(e), 0), g.n-1))
	}
}

// chooseGroups says how to sort elements of w bytes by the exponents of base; n is 1 when that is no use.
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

// sortBy sorts elements by their base's, of w bytes each. What it returns is valid until the next call. The
// verification of what was encoded sorts again: what it takes over from the encoder it does not verify.
func (s *planeState) sortBy(shape groupShape, base []byte, w int) *groups {
	g := &s.groups
	*g = groups{n: shape.n, of: s.group[:len(base)/w]}
	g.number(shape, base, w)
	return g
}

// countPortable adds the elements from i on to counts.
func (g *groups) countPortable(i int) {
	for _, k := range g.of[i:] {
		g.counts[k]++
	}
}

// gap is what sort leaves behind each group's bytes: its kernel writes some more.
const gap = 64

// starts are where the groups' first elements are, sorted, with gaps between the groups.
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

// sortPortable puts the bytes of p from i on to at and what follows, each by its group.
func (g *groups) sortPortable(dst, p []byte, at *[maxGroups]int, i int) {
	for ; i < len(p); i++ {
		k := g.of[i]
		dst[at[k]] = p[i]
		at[k]++
	}
}

// unsortPortable undoes sortPortable.
func (g *groups) unsortPortable(p, sorted []byte, at *[maxGroups]int, i int) {
	for ; i < len(p); i++ {
		k := g.of[i]
		p[i] = sorted[at[k]]
		at[k]++
	}
}
