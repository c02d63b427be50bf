package lowrank

import (
	"math"
	"slices"
)

// products are those of the rows of d and the k rows of v: k numbers for each row of d.
func (m *matrix) products(v []float32, k int) []float32 {
	s := rowSolver{r: k, v: v, lanes: make([]float32, min(m.rows, batchRows)*k*blockCols)}
	u := make([]float32, m.rows*k)
	for i := 0; i < m.rows; i += batchRows {
		s.m = m.part(i, min(batchRows, m.rows-i))
		s.fit(u[i*k:], u[i*k:], fitD)
	}
	return u
}

// gram is the products of the columns of u, which has rows of k numbers, with each other.
func gram(u []float32, k int) []float64 {
	out := make([]float64, k*k)
	for ; len(u) > 0; u = u[k:] {
		for i, x := range u[:k] {
			for j, y := range u[:i+1] {
				out[i*k+j] += float64(x) * float64(y)
			}
		}
	}
	for i := range k {
		for j := range i {
			out[j*k+i] = out[i*k+j]
		}
	}
	return out
}

// plain is the k rows of v as a matrix.
func plain(v []float32, k int) *matrix {
	width := len(v) / k
	m := &matrix{rows: k, cols: width, width: width, tile: k * fitBlock, d: make([]float32, len(v))}
	m.w = m.d
	for b := 0; b < width; b += blockCols {
		for j := range k {
			copy(m.d[m.at(j, b):][:blockCols], v[b*k+j*blockCols:])
		}
	}
	return m
}

// mix makes r rows of k, by the first r columns of a matrix of k by k.
func mix(v []float32, by []float64, k, r int) []float32 {
	u := make([]float32, k*r)
	for i := range k {
		for j := range r {
			u[i*r+j] = float32(by[i*k+j])
		}
	}
	out := make([]float32, len(v)/k*r)
	plain(v, k).fitCols(out, u, out, r, fitD)
	return out
}

// gramRows is the products of the rows of v with each other.
func gramRows(v []float32, k int) []float64 {
	out := make([]float64, k*k)
	for i, x := range plain(v, k).products(v, k) {
		out[i] = float64(x)
	}
	return out
}

// orthonormal makes the k rows of v orthogonal and of length 1, and leaves out those that depend on others. A
// second time undoes rounding.
func orthonormal(v []float32, k, times int) ([]float32, int) {
	for range times {
		by, n := whiten(gramRows(v, k), k)
		if n == 0 {
			return nil, 0
		}
		v = mix(v, by, k, n)
		k = n
	}
	return v, k
}

// whiten returns a matrix whose first n columns make rows with such products orthogonal and of length 1. It
// is the inverse of Cholesky's factor, with the longest row that is left taken first.
func whiten(gram []float64, k int) (by []float64, n int) {
	a := slices.Clone(gram)
	by = make([]float64, k*k) // row i is what makes row i of the result, until the end
	for i := range k {
		by[i*k+i] = 1
	}
	var first float64
	taken := make([]bool, k)
	order := make([]int, 0, k)
	for range k {
		p := -1
		for i := range k {
			if !taken[i] && (p < 0 || a[i*k+i] > a[p*k+p]) {
				p = i
			}
		}
		top := a[p*k+p]
		if len(order) == 0 {
			first = top
		}
		if !(top > 1e-6*first) || math.IsInf(top, 0) {
			break
		}
		rowA, rowBy := a[p*k:][:k], by[p*k:][:k]
		for i := range k {
			if c := a[i*k+p] / top; !taken[i] && i != p {
				toA, toBy := a[i*k:][:k], by[i*k:][:k]
				for j, x := range rowA {
					toA[j] -= c * x
				}
				for _, j := range order { // the others are zero yet
					toBy[j] -= c * rowBy[j]
				}
				toBy[p] -= c * rowBy[p]
			}
		}
		taken[p] = true
		order = append(order, p)
		for j := range rowBy {
			rowBy[j] /= math.Sqrt(top)
		}
	}
	out := make([]float64, k*k)
	for n, i := range order {
		for j := range k {
			out[j*k+n] = by[i*k+j]
		}
	}
	return out, len(order)
}

// balance makes the rows of v orthogonal and as long as the columns of u become, while the product of u and v
// stays what it is. The longest come first. It returns the squares of the lengths, too.
func balance(u, v []float32, r int) ([]float32, []float64) {
	by, n := whiten(gramRows(v, r), r) // orthonormal rows are byT v, and v is c times them
	c := make([]float64, r*r)
	g := gramRows(v, r)
	for i := range r {
		for j := range n {
			for a := range r {
				c[i*r+j] += g[i*r+a] * by[a*r+j]
			}
		}
	}
	squares, t := eigen(sandwich(gram(u, r), c, r), r)
	turned := make([]float64, r*r)
	for j := range r {
		squares[j] = math.Sqrt(max(squares[j], 0))
		long := math.Sqrt(squares[j])
		for i := range r {
			for a := range n {
				turned[i*r+j] += by[i*r+a] * t[a*r+j] * long
			}
		}
	}
	return mix(v, turned, r, r), squares
}

// sandwich is cT a c.
func sandwich(a, c []float64, r int) []float64 {
	half, out := make([]float64, r*r), make([]float64, r*r)
	for i := range r {
		for k := range r {
			for j := range r {
				half[i*r+j] += a[i*r+k] * c[k*r+j]
			}
		}
	}
	for i := range r {
		for k := range r {
			for j := range r {
				out[i*r+j] += c[k*r+i] * half[k*r+j]
			}
		}
	}
	return out
}

// first are the first n of the r rows of v.
func first(v []float32, r, n int) []float32 {
	out := make([]float32, len(v)/r*n)
	for b := range len(v) / (r * blockCols) {
		copy(out[b*n*blockCols:][:n*blockCols], v[b*r*blockCols:])
	}
	return out
}

// beside are the r rows of v and the first n rows of more, with zeros where more has one less.
func beside(v, more []float32, r, n, width int) []float32 {
	have := len(more) / width
	out := make([]float32, width*(r+n))
	for b := range width / blockCols {
		to := out[b*(r+n)*blockCols:]
		copy(to, v[b*r*blockCols:][:r*blockCols])
		copy(to[r*blockCols:], more[b*have*blockCols:][:min(have, n)*blockCols])
	}
	return out
}

// eigen are the eigenvalues of a symmetric matrix of n by n, the largest first, and in the columns of vectors
// the eigenvectors. Jacobi's rotations go round until nothing is left beside the diagonal (Golub and Van
// Loan, Matrix Computations, section 8.5). The matrix is not changed.
func eigen(matrix []float64, n int) (values, vectors []float64) {
	a := slices.Clone(matrix)
	v := make([]float64, n*n) // rows, until the end
	for i := range n {
		v[i*n+i] = 1
	}
	for range 30 {
		var off, all float64
		for i := range n {
			for j := range n {
				if all += a[i*n+j] * a[i*n+j]; i != j {
					off += a[i*n+j] * a[i*n+j]
				}
			}
		}
		if !(off > 1e-20*all) {
			break
		}
		for p := range n {
			for q := p + 1; q < n; q++ {
				turn(a, v, n, p, q)
			}
		}
	}
	order := make([]int, n)
	for i := range n {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch x, y := a[i*n+i], a[j*n+j]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	values, vectors = make([]float64, n), make([]float64, n*n)
	for k, i := range order {
		values[k] = a[i*n+i]
		for j := range n {
			vectors[j*n+k] = v[i*n+j]
		}
	}
	return values, vectors
}

// turn makes the element at p, q zero.
func turn(a, v []float64, n, p, q int) {
	x := a[p*n+q]
	if x == 0 {
		return
	}
	tau := (a[q*n+q] - a[p*n+p]) / (2 * x)
	t := 1 / (math.Abs(tau) + math.Sqrt(1+tau*tau))
	if tau < 0 {
		t = -t
	}
	c := 1 / math.Sqrt(1+t*t)
	s := t * c
	for k := range n {
		i, j := a[k*n+p], a[k*n+q]
		a[k*n+p], a[k*n+q] = c*i-s*j, s*i+c*j
	}
	rowsP, rowsQ := a[p*n:][:n], a[q*n:][:n]
	vp, vq := v[p*n:][:n], v[q*n:][:n]
	for k := range n {
		i, j := rowsP[k], rowsQ[k]
		rowsP[k], rowsQ[k] = c*i-s*j, s*i+c*j
		i, j = vp[k], vq[k]
		vp[k], vq[k] = c*i-s*j, s*i+c*j
	}
}
