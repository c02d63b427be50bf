package codec

import (
	"bytes"

	"ckptfs/cas/rans"
)

const (
	// minCoded is the length below which frequencies outweigh what they save.
	minCoded = 32
	// minGain: coding must save 1/minGain of a part, 1.5 %, to be worth a reader's time.
	minGain = 66
	// fewOthers is how many bytes of a sample that are not zero are too few to be sorted.
	fewOthers = 2
)

// choose sets parts to those that code the planes in s.bufs in the fewest bytes, or nearly so.
func (s *planeState) choose(w int, g *groups) {
	for _, s.flat = range []bool{false, true} {
		s.parts, s.tables, s.used = s.parts[:0], s.tables[:0], 0
		if g != nil || s.flat || !s.chooseAgain(w) {
			s.glance(w, g)
			for k := range w {
				s.choosePlane(k, g)
			}
		}
		s.coded = 0
		var size float64
		for i := range s.parts {
			if p := &s.parts[i]; p.code&^partWhole == partRans {
				s.coded += len(p.p)
				size += p.size
			}
		}
		if s.coded == 0 {
			s.lanes = 0
			return
		}
		s.lanes = rans.Lanes(s.coded, size)
		if size+float64(4*s.lanes+minCoded) < float64(s.coded) {
			return
		} // else a stream does not pay
	}
}

// source is bytes that are to be coded, and what is known of them.
type source struct {
	p            []byte
	c            rans.Counts
	bitmap, rest []byte      // where zeros are many
	ones         rans.Counts // of bitmap
	period       int         // of bitmap, which is differences then; 0: none
	sparse       bool        // a sparse part takes less
	random       bool
	size         float64
}

// look sets src to what is known of p, which is a group of elements or, if whole, a plane. Looking for a
// period pays for a plane only.
func (s *planeState) look(src *source, p []byte, whole bool) {
	*src = source{p: p}
	if len(p) > 0 && constant(p) {
		src.c[p[0]] = uint32(len(p))
		src.size = 2
		return
	}
	if zeros, of := sampleZeros(p); manyZeros(2*zeros, of) { // zeros need not be counted
		s.pack(src)
		if whole {
			s.findPeriod(src)
		}
		src.c.Count(src.rest)
		if src.c[0] = uint32(len(p) - len(src.rest)); !manyZeros(int(src.c[0]), len(p)) {
			src.bitmap = nil
		}
	} else if src.random = src.c.Count(p); src.random {
		src.size = float64(len(p) + 1)
		return
	}
	src.measure()
}

// tryPack makes the bitmap and the rest of src where zeros are many.
func (s *planeState) tryPack(src *source) {
	if n := len(src.p); manyZeros(int(src.c[0]), n) {
		s.pack(src)
		s.findPeriod(src)
		src.c[0] = uint32(n - len(src.rest))
	}
}

// manyZeros reports whether so many zeros of n bytes may make a sparse part smaller.
func manyZeros(zeros, n int) bool { return 5*zeros > 2*n }

// pack makes the bitmap and the rest of src.
func (s *planeState) pack(src *source) {
	src.bitmap = s.spare[s.used:][:(len(src.p)+7)/8]
	s.used += len(src.bitmap)
	src.rest = pack(s.spare[s.used:], src.bitmap, src.p)
	s.used += len(src.rest)
	src.ones.Count(src.bitmap)
}

// measure estimates how many bytes src takes.
func (src *source) measure() {
	n := len(src.p)
	src.size = src.c.Estimate(n)
	if src.bitmap == nil {
		return
	}
	zeros := src.c[0]
	src.c[0] = 0
	size := src.ones.Estimate(len(src.bitmap)) + src.c.Estimate(n-int(zeros)) + 1
	src.c[0] = zeros
	if size < src.size || 4*int(zeros) > 3*n { // where zeros are many sparse saves time
		src.sparse, src.size = true, size
	}
}

// chooseAgain adds the parts of all planes if a common bitmap, of the elements that are zero, pays. It
// reports whether it does.
func (s *planeState) chooseAgain(w int) bool {
	sparse, n := 0, len(s.bufs[0])
	if n < minGrouped {
		return false
	}
	for _, p := range s.bufs[:w] {
		if manyZeros(sampleZeros(p)) {
			sparse++
		}
	}
	if sparse < 2 {
		return false
	}
	// What is not zero is sorted before what is.
	g, any := &s.groups, s.sorted[:n]
	*g = groups{n: 2, of: s.group[:n]}
	union(any, g.of, s.bufs[:w])
	g.count()
	g.n = 1 // the others are zeros
	common := source{p: any}
	s.pack(&common)
	s.findPeriod(&common)
	s.used -= len(common.rest)
	var saved float64
	sources := s.sources[:w]
	var again [8]bool
	var sizes [8]float64
	last := 0
	for k := range sources {
		src, p := &sources[k], s.bufs[k]
		if constant(p) || rans.SampleBits(p, rans.RandomBits) > rans.RandomBits {
			*src = source{p: p}
			continue
		}
		s.look(src, p, true)
		src.c[0] = uint32(bytes.Count(p, []byte{0}))
		zeros := src.c[0]
		src.c[0] -= uint32(g.counts[1])
		if sizes[k] = src.c.Estimate(g.counts[0]) + 1; sizes[k] < src.size {
			again[k], last = true, k
			saved += src.size - sizes[k]
		}
		src.c[0] = zeros
	}
	for k := range last { // a bitmap of its own would be taken for the common one
		if src := &sources[k]; src.sparse && !again[k] {
			plain := src.c.Estimate(n)
			again[k] = sizes[k] < plain
			saved -= min(sizes[k], plain) - src.size
		}
	}
	if saved <= common.ones.Estimate(len(common.bitmap)) {
		return false
	}
	code := byte(partSparse)
	for k := range sources {
		src := &sources[k]
		switch {
		case again[k]:
			s.parts = append(s.parts, part{code: code})
			if code == partSparse {
				s.addBitmap(&common)
			}
			code = partAgain
			sorted := s.spare[s.used:][:n+2*gap]
			s.used += g.counts[0]
			s.from[0], s.to[0] = src.p, sorted
			g.sort(s.to[:1], s.from[:1])
			src.c[0] -= uint32(g.counts[1])
			s.addPart(sorted[:g.counts[0]], &src.c)
		case src.size == 0:
			s.plans[k] = s.planOf(src.p, nil)
			s.choosePlane(k, nil)
		case k < last:
			s.addPart(src.p, &src.c)
		default:
			s.add(src)
		}
	}
	return true
}

// plan is what is known of a plane before its bytes are counted.
type plan byte

const (
	planWhole plan = iota // not by groups
	planConst
	planRaw
	planSort // by groups, if that takes less
)

// glance sets the plans of all planes, and sorts those that are to be sorted: together, which is faster.
func (s *planeState) glance(w int, g *groups) {
	n := 0
	for k, p := range s.bufs[:w] {
		if s.plans[k] = s.planOf(p, g); s.plans[k] == planSort {
			s.from[n], s.to[n] = p, s.sortedPlane(k, len(p))
			n++
		}
	}
	if n > 0 {
		g.sort(s.to[:n], s.from[:n])
	}
}

// sortedPlane is where plane k of n bytes is put by groups, with gaps.
func (s *planeState) sortedPlane(k, n int) []byte {
	room := n + maxGroups*gap
	return s.sorted[k*room:][:room]
}

// planOf looks at samples of p.
func (s *planeState) planOf(p []byte, g *groups) plan {
	zeros, of := sampleZeros(p)
	switch {
	case constant(p):
		return planConst
	case s.flat || len(p) < minCoded ||
		(zeros == 0 || g == nil && 64*zeros <= of) && rans.SampleBits(p, rans.RandomBits) > rans.RandomBits:
		return planRaw
	case g == nil || zeros >= of-fewOthers:
		return planWhole
	}
	return planSort
}

// choosePlane adds the parts of plane k: as it is, or sorted by groups where that takes less.
func (s *planeState) choosePlane(k int, g *groups) {
	p := s.bufs[k]
	whole := byte(partWhole)
	if g == nil {
		whole = 0
	}
	first, all := len(s.parts), &s.sources[maxGroups]
	switch s.plans[k] {
	case planConst:
		s.parts = append(s.parts, part{code: whole | partConst, p: p})
		return
	case planRaw:
		s.parts = append(s.parts, part{code: whole | partRaw, p: p})
		return
	case planWhole:
		s.look(all, p, true)
		s.add(all)
		s.parts[first].code |= whole
		return
	}
	*all = source{p: p}
	var sum float64
	groups := g.sorted(s.sortedPlane(k, len(p)))
	for i, p := range groups[:g.n] {
		src := &s.sources[i]
		s.look(src, p, false)
		sum += src.size
		for v, k := range src.c {
			all.c[v] += k
		}
	}
	s.tryPack(all)
	all.measure()
	if sum < all.size-all.size/1024 {
		for i := range g.n {
			s.add(&s.sources[i])
		}
		return
	}
	s.add(all)
	s.parts[first].code |= partWhole
}

// add adds the parts that code src.
func (s *planeState) add(src *source) {
	switch {
	case src.random:
		s.parts = append(s.parts, part{code: partRaw, p: src.p})
		return
	case !src.sparse || len(src.rest) == 0:
		s.addPart(src.p, &src.c)
		return
	}
	s.parts = append(s.parts, part{code: partSparse})
	s.addBitmap(src)
	src.c[0] = 0
	s.addPart(src.rest, &src.c)
}

// addBitmap adds the part for the bitmap of src.
func (s *planeState) addBitmap(src *source) {
	if src.period > 0 {
		s.parts = append(s.parts, part{code: partPeriod, period: byte(src.period)})
	}
	s.addPart(src.bitmap, &src.ones)
}

// addPart adds the part for p, of counts c, unless it is empty.
func (s *planeState) addPart(p []byte, c *rans.Counts) {
	n := len(p)
	if n == 0 {
		return
	}
	s.parts = append(s.parts, part{code: partRaw, p: p})
	at := &s.parts[len(s.parts)-1]
	if constant(p) {
		at.code = partConst
		return
	}
	if n < minCoded {
		return
	}
	bits, _, _ := c.Entropy()
	coded := float64(n) * bits / 8
	most := int(float64(n-n/minGain) - coded)
	if most < 0 {
		return
	}
	at.f.Normalize(c)
	first := len(s.tables)
	var ok bool
	if s.tables, ok = at.f.Append(s.tables, most); !ok {
		return
	}
	at.table = [2]int{first, len(s.tables)}
	at.size = float64(len(s.tables)-first) + coded
	at.code = partRans
}

// constant reports whether all bytes of p, one at least, are the same.
func constant(p []byte) bool { return bytes.Equal(p[1:], p[:len(p)-1]) }
