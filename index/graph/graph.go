// Package graph holds architecture graphs: what a model computes, without its weights. Package source reads
// them, package prefix compares them.
//
// A graph is acyclic. Its vertices are leaf layers, in topological order; containers are flattened away. A
// vertex without inputs is a root, and there may be several. A layer that is called twice is two vertices
// that name the same tensors. Graphs of different kinds, which say where they were read from, are never
// compared.
//
// # Identity
//
// A vertex's configuration is its op, its canonical cfg, and for each parameter the slot and, where the
// source states them, element type and shape. A slot is the tensor's name less the components that all of the
// vertex's tensors begin with ("weight" of "conv1.weight"); onnx names mean nothing and have no slots. Only
// what the source states counts, so that a query and the sidecar of a stored model, written by the same
// program, agree whether or not there are weights yet. Parameters that are found by name, for a source that
// names none (keras), are no part of the identity.
//
// The numbers of a record are unsigned LEB128 varints of the fewest bytes; a string is its length as a number
// and the bytes.
//
// # Record, version 1
//
// The ledger keeps a graph as these bytes. There is one encoding of a graph: a reader refuses every other.
//
//	"CKG1"
//	kind                1 byte
//	strings             number n, then n strings: ops, configurations, slots, types, in order of first use
//	vertices            number n, then n times
//	    name            1 byte: bytes shared with the name before (as many as there are, at most 255),
//	                    string: the rest
//	    op, cfg         number, number: indices into strings
//	    inputs          number: inputs << 1 | comm, then for each
//	        from        number: (own position - input's position) << 1 | 1 when the output is not 0
//	        output      number, only with bit 0 of from
//	    parameters      number n, then n times
//	        tensor      as name; the name before is the last one of either sort
//	        slot        number: index into strings << 1 | 1 when attached
//	        dtype       number: index into strings
//	        shape       unless dtype is "": number of dimensions, dimensions
package graph

import (
	"errors"
	"fmt"
	"strings"

	"ckptfs/formats"
)

// Bounds of a graph.
const (
	MaxVertices = 65_535
	MaxOutput   = 65_535
)

// ErrInvalid says that a source is no graph. The error's text says what is wrong with it and where.
var ErrInvalid = errors.New("no architecture graph")

// Kind says where a graph came from. Graphs of different kinds are not comparable.
type Kind uint8

// The kinds, best first.
const (
	Explicit Kind = 1 + iota
	ONNX
	Export
	Keras
	Seq
	Bag
)

var kindNames = [...]string{"", "explicit", "onnx", "export", "keras", "seq", "bag"}

func (k Kind) String() string {
	if k.valid() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

func (k Kind) valid() bool { return k >= Explicit && k <= Bag }

// Graph is one architecture.
type Graph struct {
	Kind     Kind
	Vertices []Vertex // inputs before those that take them
}

// Vertex is one call of one leaf layer.
type Vertex struct {
	Name        string // in its source; no part of the identity
	Op          string // class of the layer
	Config      string // canonical JSON
	Commutative bool   // the order of the inputs does not matter
	Inputs      []Input
	Params      []Param
}

// Input is output Output of vertex Vertex.
type Input struct {
	Vertex, Output int
}

// Param is a tensor of a vertex.
type Param struct {
	Tensor string        // name in the file
	Slot   string        // what the layer calls it; "" unknown
	DType  formats.DType // "" unknown, then Shape says nothing
	Shape  []int64       // elements per dimension

	Attached bool // found by name, and no part of the vertex's identity
}

// Check returns an error unless g is acyclic, in order and within bounds.
func (g *Graph) Check() error {
	if !g.Kind.valid() {
		return fmt.Errorf("%s: %w", g.Kind, ErrInvalid)
	}
	if len(g.Vertices) > MaxVertices {
		return fmt.Errorf("more than %d vertices: %w", MaxVertices, ErrInvalid)
	}
	for i := range g.Vertices {
		v := &g.Vertices[i]
		if v.Commutative && !MayCommute(v.Op) {
			return fmt.Errorf("vertex %q: the inputs of %s do not commute: %w", v.Name, v.Op, ErrInvalid)
		}
		for _, in := range v.Inputs {
			if in.Vertex < 0 || in.Vertex >= i || in.Output < 0 || in.Output > MaxOutput {
				return fmt.Errorf("vertex %q: input %d:%d of vertex %d: %w", v.Name, in.Vertex, in.Output, i,
					ErrInvalid)
			}
		}
		for _, p := range v.Params {
			if p.DType == "" && p.Shape != nil {
				return fmt.Errorf("vertex %q: tensor %q has a shape and no type: %w", v.Name, p.Tensor,
					ErrInvalid)
			}
			for _, d := range p.Shape {
				if d < 0 {
					return fmt.Errorf("vertex %q: tensor %q of shape %v: %w", v.Name, p.Tensor, p.Shape,
						ErrInvalid)
				}
			}
		}
	}
	return nil
}

// MayCommute reports whether op is one whose inputs may come in any order.
func MayCommute(op string) bool {
	switch op { // as most spell them: lowering takes memory
	case "Add", "Mul", "Multiply":
		return true
	}
	switch strings.ToLower(op) {
	case "add", "mul", "multiply", "average", "max", "maximum", "min", "minimum",
		"torch.ops.aten.add.tensor", "torch.ops.aten.mul.tensor", "torch.ops.aten.maximum.default",
		"torch.ops.aten.minimum.default":
		return true
	}
	return false
}
