package chunk

import (
	"io"

	"ckptfs/cas"
)

// GridLen is the number of chunks that n bytes make on the grid.
func GridLen(n int64) int64 { return (n + cas.ChunkSize - 1) / cas.ChunkSize }

// GridSpan is where chunk i of n bytes lies, i in [0, GridLen(n)).
func GridSpan(n, i int64) (off int64, length int) {
	off = i * cas.ChunkSize
	return off, int(min(cas.ChunkSize, n-off))
}

// Grid cuts a stream on the grid.
type Grid struct {
	r   io.Reader
	buf *Buffer
}

var _ Cutter = (*Grid)(nil)

// NewGrid returns a Grid over r.
func NewGrid(r io.Reader) *Grid { return &Grid{r: r, buf: NewBuffer()} }

func (g *Grid) Next() ([]byte, error) {
	n, err := io.ReadFull(g.r, g.buf[:])
	if err == io.ErrUnexpectedEOF {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return g.buf[:n], nil
}

func (g *Grid) Close() {
	if g.buf != nil {
		g.buf.Free()
		g.buf = nil
	}
}
