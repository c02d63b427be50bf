package chunk

import (
	"errors"
	"fmt"
	"io"
	"sync"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers the algorithm
)

// The parameters of content-defined cutting; part of the identity of what is stored, see the package comment.
const (
	MinCDC    = 16 << 10
	NormalCDC = 64 << 10
	MaxCDC    = MaxLen

	algorithm = "fastcdc-v1.0.0"
)

// CDC cuts a stream where its content says so.
type CDC struct {
	c    *chunkers.Chunker
	buf  *window
	done bool
}

var _ Cutter = (*CDC)(nil)

// window is what the chunker reads ahead into: twice the longest chunk, so that it rarely has to move bytes.
type window [2 * MaxCDC]byte

var windows = sync.Pool{New: func() any { return new(window) }}

// NewCDC returns a CDC over r.
func NewCDC(r io.Reader) *CDC {
	c := &CDC{buf: windows.Get().(*window)}
	opts := &chunkers.ChunkerOpts{MinSize: MinCDC, NormalSize: NormalCDC, MaxSize: MaxCDC}
	var err error
	if c.c, err = chunkers.NewChunkerBuffer(algorithm, r, opts, c.buf[:]); err != nil {
		panic(fmt.Sprintf("chunk: the library refuses constant parameters: %v", err))
	}
	return c
}

func (c *CDC) Next() ([]byte, error) {
	if c.done {
		return nil, io.EOF
	}
	p, err := c.c.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		c.done = true
		return nil, err
	}
	// io.EOF comes along with a last chunk that is shorter than the minimum, or alone.
	c.done = err != nil
	if len(p) == 0 {
		return nil, io.EOF
	}
	return p, nil
}

func (c *CDC) Close() {
	c.done = true
	if c.buf != nil {
		windows.Put(c.buf)
		c.buf = nil
	}
}
