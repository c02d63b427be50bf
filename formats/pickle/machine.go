package pickle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// machine is the unpickler's state: the position in the input, the stack, the open marks and the memo.
type machine struct {
	*Pickle
	lim    Limits
	in     *input // nil: data is the whole input
	pos    int
	stack  []uint32
	marks  []int // stack heights; nothing below the last may be popped
	pushes int

	memo   []uint32          // by key; absent where nothing was put
	sparse map[uint32]uint32 // keys far from the others
	puts   int               // distinct keys in both
}

// Picklers number the memo 0, 1, 2 … or 1, 2, 3 …; memoGap is how far a key may leap and still be kept in the
// slice.
const (
	absent  = ^uint32(0)
	memoGap = 4
)

// Shared nodes, made by intern: their identity can't be observed, and lists of small numbers cost no node an
// element.
const (
	refNone uint32 = iota
	refFalse
	refTrue
	refEmptyTuple
	refInt0 // and 255 after it
)

func (m *machine) intern() {
	m.append(node{kind: None})
	m.append(node{kind: Bool})
	m.append(node{kind: Bool, a: 1})
	m.append(node{kind: Tuple})
	for i := range 256 {
		m.append(node{kind: Int, a: uint64(i)})
	}
}

func syntax(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))
}

func limit(what string, n int) error { return fmt.Errorf("%w: more than %d %s", ErrLimit, n, what) }

// ErrShort says that the input ends before the pickle does. It wraps ErrSyntax.
var ErrShort = syntax("input ends early")

func (m *machine) byte() (byte, error) {
	if err := m.need(1); err != nil {
		return 0, err
	}
	m.pos++
	return m.data[m.pos-1], nil
}

// take returns the next n bytes.
func (m *machine) take(n int) ([]byte, error) {
	if err := m.need(n); err != nil {
		return nil, err
	}
	m.pos += n
	return m.data[m.pos-n : m.pos], nil
}

// number reads a little-endian unsigned number of width bytes.
func (m *machine) number(width int) (uint64, error) {
	p, err := m.take(width)
	if err != nil {
		return 0, err
	}
	var b [8]byte
	copy(b[:], p)
	return binary.LittleEndian.Uint64(b[:]), nil
}

// counted reads a length of width bytes and that many bytes, and returns their span.
func (m *machine) counted(width int) (span, error) {
	n, err := m.number(width)
	if err != nil {
		return 0, err
	}
	if n > math.MaxUint32 {
		return 0, ErrShort
	}
	if err := m.need(int(n)); err != nil {
		return 0, err
	}
	m.pos += int(n)
	return makeSpan(m.pos-int(n), int(n)), nil
}

// line reads up to a newline and returns the span before it.
func (m *machine) line() (span, error) {
	n := -1
	for looked := 0; n < 0; {
		if n = bytes.IndexByte(m.data[m.pos+looked:], '\n'); n >= 0 {
			n += looked
			break
		}
		looked = len(m.data) - m.pos
		if err := m.need(looked + 1); err != nil {
			return 0, err
		}
	}
	s := makeSpan(m.pos, n)
	m.pos += n + 1
	return s, nil
}

func (m *machine) text(s span) []byte { return Value{p: m.Pickle}.text(s) }

func (m *machine) push(ref uint32) error {
	if m.pushes++; m.pushes > m.lim.Pushes {
		return limit("pushes", m.lim.Pushes)
	}
	m.stack = append(m.stack, ref)
	return nil
}

// add makes a node.
func (m *machine) add(n node) (uint32, error) {
	if m.count >= m.lim.Nodes {
		return 0, limit("nodes", m.lim.Nodes)
	}
	return m.append(n), nil
}

func (m *machine) append(n node) uint32 {
	if m.count%blockNodes == 0 {
		size := blockNodes
		if m.count == 0 { // room for as many as a small pickle has
			size = int(refInt0) + 256 + min(len(m.data)/4, blockNodes)
		}
		m.blocks = append(m.blocks, make([]node, 0, min(size, blockNodes)))
	}
	last := &m.blocks[len(m.blocks)-1]
	*last = append(*last, n)
	m.count++
	return uint32(m.count - 1)
}

func (m *machine) pushNode(n node) error {
	ref, err := m.add(n)
	if err != nil {
		return err
	}
	return m.push(ref)
}

func (m *machine) pushInt(v int64) error {
	if v >= 0 && v < 256 {
		return m.push(refInt0 + uint32(v))
	}
	return m.pushNode(node{kind: Int, a: uint64(v)})
}

// fence is the height that pops may not pass: the last mark.
func (m *machine) fence() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

func (m *machine) pop() (uint32, error) {
	ref, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return ref, err
}

func (m *machine) top() (uint32, error) {
	if len(m.stack) <= m.fence() {
		return 0, syntax("stack underflow")
	}
	return m.stack[len(m.stack)-1], nil
}

// popMark removes the last mark and what is above it. The result is valid until the next push.
func (m *machine) popMark() ([]uint32, error) {
	if len(m.marks) == 0 {
		return nil, syntax("no mark")
	}
	h := m.fence()
	m.marks = m.marks[:len(m.marks)-1]
	items := m.stack[h:]
	m.stack = m.stack[:h]
	return items, nil
}

// pushSeq makes a node of a copy of items.
func (m *machine) pushSeq(k Kind, items []uint32) error {
	if k == Tuple && len(items) == 0 {
		return m.push(refEmptyTuple)
	}
	return m.pushNode(node{kind: k, items: append([]uint32(nil), items...)})
}

// extend appends elements to the container on top of the stack, by APPEND, APPENDS or ADDITEMS.
func (m *machine) extend(k Kind, items []uint32) error {
	ref, err := m.top()
	if err != nil {
		return err
	}
	switch n := m.node(ref); n.kind {
	case k:
		n.items = append(n.items, items...)
	case Call, New:
		if m.elems == nil {
			m.elems = make(map[uint32][]uint32)
		}
		m.elems[ref] = append(m.elems[ref], items...)
	default:
		return syntax("elements added to a %v", n.kind)
	}
	return nil
}

// setItems appends pairs to the mapping on top of the stack.
func (m *machine) setItems(items []uint32) error {
	ref, err := m.top()
	if err != nil {
		return err
	}
	n := m.node(ref)
	if n.kind != Dict && n.kind != Call && n.kind != New {
		return syntax("items set on a %v", n.kind)
	}
	if len(items)%2 != 0 {
		return syntax("a key without a value")
	}
	n.items = append(n.items, items...)
	return nil
}

func (m *machine) build() error {
	state, err := m.pop()
	if err != nil {
		return err
	}
	ref, err := m.top()
	if err != nil {
		return err
	}
	n := m.node(ref)
	if (n.kind != Call && n.kind != New) || n.b != 0 {
		return syntax("state set on a %v, or twice", n.kind)
	}
	n.b = uint64(state) + 1
	return nil
}

func (m *machine) put(key uint64) error {
	ref, err := m.top()
	if err != nil {
		return err
	}
	if m.sparse == nil && key <= uint64(len(m.memo)+memoGap) {
		for uint64(len(m.memo)) <= key {
			m.memo = append(m.memo, absent)
		}
	}
	switch {
	case key < uint64(len(m.memo)):
		if m.memo[key] == absent {
			m.puts++
		}
		m.memo[key] = ref
	case key > 1<<32-1:
		return limit("memo keys", 1<<32-1)
	default:
		if m.sparse == nil {
			m.sparse = make(map[uint32]uint32)
		}
		if _, held := m.sparse[uint32(key)]; !held {
			m.puts++
		}
		m.sparse[uint32(key)] = ref
		if len(m.sparse) > m.lim.Memo {
			return limit("scattered memo keys", m.lim.Memo)
		}
	}
	return nil
}

func (m *machine) get(key uint64) error {
	if key < uint64(len(m.memo)) && m.memo[key] != absent {
		return m.push(m.memo[key])
	}
	if key <= 1<<32-1 {
		if ref, ok := m.sparse[uint32(key)]; ok {
			return m.push(ref)
		}
	}
	return syntax("memo has no %d", key)
}

func (m *machine) stop() error {
	ref, err := m.pop()
	if err != nil {
		return err
	}
	if len(m.stack) != 0 || len(m.marks) != 0 {
		return syntax("%d values and %d marks left at the end", len(m.stack), len(m.marks))
	}
	m.root, m.size = ref, m.pos
	return nil
}
