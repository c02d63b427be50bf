package codec

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"ckptfs/cas"
)

// LowRank is the number of what EncodeLowRank makes. Weights into which an adapter was merged differ from those before by a product
// of two narrow matrices (LoRA, Hu et al. 2021), rounded: the columns' factor, of r numbers for each column, is a record of its own that all chunks of a
// tensor share, and a chunk holds the rows' factor, of r numbers for each of its rows. It is stored as
//
//	0  1  kind: 1 bfloat16, 2 binary16, 3 single precision
//	1  1  r, even, 2 to 64
//	2  1  e, signed
//	3  4  cols, the tensor's columns, 32 at least
//	7  4  the column of the chunk's first element
//	11 4  l
//	15 1  a number c of this package's codecs that need no base
//	16 l  the rows' factor as c stores it: for each row of which the chunk has an element the r numbers u[0] to u[r-1]
//	   1  a number d: Delta or PeriodicDelta
//	      the chunk as d stores it, against what is predicted
//
// The columns' factor is, for each 16 columns, of which there are fewer in the last, for each pair of numbers, for each of the columns, the two numbers
// of the pair, v[0] and v[1] to v[r-2] and v[r-1]. Numbers are integers with a sign, little-endian, of 2 bytes. Of kind 3 they are of 4 bytes, of which
// the highest is not looked at, the one below having the sign; and each 16 columns have, instead of pairs, for each number that of each of the columns.
//
// Let b be the base's element and s the sum of all u[j] v[j] of its row and column. Predicted of it is
//
//	kinds 1 and 2   b + s 2^e: s is modulo 2^32, with a sign, and rounded to single precision; the product is rounded to that, and the sum,
//	                and that to b's type
//	kind 3          the same in double precision, in which s is exact, rounded to single precision at last
//
// always to the nearest, ties to even; but b itself where that is not finite. So it is the same on every machine, in whatever order s is summed up.
const LowRank byte = 11

const (
	// MaxRank is the most numbers that a column has.
	MaxRank = 64
	// minCols is how many columns there must be; it bounds what the rows' factor takes.
	minCols     = 32
	lowRankHead = 16
	toF32       = 3
	blockCols   = 16
)

// Stretch is a chunk of a tensor, and what the tensor that it may be stored against has there. At is the index in the tensor of the first element.
type Stretch struct {
	Raw, Base []byte
	At        int64
}

// lowRankKind is the kind of h; 0: it is none.
func lowRankKind(h Hint) byte {
	if h.DType == "F32" {
		return toF32
	}
	return roundedTo(h)
}

// ColumnsHint is what the content of a record that FactorColumns makes is, for Encode.
func ColumnsHint(h Hint) Hint {
	if h.DType == "F32" {
		return Hint{DType: "I32", Elem: 4}
	}
	return Hint{DType: "I16", Elem: 2}
}

// lowRank is what a chunk of low rank begins with.
type lowRank struct {
	kind     byte
	r        int
	e        int8
	cols, at int
	n        int // elements
}

// width is that of an element and of a factor's number.
func (l *lowRank) width() int {
	if l.kind == toF32 {
		return 4
	}
	return 2
}

// rows is of how many rows the chunk has elements.
func (l *lowRank) rows() int { return (l.at + l.n + l.cols - 1) / l.cols }

// append appends the head.
func (l *lowRank) append(dst []byte) []byte {
	dst = append(dst, l.kind, byte(l.r), byte(l.e))
	dst = le.AppendUint32(dst, uint32(l.cols))
	return le.AppendUint32(dst, uint32(l.at))
}

// openLowRank reads what stored begins with, and checks all of it; u is the rows' factor as codec c stores it.
func openLowRank(stored, base, columns []byte, rawLen int) (l lowRank, c byte, u, rest []byte, err error) {
	if len(stored) < lowRankHead {
		return l, 0, nil, nil, errEnds
	}
	l = lowRank{kind: stored[0], r: int(stored[1]), e: int8(stored[2])}
	cols, at, size := le.Uint32(stored[3:]), le.Uint32(stored[7:]), le.Uint32(stored[11:])
	switch {
	case l.kind < toBF16 || l.kind > toF32:
		err = errors.New("no kind")
	case l.r < 2 || l.r > MaxRank || l.r%2 != 0:
		err = fmt.Errorf("rank %d", l.r)
	case cols < minCols || cols > cas.MaxChunk || at >= cols:
		err = fmt.Errorf("column %d of %d", at, cols)
	case rawLen%l.width() != 0 || len(base) != rawLen:
		err = fmt.Errorf("%d bytes against a base of %d", rawLen, len(base))
	case uint64(len(columns)) != uint64(cols)*uint64(l.r*l.width()):
		err = fmt.Errorf("%d columns of rank %d in %d bytes", cols, l.r, len(columns))
	case uint64(size) >= uint64(len(stored)-lowRankHead):
		err = errEnds
	}
	if err != nil {
		return l, 0, nil, nil, err
	}
	l.cols, l.at, l.n = int(cols), int(at), rawLen/l.width()
	return l, stored[15], stored[lowRankHead:][:size], stored[lowRankHead+size:], nil
}

// predictions are what chunks are decoded against, and factors of their rows.
var predictions = sync.Pool{New: func() any { return new(prediction) }}

// prediction has, to encode, the columns' factor in single precision too, and differences.
type prediction struct {
	u, p []byte
	f    []float64 // u
	v    []float32
	m    matrix
}

// room is n of p, or new ones.
func room[T any](p *[]T, n int) []T {
	if cap(*p) < n {
		*p = make([]T, n)
	}
	return (*p)[:n]
}

// DecodeLowRank undoes EncodeLowRank: it appends the rawLen bytes that stored, base and columns stand for to dst, which must lie in none of them.
// Its errors and bounds are those of Codec.Decode, but for another four times rawLen; what is not the columns that it was encoded with is
// cas.ErrCorrupt, or gives other bytes.
func DecodeLowRank(dst, stored, base, columns []byte, rawLen int) ([]byte, error) {
	return decodeTo(dst, rawLen, "low rank", func(dst []byte) error { return decodeLowRank(output{p: dst}, stored, base, columns) })
}

func decodeLowRank(o output, stored, base, columns []byte) error {
	l, c, u, rest, err := openLowRank(stored, base, columns, len(o.p))
	if err != nil {
		return err
	}
	if NeedsBase(c) {
		return fmt.Errorf("rows by codec %d", c)
	}
	s := predictions.Get().(*prediction)
	defer predictions.Put(s)
	if s.u, err = Decode(s.u[:0], c, u, l.rows()*l.r*l.width()); err != nil {
		return fmt.Errorf("rows: %w", err)
	}
	if len(rest) == 0 || rest[0] != Delta && rest[0] != PeriodicDelta {
		return errors.New("no delta")
	}
	p := room(&s.p, len(base))
	l.predict(s, p, base, s.u, columns)
	state := planeStates.Get().(*planeState)
	defer planeStates.Put(state)
	return state.decodeDelta(o, rest[0], rest[1:], p)
}

// predict sets p to what is predicted of base, some blocks of columns after the others, so that their numbers stay in the nearest cache.
func (l *lowRank) predict(s *prediction, p, base, u, columns []byte) {
	w := l.width()
	if l.kind == toF32 {
		s.f = s.f[:0]
		for i := 0; i < len(u); i += w {
			s.f = append(s.f, float64(number24(u[i:])))
		}
	}
	for start, n := 0, 0; start < l.cols; start += n {
		if n = l.predictColumns(); n > l.cols-start {
			n = min(blockCols, l.cols-start)
		}
		l.predictBlocks(p, base, u, s.f, columns[start*l.r*w:][:n*l.r*w], start, n)
	}
}

// predictBlocks is predict for n columns, v, from one of them on: of whole blocks, or the rest of them.
func (l *lowRank) predictBlocks(p, base, u []byte, f []float64, v []byte, start, n int) {
	w, rows := l.width(), l.rows()
	end := l.at + l.n - (rows-1)*l.cols // of the last row
	from, to := 0, rows                 // that have all of them
	if start < l.at {
		from = 1
	}
	if start+n > end {
		to--
	}
	done := 0
	if n%blockCols == 0 && from < to {
		at := (from*l.cols - l.at + start) * w
		if l.kind == toF32 {
			f = f[from*l.r:]
		}
		done = l.predictRows(p[at:], base[at:], u[from*l.r*w:], f, v, to-from, n)
	}
	for i := 0; i < rows; i++ {
		if i == from {
			if i += done; i == rows {
				break
			}
		}
		for b := 0; b < n; b += blockCols {
			width := min(blockCols, n-b)
			first, last := start+b, start+b+width
			if i == 0 {
				first = max(first, l.at)
			}
			if i == rows-1 {
				last = min(last, end)
			}
			if first < last {
				at := (i*l.cols - l.at + first) * w
				l.predictPart(p[at:][:(last-first)*w], base[at:], u[i*l.r*w:], v[b*l.r*w:], first-start-b, width)
			}
		}
	}
}

// predictPart sets p to what is predicted of some columns, from one of them on, of a row of a block of columns v.
func (l *lowRank) predictPart(p, base, u, v []byte, from, width int) {
	if l.kind == toF32 {
		var sums [blockCols]int64
		for j := range l.r {
			u, v := int64(number24(u[4*j:])), v[4*(j*width+from):][:len(p)]
			for k := range len(v) / 4 {
				sums[k&(blockCols-1)] += u * int64(number24(v[4*k:]))
			}
		}
		scale := math.Ldexp(1, int(l.e))
		for k := range len(p) / 4 {
			le.PutUint32(p[4*k:], predicted32(le.Uint32(base[4*k:]), sums[k], scale))
		}
		return
	}
	var sums [blockCols]int32
	for j := 0; j < l.r; j += 2 {
		u, v := le.Uint32(u[2*j:]), v[2*(j*width+2*from):][:2*len(p)]
		first, second := int32(int16(u)), int32(u)>>16
		for k := range len(v) / 4 {
			pair := le.Uint32(v[4*k:])
			sums[k&(blockCols-1)] += first*int32(int16(pair)) + second*(int32(pair)>>16)
		}
	}
	one := predictedBF16
	if l.kind == toF16 {
		one = predictedF16
	}
	scale := float32(math.Ldexp(1, int(l.e)))
	for k := range len(p) / 2 {
		le.PutUint16(p[2*k:], one(le.Uint16(base[2*k:]), sums[k], scale))
	}
}

// number24 is the number of 24 bits, with its sign, that p begins with.
func number24(p []byte) int32 { return int32(le.Uint32(p)<<8) >> 8 }

// The conversions of products keep a compiler from fusing them with the sums.

func predictedBF16(b uint16, sum int32, scale float32) uint16 {
	y := math.Float32bits(math.Float32frombits(uint32(b)<<16) + float32(float32(sum)*scale))
	if y&^(1<<31) >= 0x7f7f8000 { // what rounds to infinity, and what is not finite
		return b
	}
	return bf16(y)
}

func predictedF16(b uint16, sum int32, scale float32) uint16 {
	y := math.Float32bits(float32of(b) + float32(float32(sum)*scale))
	if y&^(1<<31) >= 0x477ff000 {
		return b
	}
	return f16(y)
}

func predicted32(b uint32, sum int64, scale float64) uint32 {
	y := math.Float32bits(float32(float64(math.Float32frombits(b)) + float64(float64(sum)*scale)))
	if y&^(1<<31) >= 0x7f800000 {
		return b
	}
	return y
}

// float32of is a number of binary16.
func float32of(h uint16) float32 {
	sign, exp, m := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&0x3ff)
	switch exp {
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | m<<13)
}
