package pickle

import (
	"errors"
	"io"

	"ckptfs/formats"
)

// File is a pickle that lies in a file, and how to read it without its bulk.
type File struct {
	R         io.ReaderAt
	Off, Size int64 // of the pickle's first byte; of the file

	// Large is the length from which on a byte string stays in the file and is a Raw.
	Large int64
	// Built, if not nil, is called after each BUILD with the object and the file's offset of the next byte.
	// It returns how many bytes to pass over before the next opcode: joblib writes arrays there.
	Built func(v Value, at int64) (skip int64, err error)
	// Buffer bounds the bytes of the pickle that are kept, which are all but the Raws and what Built passes
	// over.
	Buffer int
}

// input is where a machine's data comes from.
type input struct {
	File
	next int64 // offset of the byte after the data that was read
}

// readAhead is how much is read at a time.
const readAhead = 32 << 10

// ParseFile reads one pickle, up to its STOP, and returns where that ends. Errors wrap ErrSyntax or ErrLimit,
// or are the reader's or Built's.
func ParseFile(f File, lim Limits) (p *Pickle, end int64, err error) {
	m := machine{Pickle: &Pickle{}, lim: lim, in: &input{File: f, next: f.Off}}
	if p, err = m.run(); err != nil {
		return nil, 0, err
	}
	return p, m.at(), nil
}

// at is the file's offset of the next byte.
func (m *machine) at() int64 { return m.in.next - int64(len(m.data)-m.pos) }

// left is how many bytes of input there are from here on, at most.
func (m *machine) left() int64 {
	if m.in == nil {
		return int64(len(m.data) - m.pos)
	}
	return m.in.Size - m.at()
}

// need sees to it that data has n bytes from pos on.
func (m *machine) need(n int) error {
	have := len(m.data) - m.pos
	if n <= have {
		return nil
	}
	if m.in == nil || int64(n-have) > m.in.Size-m.in.next {
		return ErrShort
	}
	more := int(min(m.in.Size-m.in.next, max(readAhead, int64(n-have))))
	if len(m.data)+more > m.in.Buffer {
		more = n - have
		if len(m.data)+more > m.in.Buffer {
			return limit("bytes", m.in.Buffer)
		}
	}
	old := len(m.data)
	if cap(m.data) < old+more {
		grown := make([]byte, old, max(2*cap(m.data), old+more))
		copy(grown, m.data)
		m.data = grown
	}
	m.data = m.data[:old+more]
	if err := formats.ReadFull(m.in.R, m.data[old:], m.in.next); err != nil {
		m.data = m.data[:old]
		return err
	}
	m.in.next += int64(more)
	return nil
}

// pass moves on by n bytes of the file without keeping them.
func (m *machine) pass(n int64) error {
	at := m.at()
	if n < 0 || n > m.in.Size-at {
		return ErrShort
	}
	if have := int64(len(m.data) - m.pos); n <= have { // keep what was read ahead
		m.data = append(m.data[:m.pos], m.data[m.pos+int(n):]...)
		return nil
	}
	m.data = m.data[:m.pos]
	m.in.next = at + n
	return nil
}

// pushBytes reads a length of width bytes and a byte string of that length.
func (m *machine) pushBytes(width int) error {
	n, err := m.number(width)
	if err != nil {
		return err
	}
	if n > uint64(m.left()) {
		return ErrShort
	}
	if int64(n) >= m.in.Large {
		ref := node{kind: Raw, a: uint64(m.at()), b: n}
		if err := m.pass(int64(n)); err != nil {
			return err
		}
		return m.pushNode(ref)
	}
	if err := m.need(int(n)); err != nil {
		return err
	}
	m.pos += int(n)
	return m.pushNode(node{kind: Bytes, a: uint64(makeSpan(m.pos-int(n), int(n)))})
}

// built tells Built of the object on top of the stack.
func (m *machine) built() error {
	if m.in == nil || m.in.Built == nil {
		return nil
	}
	ref, err := m.top()
	if err != nil {
		return err
	}
	n, err := m.in.Built(Value{m.Pickle, ref}, m.at())
	if err != nil || n == 0 {
		return err
	}
	return m.pass(n)
}

// IsParse reports whether err is one of a pickle that can't be read, rather than the reader's.
func IsParse(err error) bool { return errors.Is(err, ErrSyntax) || errors.Is(err, ErrLimit) }
