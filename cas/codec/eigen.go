package codec

import (
	"math"
	"slices"
)

// eigen are the eigenvalues of a symmetric matrix of n by n, the largest first, and in the columns of vectors what belongs to them: by Jacobi's
// rotations, in cycles, until nothing is left beside the diagonal (Golub and Van Loan, Matrix Computations, section 8.5). It is not changed.
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
