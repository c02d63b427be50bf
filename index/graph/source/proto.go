package source

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"ckptfs/index/graph"
)

// proto reads protobuf messages in a file, field by field, without the bytes of fields that nobody asks for.
type proto struct {
	r    io.ReaderAt
	left int64 // bytes that may still be read

	window [4096]byte // the last bytes read, from
	from   int64
	have   int
}

// protoSpan is the bytes [off, end) of the file.
type protoSpan struct{ off, end int64 }

// protoField is one field: a number by its value, anything else by where it is.
type protoField struct {
	number int
	wire   int
	value  uint64
	span   protoSpan
}

func (f *protoField) bytes() bool { return f.wire == 2 }

func (p *proto) spend(n int64) error {
	if p.left -= n; p.left < 0 {
		return fmt.Errorf("more than %d bytes besides weights: %w", MaxSource, graph.ErrInvalid)
	}
	return nil
}

func (p *proto) byte(off int64) (byte, error) {
	if off < p.from || off >= p.from+int64(p.have) {
		n, err := p.r.ReadAt(p.window[:], off)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		p.from, p.have = off, n
	}
	return p.window[off-p.from], nil
}

func (p *proto) varint(s *protoSpan) (uint64, error) {
	v := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		if s.off >= s.end {
			return 0, fmt.Errorf("cut short: %w", graph.ErrInvalid)
		}
		if err := p.spend(1); err != nil {
			return 0, err
		}
		c, err := p.byte(s.off)
		if err != nil {
			return 0, err
		}
		s.off++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("a number of more than 64 bits: %w", graph.ErrInvalid)
}

func (p *proto) fixed(s *protoSpan, n int) (v uint64, err error) {
	if s.end-s.off < int64(n) {
		return 0, fmt.Errorf("cut short: %w", graph.ErrInvalid)
	}
	if err := p.spend(int64(n)); err != nil {
		return 0, err
	}
	for i := range n {
		c, err := p.byte(s.off)
		if err != nil {
			return 0, err
		}
		s.off++
		v |= uint64(c) << (8 * i)
	}
	return v, nil
}

// number reads a number of a wire type: 0, 1 or 5.
func (p *proto) number(s *protoSpan, wire int) (uint64, error) {
	switch wire {
	case 1:
		return p.fixed(s, 8)
	case 5:
		return p.fixed(s, 4)
	}
	return p.varint(s)
}

// fields calls f for each field of the message in s.
func (p *proto) fields(s protoSpan, f func(protoField) error) error {
	for s.off < s.end {
		key, err := p.varint(&s)
		if err != nil {
			return err
		}
		x := protoField{wire: int(key & 7)}
		if key>>3 == 0 || key>>3 > 1<<29-1 {
			return fmt.Errorf("field %d: %w", key>>3, graph.ErrInvalid)
		}
		x.number = int(key >> 3)
		switch x.wire {
		case 0, 1, 5:
			if x.value, err = p.number(&s, x.wire); err != nil {
				return err
			}
		case 2:
			n, err := p.varint(&s)
			if err != nil {
				return err
			}
			if n > uint64(s.end-s.off) {
				return fmt.Errorf("field %d of %d bytes, %d are left: %w", x.number, n, s.end-s.off, graph.ErrInvalid)
			}
			x.span = protoSpan{s.off, s.off + int64(n)}
			s.off += int64(n)
		default:
			return fmt.Errorf("field %d of wire type %d: %w", x.number, x.wire, graph.ErrInvalid)
		}
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

// path calls f for the fields of each message in field number of s.
func (p *proto) path(s protoSpan, number int, f func(protoField) error) error {
	return p.fields(s, func(x protoField) error {
		if x.number != number || !x.bytes() {
			return nil
		}
		empty := x.span.off == x.span.end
		if empty {
			return f(protoField{})
		}
		return p.fields(x.span, f)
	})
}

// numbers calls f for the numbers of a repeated field, packed or not.
func (p *proto) numbers(x protoField, wire int, f func(uint64)) error {
	if !x.bytes() {
		f(x.value)
		return nil
	}
	for s := x.span; s.off < s.end; {
		v, err := p.number(&s, wire)
		if err != nil {
			return err
		}
		f(v)
	}
	return nil
}

// read is the bytes of a field.
func (p *proto) read(s protoSpan) ([]byte, error) {
	if err := p.spend(s.end - s.off); err != nil {
		return nil, err
	}
	out := make([]byte, s.end-s.off)
	if n, err := p.r.ReadAt(out, s.off); n < len(out) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return out, nil
}

func (p *proto) string(s protoSpan) (string, error) {
	b, err := p.read(s)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("a name that is not UTF-8: %w", graph.ErrInvalid)
	}
	return string(b), err
}
