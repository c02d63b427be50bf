package chunk

import (
	"hash/crc32"
	"io"
	"sync"
)

// The parameters of content-defined cutting; part of the identity of what is stored, see the package comment.
const (
	MinCDC    = 16 << 10
	NormalCDC = 64 << 10
	MaxCDC    = MaxLen

	MinFine    = 1 << 10
	NormalFine = 4 << 10
	MaxFine    = 16 << 10
)

// rule says where chunks end: at the first byte from the shortest on at which the gear hash of the bytes up
// to it, and with it, has zeros where the mask has ones.
type rule struct {
	shortest, normal, longest int
	before, after             uint64 // the masks, up to the normal length and from it on
}

var (
	coarse = rule{MinCDC, NormalCDC, MaxCDC, spread(16 + 2), spread(16 - 2)}
	fine   = rule{MinFine, NormalFine, MaxFine, spread(12 + 2), spread(12 - 2)}
)

// spread is a mask of n ones, evenly from the top.
func spread(n int) (mask uint64) {
	for i := range n {
		mask |= 1 << (63 - i*(64/n))
	}
	return mask
}

// cut is the length of the chunk that p, which is the longest chunk or all that is left, begins with.
func (r *rule) cut(p []byte) int {
	if len(p) <= r.shortest {
		return len(p)
	}
	p = p[:min(len(p), r.longest)]
	var hash uint64
	middle := min(r.normal, len(p))
	for i, b := range p[r.shortest:middle] {
		if hash = hash<<1 + gear[b]; hash&r.before == 0 {
			return r.shortest + i
		}
	}
	for i, b := range p[middle:] {
		if hash = hash<<1 + gear[b]; hash&r.after == 0 {
			return middle + i
		}
	}
	return len(p)
}

// ends reports whether a chunk of n bytes that p begins with ends there, if it does not before.
func (r *rule) ends(p []byte, n int) bool {
	switch {
	case n > r.longest || n > len(p):
		return false
	case n == r.longest || n == len(p):
		return true
	case n < r.shortest:
		return false
	}
	var hash uint64
	for _, b := range p[max(r.shortest, n-63) : n+1] { // what came before has been shifted out
		hash = hash<<1 + gear[b]
	}
	if n < r.normal {
		return hash&r.before == 0
	}
	return hash&r.after == 0
}

// CDC cuts a stream where its content says so.
type CDC struct {
	*rule
	r          io.Reader
	buf        *window
	start, end int // of what is ahead, in buf
	err        error
}

// window is what is read ahead into: twice the longest chunk, so that bytes have to be moved rarely.
type window [2 * MaxCDC]byte

var windows = sync.Pool{New: func() any { return new(window) }}

// NewCDC returns a CDC over r.
func NewCDC(r io.Reader) *CDC { return newCDC(r, &coarse) }

// NewFineCDC returns a CDC over r that cuts finely.
func NewFineCDC(r io.Reader) *CDC { return newCDC(r, &fine) }

func newCDC(r io.Reader, rule *rule) *CDC {
	return &CDC{rule: rule, r: r, buf: windows.Get().(*window)}
}

// EndsList reports whether the list of a document that is cut finely ends after chunk p.
func EndsList(p []byte) bool {
	return crc32.Checksum(p[max(0, len(p)-64):], castagnoli)%16 == 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Next returns the next chunk, at least 1 and at most MaxLen bytes, valid until the next call; io.EOF after
// the last one; or the reader's error, after which the CDC is of no more use.
func (c *CDC) Next() ([]byte, error) {
	p, err := c.Ahead()
	if err != nil {
		return nil, err
	}
	p = p[:c.cut(p)]
	c.Pass(len(p))
	return p, nil
}

// Ahead returns what follows, at least the longest chunk of it and one byte, or all that is left; io.EOF when
// that is nothing. It is valid until the next call.
func (c *CDC) Ahead() ([]byte, error) {
	if c.end-c.start <= c.longest && c.err == nil {
		c.end = copy(c.buf[:], c.buf[c.start:c.end])
		c.start = 0
		var n int
		n, c.err = io.ReadFull(c.r, c.buf[c.end:])
		if c.end += n; c.err == io.ErrUnexpectedEOF {
			c.err = io.EOF
		}
	}
	if c.err != nil && (c.err != io.EOF || c.start == c.end) {
		return nil, c.err
	}
	return c.buf[c.start:c.end], nil
}

// Pass moves on by n bytes of what is ahead.
func (c *CDC) Pass(n int) { c.start += n }

// Ends reports whether the first n bytes of p, which is ahead, up to the end of that, are a chunk, if they
// are known to have no end before. Where p says too little it does not.
func (c *CDC) Ends(p []byte, n int) bool {
	return (n < len(p) || c.err == io.EOF) && c.ends(p, n)
}

// Close gives the buffer back to the pool. What Next and Ahead returned last is then no longer valid.
func (c *CDC) Close() {
	if c.err == nil {
		c.err = io.EOF
	}
	c.start, c.end = 0, 0
	if c.buf != nil {
		windows.Put(c.buf)
		c.buf = nil
	}
}
