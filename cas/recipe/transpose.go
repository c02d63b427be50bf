package recipe

// Transpose takes a value for matrices of Rows rows and Cols columns, one behind the other. Each becomes its
// transpose, and of what they are then, elements one behind the other, N from Skip on remain.
type Transpose struct{ Rows, Cols, Skip, N int }

func (Transpose) id() byte { return opTranspose }

func (x Transpose) append(dst []byte) []byte {
	return putUint(putUint(putUint(putUint(dst, x.Rows), x.Cols), x.Skip), x.N)
}

func (r *fields) transpose() Op {
	return Transpose{r.uint(MaxValue), r.uint(MaxValue), r.uint(MaxValue), r.uint(MaxValue)}
}

func (x Transpose) run(m *machine) error {
	w := m.typ.Size()
	if m.isWide() || w == 0 {
		return corrupt("what is not taken, or widened, is transposed")
	}
	if err := m.elements(); err != nil {
		return err
	}
	n := len(m.value) / w
	one := x.Rows * x.Cols // no more than MaxValue squared
	if one == 0 || n == 0 || n%one != 0 || len(m.value)%w != 0 || x.Skip > n || x.N > n-x.Skip {
		return corrupt("%d elements are no matrices of %d by %d, or have no %d from %d on", n, x.Rows, x.Cols,
			x.N, x.Skip)
	}
	out := m.room(len(m.value))
	for at := 0; at < len(out); at += one * w {
		transpose(out[at:][:one*w], m.value[at:][:one*w], x.Rows, x.Cols, w)
	}
	m.value = out[x.Skip*w:][:x.N*w]
	return nil
}

// block is how many rows and columns are transposed at once, whose lines stay in the processor's cache.
const block = 32

// transpose puts the matrix src, of elements of w bytes, into dst column by column.
func transpose(dst, src []byte, rows, cols, w int) {
	for r0 := 0; r0 < rows; r0 += block {
		r1 := min(r0+block, rows)
		for c0 := 0; c0 < cols; c0 += block {
			c1 := min(c0+block, cols)
			for c := c0; c < c1; c++ {
				from, to := (r0*cols+c)*w, (c*rows+r0)*w
				line(dst[to:to+(r1-r0)*w], src[from:], cols*w, w)
			}
		}
	}
}

// line fills dst with elements of w bytes that are step bytes apart in src.
func line(dst, src []byte, step, w int) {
	switch w {
	case 1:
		for i, at := 0, 0; i < len(dst); i, at = i+1, at+step {
			dst[i] = src[at]
		}
	case 2:
		for i, at := 0, 0; i < len(dst); i, at = i+2, at+step {
			le.PutUint16(dst[i:], le.Uint16(src[at:]))
		}
	case 4:
		for i, at := 0, 0; i < len(dst); i, at = i+4, at+step {
			le.PutUint32(dst[i:], le.Uint32(src[at:]))
		}
	default:
		for i, at := 0, 0; i < len(dst); i, at = i+8, at+step {
			le.PutUint64(dst[i:], le.Uint64(src[at:]))
		}
	}
}
