package chunk

import (
	"errors"
	"fmt"
	"hash/crc32"
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

	MinFine    = 1 << 10
	NormalFine = 4 << 10
	MaxFine    = 16 << 10

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
func NewCDC(r io.Reader) *CDC { return newCDC(r, MinCDC, NormalCDC, MaxCDC) }

// NewFineCDC returns a CDC over r that cuts finely.
func NewFineCDC(r io.Reader) *CDC { return newCDC(r, MinFine, NormalFine, MaxFine) }

// EndsList reports whether the list of a document that is cut finely ends after chunk p.
func EndsList(p []byte) bool {
	return crc32.Checksum(p[max(0, len(p)-64):], castagnoli)%16 == 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newCDC(r io.Reader, minimum, normal, maximum int) *CDC {
	c := &CDC{buf: windows.Get().(*window)}
	opts := &chunkers.ChunkerOpts{MinSize: minimum, NormalSize: normal, MaxSize: maximum}
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
