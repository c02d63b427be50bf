package anchor

import "math"

const (
	maxGroup  = 1024
	everyNth  = 4 // of a row's groups one in so many is looked at
	greatests = 3
)

// group is how many elements a group has.
func (s *Sketch) group() (cols, n int64) {
	for n = maxGroup; n >= 256; n /= 2 {
		if s.cols >= n {
			return s.cols, n
		}
	}
	return math.MaxInt64 / 2, maxGroup
}

// each calls f with the first elements of the groups, of n elements, that lie in the elements from first to
// end.
func (s *Sketch) each(first, end int64, f func(at, n int64)) {
	cols, n := s.group()
	for row := first / cols; row*cols < end; row++ {
		at := row * cols
		if at < first {
			at += (first - at + everyNth*n - 1) / (everyNth * n) * (everyNth * n)
		}
		for ; at+n <= min(end, row*cols+cols); at += everyNth * n {
			f(at, n)
		}
	}
}

// great is a magnitude, as its bits, and where it is.
type great struct {
	bits  uint32
	place uint16 // and the sign, in the lowest bit
}

// three are the greatest magnitudes, the greatest first.
type three [greatests]great

// put takes in a magnitude that is greater than the least of t.
func (t *three) put(bits uint32, place int, negative uint32) {
	g := great{bits, uint16(place<<1) | uint16(negative)}
	i := greatests - 1
	for ; i > 0 && t[i-1].bits < bits; i-- {
		t[i] = t[i-1]
	}
	t[i] = g
}

// note adds the group of which t are the greatest, unless there are too few, or what has bits from infinite
// on is among them.
func (l *least) note(t *three, infinite uint32) {
	if a, b, ok := t.pair(infinite); ok {
		if o := order(a, b); o < l.below {
			l.add(mark{o, keyOf(a, b)})
		}
	}
}

// pair is what is hashed of a group.
func (t *three) pair(infinite uint32) (a, b uint64, ok bool) {
	if t[greatests-1].bits == 0 || t[0].bits >= infinite {
		return 0, 0, false
	}
	x, y, z := uint64(t[0].place), uint64(t[1].place), uint64(t[2].place)
	if x > y {
		x, y = y, x
	}
	if y > z {
		y, z = z, y
	}
	if x > y {
		x, y = y, x
	}
	return x | y<<16 | z<<32, ^z | ^x<<16 | ^y<<32, true
}

// groups looks at the groups of p, numbers of bfloat16 of which the first is the element first.
func (s *Sketch) groups(l *least, p []byte, first int64) {
	s.each(first, first+int64(len(p)/2), func(at, n int64) {
		t := greatestOf(p[2*(at-first):][:2*n])
		l.note(&t, infinite16)
	})
}

const (
	infinite16 = 0x7f80
	infinite32 = 0x7f800000
)

// greatestOf are those of numbers of bfloat16. Most are not among them, which is seen of four at a time: what
// is greater than the least of them makes 0x8000 or more with 0x7fff less that.
func greatestOf(p []byte) (t three) {
	more := uint64(0x7fff * ones)
	for i := 0; i+8 <= len(p); i += 8 {
		x := le.Uint64(p[i:])
		if (x&^signs+more)&signs == 0 {
			continue
		}
		for k := range 4 {
			h := uint16(x >> (16 * k))
			if m := uint32(h & 0x7fff); m > t[greatests-1].bits {
				t.put(m, i/2+k, uint32(h>>15))
			}
		}
		more = uint64(0x7fff-t[greatests-1].bits) * ones
	}
	for i := len(p) / 8 * 8; i+2 <= len(p); i += 2 {
		h := le.Uint16(p[i:])
		if m := uint32(h & 0x7fff); m > t[greatests-1].bits {
			t.put(m, i/2, uint32(h>>15))
		}
	}
	return t
}

// greatestOfBlocks are those of quantised numbers, up to maxGroup of them.
func (n Numbers) greatestOfBlocks(w *scratch, p []byte) (t three) {
	if len(w.numbers) < maxGroup {
		w.numbers = make([]float32, maxGroup)
	}
	elems, size := n.block()
	x := w.numbers[:int64(len(p))/size*elems]
	dequantise(n.format, x, p)
	for i, v := range x {
		bits := math.Float32bits(v)
		if m := bits & 0x7fffffff; m > t[greatests-1].bits {
			t.put(m, i, bits>>31)
		}
	}
	return t
}

// GroupKey is the anchor of the elements of p, up to 1024 in whole blocks, as one group.
func (n Numbers) GroupKey(p []byte) (k Key, ok bool) {
	w := scratches.Get().(*scratch)
	defer scratches.Put(w)
	t := n.greatestOfBlocks(w, p)
	a, b, ok := t.pair(infinite32)
	return keyOf(a, b), ok
}

// GroupKey is that of numbers of bfloat16.
func GroupKey(p []byte) (k Key, ok bool) {
	t := greatestOf(p)
	a, b, ok := t.pair(infinite16)
	return keyOf(a, b), ok
}

// groupsOfBlocks is groups for blocks.
func (s *Sketch) groupsOfBlocks(l *least, w *scratch, p []byte, first int64) {
	elems, size := s.numbers.block()
	s.each(first, first+int64(len(p))/size*elems, func(at, n int64) {
		if (at-first)%elems != 0 || n%elems != 0 {
			return
		}
		t := s.numbers.greatestOfBlocks(w, p[(at-first)/elems*size:][:n/elems*size])
		l.note(&t, infinite32)
	})
}
