package pickle

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Bounds on a walk.
const (
	MaxDepth = 400     // containers inside one another; what is deeper is not visited
	MaxName  = 1 << 12 // bytes; a path that is longer is not visited
)

// Walker goes through a graph from a value, depth first, and knows the way: the keys and indices, joined by
// dots. The graph can have more paths than atoms exist, and cycles, so Steps and Names bound the walk.
type Walker struct {
	Steps int // values that may still be visited
	Names int // bytes of names that may still be kept

	// Visit is called with each value that is a container or an object, depth containers below the root. If
	// it returns true, the walk does not go into the value.
	Visit func(v Value, depth int) bool

	path []byte       // of the value being visited
	open map[int]bool // containers being visited; meeting one of them again is a cycle
}

// Path is the way to the value being visited, valid until Visit returns.
func (w *Walker) Path() []byte { return w.path }

// Keep returns Path as a string, which counts against Names.
func (w *Walker) Keep() string {
	w.Names -= len(w.path)
	return string(w.path)
}

// Exhausted reports whether a bound was passed.
func (w *Walker) Exhausted() bool { return w.Steps < 0 || w.Names < 0 }

// Walk visits v, whose path is Path with depth components.
func (w *Walker) Walk(v Value, depth int) {
	if w.Steps--; w.Exhausted() {
		return
	}
	switch v.Kind() {
	case Call, Dict, List, Tuple, New:
	default:
		return
	}
	if w.Visit(v, depth) || depth >= MaxDepth || w.open[v.ID()] {
		return
	}
	if w.open == nil {
		w.open = make(map[int]bool)
	}
	w.open[v.ID()] = true
	w.Elements(v, depth)
	w.pairs(v, depth)
	if state, ok := v.State(); ok {
		w.State(state, depth)
	}
	delete(w.open, v.ID())
}

// Elements visits v's elements.
func (w *Walker) Elements(v Value, depth int) {
	var index [20]byte
	for i := range v.Len() {
		if w.Steps--; w.Exhausted() {
			return
		}
		w.Child(strconv.AppendInt(index[:0], int64(i), 10), v.At(i), depth)
	}
}

// Child visits v under key.
func (w *Walker) Child(key []byte, v Value, depth int) {
	n := len(w.path)
	if n+len(key) >= MaxName {
		return
	}
	if depth > 0 {
		w.path = append(w.path, '.')
	}
	w.path = append(w.path, key...)
	w.Walk(v, depth+1)
	w.path = w.path[:n]
}

// State visits what BUILD sets on an object: attributes as a dict, or a pair of that and the slots.
func (w *Walker) State(v Value, depth int) {
	if v.Kind() == Tuple && v.Len() == 2 {
		w.pairs(v.At(0), depth)
		v = v.At(1)
	}
	w.pairs(v, depth)
}

// pairs visits the values of a mapping. Of equal keys the last counts.
func (w *Walker) pairs(v Value, depth int) {
	n := v.NumPairs()
	if w.Steps -= n; w.Exhausted() {
		return
	}
	last := make(map[string]int, n)
	var buf []byte
	for i := range n {
		k, _ := v.Pair(i)
		if k.Kind() == Opaque { // it may be any of the others
			return
		}
		if id, _ := appendKey(buf[:0], k); id != nil {
			last[string(id)] = i
			buf = id
		}
	}
	for i := range n {
		k, val := v.Pair(i)
		id, named := appendKey(buf[:0], k)
		if id != nil && last[string(id)] == i && named {
			w.Child(id[1:], val, depth)
		}
		if w.Exhausted() {
			return
		}
	}
}

// appendKey appends a dict key's identity: a letter for its type, then its text, which is what names show.
// Python takes True and 1.0 for the same key as 1, so they share an identity, but only text and integers make
// names.
func appendKey(dst []byte, k Value) (id []byte, named bool) {
	switch k.Kind() {
	case Text:
		text := k.Text()
		return append(append(dst, 't'), text...), utf8.Valid(text)
	case Int:
		n, _ := k.Int()
		return strconv.AppendInt(append(dst, 'i'), n, 10), true
	case Bool:
		n := int64(0)
		if k.Bool() {
			n = 1
		}
		return strconv.AppendInt(append(dst, 'i'), n, 10), false
	case Float:
		if f, _ := k.Float(); f == math.Trunc(f) && math.Abs(f) < 1<<62 {
			return strconv.AppendInt(append(dst, 'i'), int64(f), 10), false
		}
	}
	return nil, false
}
