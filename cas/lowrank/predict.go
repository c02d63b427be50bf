package lowrank

import (
	"math"

	"ckptfs/cas/half"
)

// Predict sets p to what is predicted of base, which is as long, by the rows' factor u and the columns'
// factor, of which RowsLen and ColumnsLen say the lengths. p must lie in none of them. It takes some blocks
// of columns after the others, so that their numbers stay in the nearest cache.
func (l *Shape) Predict(s *Scratch, p, base, u, columns []byte) {
	w := l.Kind.Width()
	if l.Kind == F32 {
		s.doubles = s.doubles[:0]
		for i := 0; i < len(u); i += w {
			s.doubles = append(s.doubles, float64(number24(u[i:])))
		}
	}
	for start, n := 0, 0; start < l.Cols; start += n {
		if n = l.predictColumns(); n > l.Cols-start {
			n = min(blockCols, l.Cols-start)
		}
		l.predictBlocks(p, base, u, s.doubles, columns[start*l.Rank*w:][:n*l.Rank*w], start, n)
	}
}

// predictBlocks is Predict for n columns from start on, of factor v: whole blocks, or the rest of one.
func (l *Shape) predictBlocks(p, base, u []byte, f []float64, v []byte, start, n int) {
	w, rows := l.Kind.Width(), l.Rows()
	end := l.At + l.N - (rows-1)*l.Cols // of the last row
	from, to := 0, rows                 // the rows that have all of these columns
	if start < l.At {
		from = 1
	}
	if start+n > end {
		to--
	}
	done := 0
	if n%blockCols == 0 && from < to {
		at := (from*l.Cols - l.At + start) * w
		if l.Kind == F32 {
			f = f[from*l.Rank:]
		}
		done = l.predictRows(p[at:], base[at:], u[from*l.Rank*w:], f, v, to-from, n)
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
				first = max(first, l.At)
			}
			if i == rows-1 {
				last = min(last, end)
			}
			if first < last {
				at := (i*l.Cols - l.At + first) * w
				u, v := u[i*l.Rank*w:], v[b*l.Rank*w:]
				l.predictPart(p[at:][:(last-first)*w], base[at:], u, v, first-start-b, width)
			}
		}
	}
}

// predictPart sets p to what is predicted of some columns of a row, from one of them on, in a block of
// columns v, of so many.
func (l *Shape) predictPart(p, base, u, v []byte, from, width int) {
	if l.Kind == F32 {
		var sums [blockCols]int64
		for j := range l.Rank {
			u, v := int64(number24(u[4*j:])), v[4*(j*width+from):][:len(p)]
			for k := range len(v) / 4 {
				sums[k&(blockCols-1)] += u * int64(number24(v[4*k:]))
			}
		}
		scale := math.Ldexp(1, int(l.Exp))
		for k := range len(p) / 4 {
			le.PutUint32(p[4*k:], predicted32(le.Uint32(base[4*k:]), sums[k], scale))
		}
		return
	}
	var sums [blockCols]int32
	for j := 0; j < l.Rank; j += 2 {
		u, v := le.Uint32(u[2*j:]), v[2*(j*width+2*from):][:2*len(p)]
		first, second := int32(int16(u)), int32(u)>>16
		for k := range len(v) / 4 {
			pair := le.Uint32(v[4*k:])
			sums[k&(blockCols-1)] += first*int32(int16(pair)) + second*(int32(pair)>>16)
		}
	}
	one := predictedBF16
	if l.Kind == F16 {
		one = predictedF16
	}
	scale := float32(math.Ldexp(1, int(l.Exp)))
	for k := range len(p) / 2 {
		le.PutUint16(p[2*k:], one(le.Uint16(base[2*k:]), sums[k], scale))
	}
}

// number24 is the number of 24 bits with a sign that p begins with.
func number24(p []byte) int32 { return int32(le.Uint32(p)<<8) >> 8 }

// The conversions of products below keep a compiler from fusing them with the sums.

func predictedBF16(b uint16, sum int32, scale float32) uint16 {
	y := math.Float32bits(half.FromBF16(b) + float32(float32(sum)*scale))
	if y&^(1<<31) >= 0x7f7f8000 { // what rounds to infinity, and what is not finite
		return b
	}
	return half.ToBF16(y)
}

func predictedF16(b uint16, sum int32, scale float32) uint16 {
	y := math.Float32bits(half.FromF16(b) + float32(float32(sum)*scale))
	if y&^(1<<31) >= 0x477ff000 {
		return b
	}
	return half.ToF16(y)
}

func predicted32(b uint32, sum int64, scale float64) uint32 {
	y := math.Float32bits(float32(float64(math.Float32frombits(b)) + float64(float64(sum)*scale)))
	if y&^(1<<31) >= 0x7f800000 {
		return b
	}
	return y
}
