// Package pickle reads Python pickles without running them.
//
// A pickle is a program for a stack machine. Python's unpickler imports what the program names and calls it;
// this one only writes down what would be called. Each opcode pushes a node that says what was there, and the
// result is a graph:
//
//	opcode                                        node
//	NONE NEWTRUE BININT BINFLOAT BINUNICODE …     None, Bool, Int, Float, Text, Bytes
//	EMPTY_LIST APPENDS, TUPLE2, EMPTY_SET …       List, Tuple, Set, FrozenSet
//	EMPTY_DICT SETITEMS                           Dict: pairs in the order they were set, repeated keys
//	                                              included
//	GLOBAL 'torch' 'FloatStorage'                 Global: module and name, never looked up
//	REDUCE, INST, OBJ                             Call: callable and arguments, never called
//	NEWOBJ, NEWOBJ_EX                             New: class and arguments
//	SETITEMS, APPENDS, BUILD on a Call or New     its pairs, elements and state
//	BINPERSID                                     PersID: the persistent id, never resolved
//	LONG1 of more than 8 bytes, EXT1, NEXT_BUFFER Opaque
//	BINBYTES of many bytes, by ParseFile          Raw: where they lie
//
// Opcodes of protocols 0 to 5 are known. Any other byte, a pop from an empty stack or past a mark, a GET of
// what was never put, an operation on a node that cannot take it, and input that ends early are errors.
//
// # Bounds
//
// The input is hostile. An opcode makes at most three nodes, and nodes that can't change are shared, so the
// graph is linear in the input; Limits caps it again absolutely. Text and bytes alias the input. Nothing
// recurses: a list nested a million deep is a million nodes. References are shared (BINGET), so the number of
// paths through the graph can be exponential in the input and a path can be a cycle. The caller that walks
// the graph bounds the steps.
package pickle

import (
	"errors"
	"fmt"
)

// ErrSyntax says that the input is no pickle that this package can read.
var ErrSyntax = errors.New("pickle: malformed")

// ErrLimit says that reading the pickle would pass one of the Limits.
var ErrLimit = errors.New("pickle: too large")

// Limits bounds what Parse may take. A node costs some 50 bytes of memory, a push 4.
type Limits struct {
	Nodes  int // nodes in the graph
	Pushes int // values pushed on the stack in all
	Marks  int // marks open at once
	Memo   int // memo keys that do not follow one another
}

// DefaultLimits hold a state dict of some 300,000 tensors.
var DefaultLimits = Limits{Nodes: 1 << 22, Pushes: 1 << 24, Marks: 1 << 16, Memo: 1 << 16}

// Pickle is the graph of one pickle.
type Pickle struct {
	data   []byte
	blocks [][]node            // of blockNodes each but the last; growing copies none of the others
	count  int                 // nodes in all
	elems  map[uint32][]uint32 // elements appended to Call and New nodes
	root   uint32
	size   int
}

const blockNodes = 1 << 10

func (p *Pickle) node(ref uint32) *node { return &p.blocks[ref/blockNodes][ref%blockNodes] }

// Parse reads the one pickle at the start of p, up to its STOP. The result aliases p. Errors wrap ErrSyntax
// or ErrLimit and give the offset of the opcode.
func Parse(p []byte, lim Limits) (*Pickle, error) {
	if uint64(len(p)) > 1<<32-1 {
		return nil, fmt.Errorf("%w: input of %d bytes", ErrLimit, len(p))
	}
	m := machine{Pickle: &Pickle{data: p}, lim: lim}
	return m.run()
}

func (m *machine) run() (*Pickle, error) {
	m.intern()
	for {
		at := m.pos
		op, err := m.byte()
		if err == nil && op == opStop {
			err = m.stop()
			if err == nil {
				return m.Pickle, nil
			}
		}
		if err == nil {
			err = m.step(op)
		}
		if err != nil {
			return nil, fmt.Errorf("%w at offset %d", err, at)
		}
	}
}

// Root is the value that STOP returned.
func (p *Pickle) Root() Value { return Value{p, p.root} }

// Size is the number of input bytes up to and with STOP.
func (p *Pickle) Size() int { return p.size }

// NumNodes is the number of nodes in the graph, at most a small multiple of the input's bytes.
func (p *Pickle) NumNodes() int { return p.count }
