package recipe

// A vector is what a take takes of bases, of further elements behind them, and of zeros behind these. It is
// read in order, mostly without a copy: what it has may be several MiB.
type vector struct {
	size   int      // of an element
	parts  [][]byte // bases, without what is no whole element at their end; further elements
	groups []Group

	// Where it is read next: so many elements into a stretch of a repetition of the first group.
	repeat, stretch, at int

	part, from int     // the part that was read last, and where it begins
	cut        [8]byte // an element that lies in several parts
}

// zeros are read behind everything else.
var zeros [4096]byte

// start begins to read what t takes.
func (v *vector) start(t *Take, bases [][]byte, more []byte) {
	*v = vector{size: t.Type.Size(), parts: append(v.parts[:0], bases...), groups: t.Groups}
	total := 0
	for _, p := range bases {
		total += len(p)
	}
	for i, cut := len(bases)-1, total%v.size; cut > 0; i-- {
		n := min(cut, len(v.parts[i]))
		v.parts[i] = v.parts[i][:len(v.parts[i])-n]
		cut -= n
	}
	v.parts = append(v.parts, more)
}

// next is some of the next elements, at least one and at most so many. It stays until the next call. nil:
// there are none.
func (v *vector) next(most int) ([]byte, error) {
	for len(v.groups) > 0 {
		g := &v.groups[0]
		if v.repeat == g.Repeat || g.empty() { // however often: that would take time, and nothing else
			v.groups = v.groups[1:]
			v.repeat, v.stretch, v.at = 0, 0, 0
			continue
		}
		for ; v.repeat < g.Repeat; v.repeat, v.stretch = v.repeat+1, 0 {
			for ; v.stretch < len(g.Stretches); v.stretch, v.at = v.stretch+1, 0 {
				s := &g.Stretches[v.stretch]
				if v.at == s.Len {
					continue
				}
				first := s.First + v.repeat*s.Step
				if first < 0 || first > maxField {
					return nil, corrupt("element %d is taken", first)
				}
				p := v.read((first+v.at)*v.size, min(most, s.Len-v.at))
				v.at += len(p) / v.size
				return p, nil
			}
		}
	}
	return nil, nil
}

// read is some of n elements from byte at on.
func (v *vector) read(at, n int) []byte {
	if v.part == len(v.parts) || at < v.from || at-v.from >= len(v.parts[v.part]) {
		v.find(at)
	}
	if v.part == len(v.parts) {
		return zeros[:min(n, len(zeros)/v.size)*v.size]
	}
	p := v.parts[v.part][at-v.from:]
	if n = min(n, len(p)/v.size); n > 0 {
		return p[:n*v.size]
	}
	for i := range v.size {
		v.cut[i] = 0
		if v.find(at + i); v.part < len(v.parts) {
			v.cut[i] = v.parts[v.part][at+i-v.from]
		}
	}
	return v.cut[:v.size]
}

// find moves to the part that byte at lies in.
func (v *vector) find(at int) {
	for at < v.from {
		v.part--
		v.from -= len(v.parts[v.part])
	}
	for v.part < len(v.parts) && at-v.from >= len(v.parts[v.part]) {
		v.from += len(v.parts[v.part])
		v.part++
	}
}

// append appends all that is still to be read to dst.
func (v *vector) append(dst []byte) ([]byte, error) {
	for {
		p, err := v.next(MaxValue)
		if err != nil || p == nil {
			return dst, err
		}
		dst = append(dst, p...)
	}
}
