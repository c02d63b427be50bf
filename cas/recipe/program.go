package recipe

import (
	"encoding/binary"
	"math"
)

// Program is the ops of a recipe.
type Program []Op

// Op is a step of a program: Take, Widen, Round, Quantise, Dequantise, Combine, Transpose or Aside.
type Op interface {
	// run makes a value of the one that there is.
	run(m *machine) error
	// append appends the op's fields.
	append(dst []byte) []byte
	id() byte
}

// The numbers of the ops.
const (
	opTake byte = 1 + iota
	opWiden
	opRound
	opQuantise
	opDequantise
	opCombine
	opTranspose
	opAside
)

// Type is how the bytes of the bases are numbers. The numbers are part of the format.
type Type byte

// The types: of floats, and of bytes that are taken as they are, 1, 2, 4 or 8 at a time.
const (
	F32 Type = 1 + iota
	BF16
	F16
	F8E4M3
	F8E5M2
	Bytes1
	Bytes2
	Bytes4
	Bytes8
)

var sizes = [...]int{F32: 4, BF16: 2, F16: 2, F8E4M3: 1, F8E5M2: 1, Bytes1: 1, Bytes2: 2, Bytes4: 4,
	Bytes8: 8}

// Size is how many bytes an element has, 0 for a type that there is not.
func (t Type) Size() int {
	if int(t) >= len(sizes) {
		return 0
	}
	return sizes[t]
}

// Append appends the program as a record has it.
func (p Program) Append(dst []byte) []byte {
	dst = append(dst, byte(len(p)))
	for _, op := range p {
		dst = op.append(append(dst, op.id()))
	}
	return dst
}

// Parse reads the program that p begins with; rest is what lies behind it.
func Parse(p []byte) (prog Program, rest []byte, err error) {
	if len(p) == 0 || p[0] == 0 || p[0] > MaxOps {
		return nil, nil, corrupt("a program of no ops, or too many")
	}
	n := int(p[0])
	r := fields{p: p[1:]}
	for range n {
		op, err := r.op()
		if err != nil {
			return nil, nil, err
		}
		if r.bad {
			return nil, nil, corrupt("a program that is cut short, or has numbers that are too large")
		}
		prog = append(prog, op)
	}
	return prog, r.p, nil
}

// fields reads the fields of ops.
type fields struct {
	p   []byte
	bad bool
}

func (r *fields) op() (Op, error) {
	switch id := r.byte(); id {
	case opTake:
		return r.take()
	case opWiden:
		return Widen{}, nil
	case opRound:
		return r.round()
	case opQuantise:
		return r.quantise()
	case opDequantise:
		return r.dequantise()
	case opCombine:
		return r.combine()
	case opTranspose:
		return r.transpose(), nil
	case opAside:
		return r.aside()
	default:
		if r.bad {
			return nil, corrupt("a program that is cut short")
		}
		return nil, newer("op %d", id)
	}
}

func (r *fields) byte() byte {
	if len(r.p) == 0 {
		r.bad = true
		return 0
	}
	b := r.p[0]
	r.p = r.p[1:]
	return b
}

// maxField bounds lengths and places, so that sums of them stay numbers.
const maxField = 1 << 40

// uint reads a number up to most.
func (r *fields) uint(most int) int {
	v, n := binary.Uvarint(r.p)
	if n <= 0 || v > uint64(most) {
		r.bad, r.p = true, nil
		return 0
	}
	r.p = r.p[n:]
	return int(v)
}

// int reads a number from -most to most.
func (r *fields) int(most int) int {
	v, n := binary.Varint(r.p)
	if n <= 0 || v > int64(most) || v < -int64(most) {
		r.bad, r.p = true, nil
		return 0
	}
	r.p = r.p[n:]
	return int(v)
}

// float reads a number of single precision.
func (r *fields) float() float32 {
	if len(r.p) < 4 {
		r.bad, r.p = true, nil
		return 0
	}
	v := math.Float32frombits(le.Uint32(r.p))
	r.p = r.p[4:]
	return v
}

func putUint(dst []byte, v int) []byte { return binary.AppendUvarint(dst, uint64(v)) }

func putInt(dst []byte, v int) []byte { return binary.AppendVarint(dst, int64(v)) }
