package gguf

import (
	"bufio"
	"encoding/binary"
	"io"

	"ckptfs/formats"
)

// Value types that are treated on their own, or written.
const (
	typeU32    = 4
	typeI32    = 5
	typeF32    = 6
	typeBool   = 7
	typeString = 8
	typeArray  = 9
)

// widths has the bytes of the other types, 0 where there is none.
var widths = [...]int64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// maxKey is the longest key or name, in bytes.
const maxKey = 1 << 16

// reader reads the header. After the first error all reads return zeros.
type reader struct {
	src source
	buf *bufio.Reader
	pos int64
	err error
}

// source is the file as bufio reads it.
type source struct {
	r         io.ReaderAt
	off, size int64
	err       error // of the file's own
}

func (s *source) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), s.size-s.off))
	if n == 0 {
		return 0, io.EOF
	}
	if err := formats.ReadFull(s.r, p[:n], s.off); err != nil {
		s.err = err
		return 0, err
	}
	s.off += int64(n)
	return n, nil
}

func newReader(r io.ReaderAt, size int64) *reader {
	h := &reader{src: source{r: r, size: size}}
	h.buf = bufio.NewReaderSize(&h.src, 64<<10)
	return h
}

func (h *reader) at() int64 { return h.pos }

// fail is the error of a file that is none: the file's own, if that is why.
func (h *reader) fail(format string, args ...any) error {
	if h.src.err != nil {
		return h.src.err
	}
	if h.err != nil {
		return reject("header: %v", h.err)
	}
	return reject(format, args...)
}

func (h *reader) take(n int) []byte {
	if h.err != nil {
		return make([]byte, n)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(h.buf, p); err != nil {
		h.err = err
		clear(p)
	}
	h.pos += int64(n)
	return p
}

// number reads n bytes; it takes no memory.
func (h *reader) number(n int) uint64 {
	if h.err != nil {
		return 0
	}
	p, err := h.buf.Peek(n)
	if err != nil {
		h.err = err
		return 0
	}
	var b [8]byte
	copy(b[:], p)
	_, h.err = h.buf.Discard(n)
	h.pos += int64(n)
	return binary.LittleEndian.Uint64(b[:])
}

func (h *reader) u32() uint32 { return uint32(h.number(4)) }
func (h *reader) u64() uint64 { return h.number(8) }

// text reads a string of at most most bytes.
func (h *reader) text(most uint64) []byte {
	n := h.u64()
	if n > most {
		if h.err == nil {
			h.err = io.ErrUnexpectedEOF
		}
		return nil
	}
	return h.take(int(n))
}

// skip passes over n bytes.
func (h *reader) skip(n uint64) {
	if h.err != nil {
		return
	}
	if n > uint64(h.src.size-h.pos) {
		h.err = io.ErrUnexpectedEOF
		return
	}
	h.pos += int64(n)
	for n > 0 && h.err == nil {
		k := min(n, 1<<20)
		_, h.err = h.buf.Discard(int(k))
		n -= k
	}
}

// pass passes over a value.
func (h *reader) pass(typ uint32, depth int) {
	switch {
	case h.err != nil:
	case typ == typeString:
		h.skip(h.u64())
	case typ == typeArray:
		h.passArray(depth)
	case typ < uint32(len(widths)):
		h.skip(uint64(widths[typ]))
	default:
		h.err = io.ErrUnexpectedEOF
	}
}

func (h *reader) passArray(depth int) {
	typ, n := h.u32(), h.u64()
	// Every value but those of a width has at least 8 bytes.
	if h.err != nil || depth >= maxNesting || typ >= uint32(len(widths)) || n > uint64(h.src.size) {
		if h.err == nil {
			h.err = io.ErrUnexpectedEOF
		}
		return
	}
	if w := widths[typ]; w > 0 {
		h.skip(n * uint64(w))
		return
	}
	for i := uint64(0); i < n && h.err == nil; i++ {
		h.pass(typ, depth+1)
	}
}
