// Package lowrank is the algebra of differences of low rank. Weights into which an adapter was merged differ
// from those before by a product of two narrow matrices (LoRA, Hu et al. 2021), rounded. The package finds
// the two factors, and predicts the weights from what was before and the factors. It knows no records:
// package codec stores what it makes.
//
// # Factors
//
// A factor has r numbers for each column of a tensor, or for each row. r is even, 2 to 64. The columns'
// factor is one for the whole tensor; each chunk has a rows' factor, for each row of which it has an element:
// the numbers u[0] to u[r-1].
//
// The columns' factor lies in blocks of 16 columns, of which the last may have fewer. A block has, for each
// pair of numbers, for each of its columns, the two numbers of the pair: v[0] and v[1], up to v[r-2] and
// v[r-1]. Numbers are integers with a sign, little-endian, of 2 bytes. For tensors of single precision they
// are of 4 bytes, of which the highest is not looked at and the one below has the sign; and a block has,
// instead of pairs, for each number that of each of its columns.
//
// # Prediction
//
// Let b be the element before, and s the sum of all u[j] v[j] of its row and column. Predicted is
//
//	bfloat16, binary16   b + s 2^e: s is modulo 2^32, with a sign, and rounded to single precision; the
//	                     product is rounded to that, and the sum, and that to the type of b
//	single precision     the same in double precision, in which s is exact, rounded to single at last
//
// always to the nearest, ties to even. Where the result is not finite, because b is not or the sum is too
// large, predicted is b itself. So the prediction is the same on every machine, in whatever order s is summed
// up.
package lowrank

import (
	"encoding/binary"

	"ckptfs/cas/half"
)

// Kind is the type of a tensor's elements. The numbers are part of stored formats.
type Kind byte

// The kinds. 0 is none.
const (
	BF16 = Kind(half.BF16)
	F16  = Kind(half.F16)
	F32  = Kind(3)
)

// Width is how many bytes an element takes, and a number of a factor.
func (k Kind) Width() int {
	if k == F32 {
		return 4
	}
	return 2
}

const (
	// MaxRank is the most numbers that a column has.
	MaxRank = 64
	// MinCols is the fewest columns of a tensor; it bounds what the rows' factor takes.
	MinCols = 32

	blockCols = 16
)

var le = binary.LittleEndian

// Stretch is a chunk of a tensor, and what was there before. At is the index in the tensor of its first
// element.
type Stretch struct {
	Raw, Base []byte
	At        int64
}

// Shape is where a chunk lies in its tensor, and what its factors are.
type Shape struct {
	Kind Kind
	Rank int  // even, 2 to MaxRank
	Exp  int8 // e of the prediction
	Cols int  // of the tensor, MinCols at least
	At   int  // the column of the chunk's first element
	N    int  // elements of the chunk
}

// Rows is of how many rows the chunk has elements.
func (s *Shape) Rows() int { return (s.At + s.N + s.Cols - 1) / s.Cols }

// RowsLen is how many bytes the rows' factor takes.
func (s *Shape) RowsLen() int { return s.Rows() * s.Rank * s.Kind.Width() }

// ColumnsLen is how many bytes the columns' factor takes.
func (s *Shape) ColumnsLen() int { return s.Cols * s.Rank * s.Kind.Width() }

// Scratch is the memory that predicting and fitting need besides their results, for one caller at a time.
type Scratch struct {
	doubles []float64 // the rows' factor
	columns []float32 // the columns' factor
	m       matrix
}

// room is n elements of p, or new ones.
func room[T any](p *[]T, n int) []T {
	if cap(*p) < n {
		*p = make([]T, n)
	}
	return (*p)[:n]
}

// store writes the lowest bits of v to p, in the width of an element.
func (k Kind) store(p []byte, v int64) {
	if k == F32 {
		le.PutUint32(p, uint32(v))
	} else {
		le.PutUint16(p, uint16(v))
	}
}
