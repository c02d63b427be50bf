package formats

import (
	"math"
	"strconv"
	"strings"
)

// PieceName is what a piece of an array is called that begins at origin and has a shape: w[0:64,128:256], as
// Python slices it.
func PieceName(array string, origin, shape []int64) string {
	b := append([]byte(array), '[')
	for d, o := range origin {
		if d > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, o, 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, o+shape[d], 10)
	}
	return string(append(b, ']'))
}

// ParsePiece reads what PieceName wrote of a tensor of this shape. false: it is not called so.
func ParsePiece(t *Tensor) (array string, origin []int64, ok bool) {
	text, ok := strings.CutSuffix(t.Name, "]")
	open := strings.LastIndexByte(text, '[')
	if !ok || open < 0 || len(t.Shape) == 0 {
		return "", nil, false
	}
	for part := range strings.SplitSeq(text[open+1:], ",") {
		d := len(origin)
		from, to, ok := strings.Cut(part, ":")
		o, err := strconv.ParseInt(from, 10, 64)
		end, err2 := strconv.ParseInt(to, 10, 64)
		if !ok || err != nil || err2 != nil || d == len(t.Shape) || o < 0 || o > math.MaxInt64-t.Shape[d] ||
			end != o+t.Shape[d] {
			return "", nil, false
		}
		origin = append(origin, o)
	}
	return text[:open], origin, len(origin) == len(t.Shape) &&
		PieceName(text[:open], origin, t.Shape) == t.Name
}
