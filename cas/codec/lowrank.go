package codec

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/lowrank"
)

// LowRank is the number of what EncodeLowRank makes: a chunk as its difference from what a base and two
// factors predict (package lowrank). The columns' factor is a record of its own, which all chunks of a tensor
// share. A chunk holds the rows' factor. It is stored as
//
//	0  1  kind: 1 bfloat16, 2 binary16, 3 single precision
//	1  1  rank, even, 2 to 64
//	2  1  e, signed
//	3  4  cols, the tensor's columns, 32 at least
//	7  4  the column of the chunk's first element
//	11 4  l
//	15 1  the number of a codec that needs no base
//	16 l  the rows' factor as that codec stores it
//	      the chunk as a Delta from what is predicted
const LowRank byte = 6

const lowRankHead = 16

// kindOf is the kind of h; 0: it is none of which a difference may be of low rank.
func kindOf(h Hint) lowrank.Kind {
	if h.DType == "F32" {
		return lowrank.F32
	}
	return lowrank.Kind(roundedTo(h))
}

// ColumnsHint is what Encode is told of a columns' factor.
func ColumnsHint(h Hint) Hint {
	if h.DType == "F32" {
		return Hint{DType: "I32", Elem: 4}
	}
	return Hint{DType: "I16", Elem: 2}
}

// MayBeLowRank tells cheaply from stretches of a tensor of so many rows and columns whether storing its
// chunks with factors may pay; see lowrank.MayBe.
func MayBeLowRank(s []lowrank.Stretch, rows, cols int, h Hint) bool {
	return lowrank.MayBe(s, rows, cols, kindOf(h))
}

// FactorColumns makes the columns' factor from stretches of a tensor, which should be spread over it and have
// some hundred rows: the content of a record that Encode may code, by ColumnsHint. ok is false when it would
// not pay.
func FactorColumns(s []lowrank.Stretch, cols int, h Hint) (columns []byte, ok bool) {
	kind := kindOf(h)
	if columns, ok = lowrank.Factor(s, cols, kind); !ok || len(s) < 4 {
		return columns, ok // to encode two of a few stretches would take as long as to encode all
	}
	var low, delta, sum int
	var out []byte
	for _, t := range []lowrank.Stretch{s[len(s)/3], s[2*len(s)/3]} {
		n := len(t.Raw)
		out, _ = EncodeDelta(out[:0], t.Raw, t.Base, h, 2*n)
		delta += len(out)
		out, _ = EncodeLowRank(out[:0], t.Raw, t.Base, columns, cols, t.At, h, 2*n)
		low += len(out)
		sum += n
	}
	share := float64(sum) / float64(lowrank.RowsIn(s, cols, kind)*cols*kind.Width()) // of the tensor
	return columns, float64(low)+share*float64(len(columns)) < 0.9*float64(delta)
}

// lowRankState is what encoding and decoding need besides dst.
type lowRankState struct {
	rows, predicted []byte
	scratch         lowrank.Scratch
}

var lowRankStates = sync.Pool{New: func() any { return new(lowRankState) }}

// predict is what the shape, the factors and base predict, valid until the next call.
func (s *lowRankState) predict(shape *lowrank.Shape, base, rows, columns []byte) []byte {
	s.predicted = slices.Grow(s.predicted[:0], len(base))[:len(base)]
	shape.Predict(&s.scratch, s.predicted, base, rows, columns)
	return s.predicted
}

// EncodeLowRank appends raw to dst against what base and columns, which FactorColumns made, predict. at is
// the index in the tensor, of so many columns, of the first element. It returns dst as it was and false
// unless that takes at most the given number of bytes. What was encoded has been decoded again and compared.
func EncodeLowRank(
	dst, raw, base, columns []byte, cols int, at int64, h Hint, most int,
) (out []byte, ok bool) {
	kind := kindOf(h)
	if kind == 0 || len(raw) != len(base) || len(raw) < minLen || len(raw) > cas.MaxChunk ||
		cols < lowrank.MinCols || at < 0 {
		return dst, false
	}
	w := kind.Width()
	shape := lowrank.Shape{
		Kind: kind, Rank: len(columns) / w / cols, Cols: cols, At: int(at % int64(cols)), N: len(raw) / w,
	}
	if len(raw)%w != 0 || checkRank(shape.Rank) != nil || len(columns) != shape.ColumnsLen() {
		return dst, false
	}
	s := lowRankStates.Get().(*lowRankState)
	defer lowRankStates.Put(s)
	rows := shape.Fit(&s.scratch, raw, base, columns)
	n := len(dst)
	out = appendLowRankHead(dst, &shape)
	out = append(out, 0, 0, 0, 0, 0)
	c, out := Encode(out, rows, ColumnsHint(h))
	le.PutUint32(out[n+lowRankHead-5:], uint32(len(out)-n-lowRankHead))
	out[n+lowRankHead-1] = c
	predicted := s.predict(&shape, base, rows, columns)
	state := planeStates.get()
	out, ok = state.encodeDelta(out, raw, predicted, h, most-(len(out)-n))
	planeStates.put(state)
	if !ok {
		return dst, false
	}
	if decodeLowRank(output{p: raw, verify: true}, out[n:], base, columns) != nil {
		return out[:n], false
	}
	return out, true
}

// appendLowRankHead appends the part of the head that says the shape.
func appendLowRankHead(dst []byte, s *lowrank.Shape) []byte {
	dst = append(dst, byte(s.Kind), byte(s.Rank), byte(s.Exp))
	dst = le.AppendUint32(dst, uint32(s.Cols))
	return le.AppendUint32(dst, uint32(s.At))
}

func checkRank(r int) error {
	if r < 2 || r > lowrank.MaxRank || r%2 != 0 {
		return fmt.Errorf("rank %d", r)
	}
	return nil
}

// openLowRank reads what stored begins with, and checks all of it; rows is the rows' factor as codec c stores
// it.
func openLowRank(
	stored, base, columns []byte, rawLen int,
) (s lowrank.Shape, c byte, rows, rest []byte, err error) {
	if len(stored) < lowRankHead {
		return s, 0, nil, nil, errEnds
	}
	s = lowrank.Shape{Kind: lowrank.Kind(stored[0]), Rank: int(stored[1]), Exp: int8(stored[2])}
	cols, at, size := le.Uint32(stored[3:]), le.Uint32(stored[7:]), le.Uint32(stored[11:])
	w := s.Kind.Width()
	switch {
	case s.Kind < lowrank.BF16 || s.Kind > lowrank.F32:
		err = errors.New("no kind")
	case checkRank(s.Rank) != nil:
		err = checkRank(s.Rank)
	case cols < lowrank.MinCols || cols > cas.MaxChunk || at >= cols:
		err = fmt.Errorf("column %d of %d", at, cols)
	case rawLen%w != 0 || len(base) != rawLen:
		err = fmt.Errorf("%d bytes against a base of %d", rawLen, len(base))
	case uint64(len(columns)) != uint64(cols)*uint64(s.Rank*w):
		err = fmt.Errorf("%d columns of rank %d in %d bytes", cols, s.Rank, len(columns))
	case uint64(size) >= uint64(len(stored)-lowRankHead):
		err = errEnds
	}
	if err != nil {
		return s, 0, nil, nil, err
	}
	s.Cols, s.At, s.N = int(cols), int(at), rawLen/w
	return s, stored[15], stored[lowRankHead:][:size], stored[lowRankHead+size:], nil
}

// DecodeLowRank undoes EncodeLowRank: it appends the rawLen bytes that stored, base and columns stand for to
// dst, which must lie in none of them. Its errors and bounds are those of Codec.Decode, but for another four
// times rawLen. If columns are not those that it was encoded with, it returns cas.ErrCorrupt or other bytes.
func DecodeLowRank(dst, stored, base, columns []byte, rawLen int) ([]byte, error) {
	return decodeTo(dst, rawLen, "low rank", func(dst []byte) error {
		return decodeLowRank(output{p: dst}, stored, base, columns)
	})
}

func decodeLowRank(o output, stored, base, columns []byte) error {
	shape, c, rows, rest, err := openLowRank(stored, base, columns, len(o.p))
	if err != nil {
		return err
	}
	if NeedsBase(c) {
		return fmt.Errorf("rows by codec %d", c)
	}
	s := lowRankStates.Get().(*lowRankState)
	defer lowRankStates.Put(s)
	if s.rows, err = Decode(s.rows[:0], c, rows, shape.RowsLen()); err != nil {
		return fmt.Errorf("rows: %w", err)
	}
	state := planeStates.get()
	defer planeStates.put(state)
	return state.decodeDelta(o, rest, s.predict(&shape, base, s.rows, columns))
}
