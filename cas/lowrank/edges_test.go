package lowrank

import (
	"bytes"
	"testing"
	"unsafe"

	"ckptfs/cas/codectest"
)

// What these tests have in common: no kernel reads or writes past the ends of what it is given.

func TestPredictAtEdges(t *testing.T) {
	for _, kind := range kinds {
		for _, cols := range []int{MinCols, 64, 80, 150} {
			for rows := 1; rows < 8; rows++ {
				l := Shape{Kind: kind, Rank: 6, Cols: cols, Exp: -20, N: rows * cols}
				w := kind.Width()
				base := codectest.Edge(t, codectest.Random(l.N*w))
				u := codectest.Edge(t, codectest.Random(l.Rows()*l.Rank*w))
				v := codectest.Edge(t, codectest.Random(l.ColumnsLen()))
				p := codectest.Edge(t, make([]byte, l.N*w))
				var all [][]byte
				codectest.Levels(func(string) {
					l.Predict(new(Scratch), p, base, u, v)
					all = append(all, bytes.Clone(p))
				})
				if !codectest.Same(all) {
					t.Fatalf("%v, %d rows of %d: the twins differ", kind, rows, cols)
				}
			}
		}
	}
}

// edge is a slice at an edge of memory.
func edge(t *testing.T, n int) []float32 {
	t.Helper()
	p := codectest.Edge(t, make([]byte, 4*n))
	return unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), n)
}

func TestFitAtEdges(t *testing.T) {
	const r = 6
	for _, cols := range []int{MinCols, 64, 65, 200} {
		for rows := 1; rows < 10; rows++ {
			var m matrix
			m.reset(rows, cols)
			m.d, m.w = edge(t, len(m.d)), edge(t, len(m.w))
			u, v := edge(t, rows*r), edge(t, m.width*r)
			sumsR, sumsC, left := edge(t, rows*r*blockCols), edge(t, m.width*r), edge(t, len(m.d))
			codectest.Levels(func(string) {
				m.fitRows(sumsR, u, v, r, fitAll)
				m.fitCols(sumsC, u, v, r, fitAll)
				m.leave(left, u, v, r, fitAll)
			})
		}
		for _, kind := range kinds {
			w := kind.Width()
			raw := codectest.Edge(t, codectest.Random(cols*w))
			base := codectest.Edge(t, codectest.Random(cols*w))
			l := Shape{Kind: kind, Rank: r, Cols: cols}
			columns := codectest.Edge(t, codectest.Random(l.ColumnsLen()))
			d, weights, v := edge(t, cols), edge(t, cols), edge(t, r*widthOf(cols))
			codectest.Levels(func(string) {
				differences(d, weights, raw, base, kind, 0)
				l.singles(v, columns)
			})
		}
	}
}
