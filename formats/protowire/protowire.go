// Package protowire walks protobuf messages in a file, or in memory, without the bytes of fields that the
// caller does not ask for.
//
//	message   field field …
//	field     tag (varint: number << 3 | type), value
//	value     type 0: a varint of at most 64 bits; 1: 8 bytes; 5: 4 bytes, little-endian; 2: a length
//	          (varint), as many bytes
//
// The caller knows by a field's number what its bytes are: text, a message, packed numbers. The package is
// not google.golang.org/protobuf's, which wants a message in one slice: the messages here are models of
// gigabytes.
//
// Files are untrusted. A Reader refuses groups (types 3 and 4), field 0, a value that ends past its message,
// and what takes more than its budget. It holds its window; Bytes takes more where a field is longer than
// that.
package protowire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"ckptfs/formats"
)

// ErrInvalid says that the bytes are no protobuf message, or that reading them takes more than the budget.
var ErrInvalid = errors.New("not protobuf")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Type is how a field's value is encoded.
type Type uint8

// The types that a field may have.
const (
	Varint  Type = 0
	Fixed64 Type = 1
	Bytes   Type = 2
	Fixed32 Type = 5
)

// Span is the bytes [Off, End) of the file.
type Span struct{ Off, End int64 }

// Len is the number of bytes.
func (s Span) Len() int64 { return s.End - s.Off }

// Field is one field of a message.
type Field struct {
	Number int
	Type   Type
	Value  uint64 // of all types but Bytes
	Span   Span   // of the value, if the type is Bytes
}

// Reader reads the messages of one file. It is for one goroutine.
type Reader struct {
	src    io.ReaderAt // nil: window has the whole file
	size   int64
	budget int64
	left   int64  // of budget
	window []byte // the bytes from offset `from` on
	from   int64
}

// New returns a Reader of the size bytes of src. It reads window bytes at a time (at least 10), and at most
// budget bytes of tags, numbers and what Bytes is asked for.
func New(src io.ReaderAt, size int64, window int, budget int64) *Reader {
	return &Reader{src: src, size: size, budget: budget, left: budget, window: make([]byte, 0, window)}
}

// In returns a Reader of p.
func In(p []byte) *Reader { return &Reader{size: int64(len(p)), left: math.MaxInt64, window: p} }

// All is the whole file, as one message.
func (r *Reader) All() Span { return Span{0, r.size} }

// Fields calls each with the fields of the message in s, in their order. Errors are each's, the file's, or
// wrap ErrInvalid.
func (r *Reader) Fields(s Span, each func(Field) error) error {
	if s.Off < 0 || s.End > r.size {
		return invalid("bytes %d to %d of %d", s.Off, s.End, r.size)
	}
	for s.Off < s.End {
		tag, err := r.varint(&s)
		if err != nil {
			return err
		}
		number := tag >> 3
		if number == 0 || number > 1<<29-1 {
			return invalid("field %d", number)
		}
		f := Field{Number: int(number), Type: Type(tag & 7)}
		if f.Type != Bytes {
			f.Value, err = r.number(&s, f.Type)
		} else {
			f.Span, err = r.span(&s, f.Number)
		}
		if err != nil {
			return err
		}
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// Message is Fields of a field that is a message.
func (r *Reader) Message(f Field, each func(Field) error) error {
	if f.Type != Bytes {
		return invalid("field %d is no message", f.Number)
	}
	return r.Fields(f.Span, each)
}

// Numbers calls each with the numbers of a repeated field, packed as numbers of a type, or not packed.
func (r *Reader) Numbers(f Field, packed Type, each func(uint64)) error {
	if f.Type != Bytes {
		each(f.Value)
		return nil
	}
	for s := f.Span; s.Off < s.End; {
		v, err := r.number(&s, packed)
		if err != nil {
			return err
		}
		each(v)
	}
	return nil
}

// Bytes returns the bytes of a field, valid until the Reader is used again.
func (r *Reader) Bytes(s Span) ([]byte, error) {
	n := s.Len()
	if s.Off < 0 || n < 0 || s.End > r.size {
		return nil, invalid("bytes %d to %d of %d", s.Off, s.End, r.size)
	}
	if err := r.spend(n); err != nil {
		return nil, err
	}
	if n <= int64(cap(r.window)) {
		return r.peek(s.Off, int(n))
	}
	p := make([]byte, n)
	return p, formats.ReadFull(r.src, p, s.Off)
}

// span takes the value of field number, a length and as many bytes, from the start of s.
func (r *Reader) span(s *Span, number int) (Span, error) {
	n, err := r.varint(s)
	if err != nil {
		return Span{}, err
	}
	if n > uint64(s.Len()) {
		return Span{}, invalid("field %d of %d bytes, %d are left", number, n, s.Len())
	}
	out := Span{s.Off, s.Off + int64(n)}
	s.Off = out.End
	return out, nil
}

// number takes a number from the start of s.
func (r *Reader) number(s *Span, t Type) (uint64, error) {
	width := 8
	switch t {
	case Varint:
		return r.varint(s)
	case Fixed64:
	case Fixed32:
		width = 4
	default:
		return 0, invalid("wire type %d", t)
	}
	if s.Len() < int64(width) {
		return 0, invalid("cut short")
	}
	p, err := r.take(s, width)
	if err != nil {
		return 0, err
	}
	if width == 4 {
		return uint64(binary.LittleEndian.Uint32(p)), nil
	}
	return binary.LittleEndian.Uint64(p), nil
}

// varint takes a number of a varying length from the start of s.
func (r *Reader) varint(s *Span) (uint64, error) {
	p, err := r.peek(s.Off, int(min(s.Len(), binary.MaxVarintLen64)))
	if err != nil {
		return 0, err
	}
	v, n := binary.Uvarint(p)
	switch {
	case n < 0 || n == 0 && len(p) == binary.MaxVarintLen64:
		return 0, invalid("a number of more than 64 bits")
	case n == 0:
		return 0, invalid("cut short")
	}
	_, err = r.take(s, n)
	return v, err
}

// take takes n bytes from the start of s, valid until the next call.
func (r *Reader) take(s *Span, n int) ([]byte, error) {
	if err := r.spend(int64(n)); err != nil {
		return nil, err
	}
	p, err := r.peek(s.Off, n)
	s.Off += int64(n)
	return p, err
}

func (r *Reader) spend(n int64) error {
	if r.left -= n; r.left < 0 {
		return invalid("more than %d bytes besides what is passed over", r.budget)
	}
	return nil
}

// peek returns the n bytes at off, of which the file has as many and the window room for them. They are valid
// until the next call.
func (r *Reader) peek(off int64, n int) ([]byte, error) {
	if at := off - r.from; at < 0 || at+int64(n) > int64(len(r.window)) {
		p := r.window[:min(int64(cap(r.window)), r.size-off)]
		r.from, r.window = off, p[:0]
		if err := formats.ReadFull(r.src, p, off); err != nil {
			return nil, err
		}
		r.window = p
	}
	return r.window[off-r.from:][:n], nil
}
