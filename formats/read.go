package formats

import "io"

// ReadFull fills p from r at off. A file that ends before p is full is io.ErrUnexpectedEOF: parsers ask only
// for bytes below the size they were given, so the file changed under them, which is an error of r's and no
// fact of the format.
func ReadFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Cursor reads a file forwards through a window, and passes over what is not needed without reading it.
type Cursor struct {
	r    io.ReaderAt
	size int64
	next int64 // offset of the byte after the window
	buf  []byte
	pos  int
}

// NewCursor returns a Cursor at the start of the size bytes of r. Its window has window bytes, the most that
// Peek gives.
func NewCursor(r io.ReaderAt, size int64, window int) *Cursor {
	return &Cursor{r: r, size: size, buf: make([]byte, 0, window)}
}

// Offset is that of the next byte.
func (c *Cursor) Offset() int64 { return c.next - int64(len(c.buf)-c.pos) }

// Peek returns the next n bytes, or more, valid until the next call. It returns io.EOF when there are fewer,
// and r's own errors.
func (c *Cursor) Peek(n int) ([]byte, error) {
	if len(c.buf)-c.pos < n {
		k := copy(c.buf[:cap(c.buf)], c.buf[c.pos:])
		more := int(min(int64(cap(c.buf)-k), c.size-c.next))
		c.buf, c.pos = c.buf[:k], 0
		if err := ReadFull(c.r, c.buf[k:k+more], c.next); err != nil {
			return nil, err
		}
		c.buf = c.buf[:k+more]
		c.next += int64(more)
		if len(c.buf) < n {
			return nil, io.EOF
		}
	}
	return c.buf[c.pos:], nil
}

// Pass moves on by n bytes, at most to the end of the file.
func (c *Cursor) Pass(n int64) {
	if have := int64(len(c.buf) - c.pos); n <= have {
		c.pos += int(n)
		return
	}
	c.next = min(c.Offset()+n, c.size)
	c.buf, c.pos = c.buf[:0], 0
}
