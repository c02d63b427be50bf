//go:build !amd64

package codec

func (l *lowRank) predictRows(p, base, u, v []byte, rows int) int { return 0 }

func (m *matrix) fitRows(g, u, v []float32, r int, flags uint64) {
	m.fitRowsPortable(g, u, v, r, 0, flags)
}

func (m *matrix) fitCols(g, u, v []float32, r int, flags uint64) {
	m.fitColsPortable(g, u, v, r, 0, flags)
}
