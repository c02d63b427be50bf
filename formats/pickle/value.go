package pickle

import "math"

// Kind says what a node stands for.
type Kind uint8

const (
	None Kind = iota
	Bool
	Int
	Float
	Text
	Bytes
	List
	Tuple
	Set
	FrozenSet
	Dict
	Global
	Call
	New
	PersID
	// Raw is bytes that ParseFile has left in the file.
	Raw
	// Opaque is a value that the pickle has and this package does not model: an integer beyond 64 bits, text
	// with escapes, an extension code, an out-of-band buffer.
	Opaque
)

func (k Kind) String() string {
	return [...]string{"none", "bool", "int", "float", "text", "bytes", "list", "tuple", "set", "frozenset",
		"dict",
		"global", "call", "new", "persid", "raw", "opaque"}[k]
}

// span is a range of the input: offset in the high half, length in the low one.
type span uint64

func makeSpan(off, n int) span { return span(uint64(off)<<32 | uint64(n)) }

// node is one value. Which fields are set depends on kind:
//
//	Bool, Int      a = value
//	Float          a = IEEE 754 bits
//	Text, Bytes    a = span
//	Global         a = span of the module, b = span of the name
//	Call, New      a = callable<<32 | arguments, b = state+1 or 0, items = pairs
//	PersID         a = id
//	Raw            a = offset in the file, b = length
//	Dict           items = key, value, key, value …
//	List, Tuple, Set, FrozenSet    items = elements
type node struct {
	kind  Kind
	a, b  uint64
	items []uint32
}

// Value is a node of a Pickle. Accessors that do not fit the value's kind return zero values.
type Value struct {
	p *Pickle
	i uint32
}

func (v Value) node() *node { return v.p.node(v.i) }

func (v Value) text(s span) []byte {
	off, n := uint64(s)>>32, uint64(s)&(1<<32-1)
	return v.p.data[off : off+n : off+n]
}

// Kind is the value's kind.
func (v Value) Kind() Kind { return v.node().kind }

// ID numbers the node; two values with one ID are one Python object.
func (v Value) ID() int { return int(v.i) }

// Int is the value of an Int.
func (v Value) Int() (int64, bool) {
	n := v.node()
	return int64(n.a), n.kind == Int
}

// Bool is the value of a Bool.
func (v Value) Bool() bool {
	n := v.node()
	return n.kind == Bool && n.a != 0
}

// Float is the value of a Float.
func (v Value) Float() (float64, bool) {
	n := v.node()
	return math.Float64frombits(n.a), n.kind == Float
}

// Text is the bytes of a Text or Bytes, in the input. They need not be UTF-8.
func (v Value) Text() []byte {
	if n := v.node(); n.kind == Text || n.kind == Bytes {
		return v.text(span(n.a))
	}
	return nil
}

// Global is the module and name of a Global.
func (v Value) Global() (module, name []byte) {
	if n := v.node(); n.kind == Global {
		return v.text(span(n.a)), v.text(span(n.b))
	}
	return nil, nil
}

// IsGlobal reports whether the value is the global name of module.
func (v Value) IsGlobal(module, name string) bool {
	m, n := v.Global()
	return string(m) == module && string(n) == name
}

// Len is the number of elements of a List, Tuple, Set or FrozenSet, and of the elements appended to a Call or
// New.
func (v Value) Len() int {
	switch n := v.node(); n.kind {
	case List, Tuple, Set, FrozenSet:
		return len(n.items)
	case Call, New:
		return len(v.p.elems[v.i])
	}
	return 0
}

// At is element i, 0 <= i < Len.
func (v Value) At(i int) Value {
	n := v.node()
	if n.kind == Call || n.kind == New {
		return Value{v.p, v.p.elems[v.i][i]}
	}
	return Value{v.p, n.items[i]}
}

// NumPairs is the number of key-value pairs set on a Dict, Call or New.
func (v Value) NumPairs() int {
	switch n := v.node(); n.kind {
	case Dict, Call, New:
		return len(n.items) / 2
	}
	return 0
}

// Pair is pair i, 0 <= i < NumPairs, in the order the pickle set them. Of equal keys Python keeps the last
// value.
func (v Value) Pair(i int) (key, val Value) {
	n := v.node()
	return Value{v.p, n.items[2*i]}, Value{v.p, n.items[2*i+1]}
}

// Call is the callable (or class) and the arguments of a Call or New. The arguments of a Call may be of any
// kind.
func (v Value) Call() (fn, args Value, ok bool) {
	n := v.node()
	if n.kind != Call && n.kind != New {
		return Value{}, Value{}, false
	}
	return Value{v.p, uint32(n.a >> 32)}, Value{v.p, uint32(n.a)}, true
}

// State is what BUILD set on a Call or New.
func (v Value) State() (Value, bool) {
	n := v.node()
	if (n.kind != Call && n.kind != New) || n.b == 0 {
		return Value{}, false
	}
	return Value{v.p, uint32(n.b - 1)}, true
}

// PersID is the id of a PersID.
func (v Value) PersID() (Value, bool) {
	n := v.node()
	if n.kind != PersID {
		return Value{}, false
	}
	return Value{v.p, uint32(n.a)}, true
}

// Raw is where a Raw's bytes lie in the file.
func (v Value) Raw() (off, n int64, ok bool) {
	x := v.node()
	return int64(x.a), int64(x.b), x.kind == Raw
}

// Each calls f with every value of the pickle, in the order of the file.
func (p *Pickle) Each(f func(Value)) {
	for i := range p.count {
		f(Value{p, uint32(i)})
	}
}

// PersIDs calls f with every persistent id of the pickle, in the order of the file, until f returns false.
func (p *Pickle) PersIDs(f func(Value) bool) {
	for i := range p.count {
		if v := (Value{p, uint32(i)}); v.Kind() == PersID && !f(v) {
			return
		}
	}
}
