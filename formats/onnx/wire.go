package onnx

import (
	"encoding/binary"
	"io"
)

// The wire types of protobuf.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// field is one of a message. The cursor is behind its tag, and behind its value unless that is bytes.
type field struct {
	number uint64
	wire   uint64
	value  uint64 // of a varint
	len    int64  // of bytes
}

// fields calls each with the fields up to offset end, and goes on behind each of them.
func (m *model) fields(end int64, each func(field) error) error {
	for m.Offset() < end {
		tag, err := m.varint()
		if err != nil {
			return err
		}
		f := field{number: tag >> 3, wire: tag & 7}
		if f.number == 0 || f.number > 1<<29-1 {
			return reject("field %d", f.number)
		}
		switch f.wire {
		case wireVarint:
			if f.value, err = m.varint(); err != nil {
				return err
			}
		case wire64:
			f.len = 8
		case wire32:
			f.len = 4
		case wireBytes:
			n, err := m.varint()
			if err != nil {
				return err
			}
			if n > uint64(end) {
				return io.EOF
			}
			f.len = int64(n)
		default:
			return reject("wire type %d", f.wire)
		}
		next := m.Offset() + f.len
		if next > end {
			return io.EOF
		}
		if err := each(f); err != nil {
			return err
		}
		m.Pass(next - m.Offset())
	}
	return nil
}

// in calls each with the fields of a message that is a field.
func (m *model) in(f field, each func(field) error) error {
	if f.wire != wireBytes {
		return reject("field %d is no message", f.number)
	}
	return m.fields(m.Offset()+f.len, each)
}

// varint reads a number.
func (m *model) varint() (uint64, error) {
	p, err := m.Peek(binary.MaxVarintLen64)
	if err == io.EOF { // near the end of the file
		p, err = m.Peek(1)
	}
	if err != nil {
		return 0, err
	}
	v, n := binary.Uvarint(p[:min(len(p), binary.MaxVarintLen64)])
	if n <= 0 {
		return 0, reject("a number")
	}
	m.Pass(int64(n))
	return v, nil
}
