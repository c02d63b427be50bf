//go:build !amd64

package lowrank

func (l *Shape) predictColumns() int { return blockCols }

func (l *Shape) predictRows(p, base, u []byte, f []float64, v []byte, rows, cols int) int { return 0 }

func (m *matrix) fitRows(g, u, v []float32, r int, flags uint64) {
	m.fitRowsPortable(g, u, v, r, flags)
}

func (m *matrix) fitCols(g, u, v []float32, r int, flags uint64) {
	m.fitColsPortable(g, u, v, r, 0, flags)
}

func differences(d, w []float32, raw, base []byte, kind Kind, e int) {
	differencesPortable(d, w, raw, base, kind, e)
}

func singles(dst []float32, src []byte, w int) int { return 0 }

func (m *matrix) leave(x, u, v []float32, r int, flags uint64) { m.leavePortable(x, u, v, r, flags) }
