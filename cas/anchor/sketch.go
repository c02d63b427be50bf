package anchor

import (
	"encoding/binary"
	"sync"
)

var le = binary.LittleEndian

// Sketch gathers the anchors of one tensor from its parts, which several goroutines may add, in any order.
type Sketch struct {
	numbers Numbers
	cols    int64 // elements of a row
	step    int   // how many elements there are from one window to the next
	of      [kinds]shared
}

// New is a Sketch of a base of so many elements, with rows of cols, or without rows where that is 0.
func New(n Numbers, elems, cols int64) *Sketch {
	return newSketch(n, elems, cols, width, BaseWindows, BaseGroups)
}

// NewTarget is one of a target, which keeps so many anchors of each kind.
func NewTarget(n Numbers, elems, cols int64, windows, groups int) *Sketch {
	return newSketch(n, elems, cols, 1, windows, groups)
}

func newSketch(n Numbers, elems, cols int64, step, windows, groups int) *Sketch {
	s := &Sketch{numbers: n, cols: cols, step: step}
	row, g := s.group()
	all := [kinds]int64{elems / int64(step), elems / g / everyNth}
	if row <= elems {
		all[Groups] = elems / row * ((row/g + everyNth - 1) / everyNth)
	}
	for k, most := range [kinds]int{windows, groups} {
		s.of[k].least = newLeast(most)
		// Where an eighth of them is of use, there are enough that are less.
		if bound := uint64(most) * enough; most > 0 && bound < uint64(all[k]) {
			s.of[k].below = ^uint64(0) / uint64(all[k]) * bound
		}
		s.of[k].bound.Store(s.of[k].below)
	}
	return s
}

// enough is how many times as many marks as are kept are looked at more closely.
const enough = 8

// Keys are the anchors so far, the least first.
func (s *Sketch) Keys(k Kind) []Key { return s.of[k].keys() }

// scratch is what parts are looked at in.
type scratch struct {
	halves  []byte
	numbers []float32
	marks   [kinds][]mark
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Add adds the bytes p of the tensor, which begin at off of it. What is cut off at their ends is left out.
func (s *Sketch) Add(p []byte, off int64) {
	w := scratches.Get().(*scratch)
	defer scratches.Put(w)
	elems, size := s.numbers.block()
	first := (off + size - 1) / size // block
	if skip := first*size - off; skip >= int64(len(p)) {
		return
	} else {
		p = p[skip:]
	}
	p = p[:int64(len(p))/size*size]
	first *= elems
	var found [kinds]least
	for k := range found {
		found[k] = least{n: s.of[k].n, marks: w.marks[k][:0], below: s.of[k].bound.Load()}
	}
	if s.numbers.Quantised() {
		s.groupsOfBlocks(&found[Groups], w, p, first)
	} else {
		if s.numbers.float != bf16 && cap(w.halves) < len(p) {
			w.halves = make([]byte, len(p))
		}
		p = s.numbers.AsBF16(w.halves[:cap(w.halves)], p)
		if s.of[Windows].n > 0 {
			s.windows(&found[Windows], p, first)
		}
		if s.of[Groups].n > 0 {
			s.groups(&found[Groups], p, first)
		}
	}
	for k := range found {
		s.of[k].merge(&found[k])
		w.marks[k] = found[k].marks
	}
}

// windows looks at the windows of p, whose first element is first.
func (s *Sketch) windows(l *least, p []byte, first int64) {
	if s.step == width {
		skip := int(-first & (width - 1))
		if 2*skip >= len(p) {
			return
		}
		for p = p[2*skip:]; len(p) >= 2*width; p = p[2*width:] {
			a, b := le.Uint64(p), le.Uint64(p[8:])
			if order(a, b) < l.below {
				l.window(a, b)
			}
		}
		return
	}
	for i := 0; i+2*width <= len(p); i += 2 {
		q := p[i : i+2*width : i+2*width]
		a, b := le.Uint64(q), le.Uint64(q[8:])
		if order(a, b) < l.below {
			l.window(a, b)
		}
	}
}

// minChanges is how many neighbours of a window differ at least.
const minChanges = 6

func (l *least) window(a, b uint64) {
	if changes(a, b) {
		l.add(mark{order(a, b), keyOf(a, b)})
	}
}

// Width is how many bytes the window has that WindowKey is of.
const Width = 2 * width

// WindowKey is the anchor of the window that p, numbers of bfloat16, begins with; ok is false where such are
// left out.
func WindowKey(p []byte) (k Key, ok bool) {
	a, b := le.Uint64(p), le.Uint64(p[8:])
	return keyOf(a, b), changes(a, b)
}

// changes reports whether the neighbours in a window differ as they must.
func changes(a, b uint64) bool {
	n := 0
	for i := 0; i < 48; i += 16 {
		if uint16(a>>i) != uint16(a>>(i+16)) {
			n++
		}
		if uint16(b>>i) != uint16(b>>(i+16)) {
			n++
		}
	}
	if uint16(a>>48) != uint16(b) {
		n++
	}
	return n >= minChanges
}
