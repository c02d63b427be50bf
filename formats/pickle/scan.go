package pickle

import (
	"bytes"
	"encoding/binary"
	"io"

	"ckptfs/formats"
)

// How an opcode's operand is found.
const (
	operandNone = iota
	operandLine
	operandTwoLines
	operandFixed   // + width
	operandCounted // + width of the length
)

type operand struct {
	how   uint8
	width int8
	bytes bool // a byte string
	known bool

	// how long the opcode is with its operand, if it has none or one of fixed width, and does not end the
	// pickle
	plain uint8
	mask  uint64 // of the length of one that is counted
}

// operands is the table of opcodes by what follows them.
var operands = func() (t [256]operand) {
	set := func(how uint8, width int8, ops ...byte) {
		for _, op := range ops {
			t[op] = operand{how: how, width: width, known: true}
		}
	}
	set(operandNone, 0, opMark, opStop, opPop, opPopMark, opDup, opNone, opBinPersID, opReduce, opAppend,
		opBuild, opDict,
		opEmptyDict, opAppends, opList, opEmptyList, opObj, opSetItem, opTuple, opEmptyTuple, opSetItems,
		opNewObj, opTuple1, opTuple2, opTuple3, opNewTrue, opNewFalse, opEmptySet, opAddItems, opFrozenSet,
		opNewObjEx, opStackGlobal, opMemoize, opNextBuffer,
		opReadonlyBuffer)
	set(operandLine, 0, opFloat, opInt, opLong, opPersID, opString, opUnicode, opGet, opPut)
	set(operandTwoLines, 0, opGlobal, opInst)
	set(operandFixed, 1, opBinInt1, opBinGet, opBinPut, opProto, opExt1)
	set(operandFixed, 2, opBinInt2, opExt2)
	set(operandFixed, 4, opBinInt, opLongBinGet, opLongBinPut, opExt4)
	set(operandFixed, 8, opBinFloat, opFrame)
	set(operandCounted, 1, opShortBinString, opLong1, opShortBinUnicode, opShortBinBytes)
	set(operandCounted, 4, opBinString, opBinUnicode, opLong4, opBinBytes)
	set(operandCounted, 8, opBinUnicode8, opBinBytes8, opByteArray8)
	for _, op := range []byte{opShortBinBytes, opBinBytes, opBinBytes8, opByteArray8} {
		t[op].bytes = true
	}
	for op := range t {
		x := &t[op]
		switch {
		case x.how == operandCounted:
			x.mask = 1<<(8*x.width) - 1
		case x.known && op != opStop && (x.how == operandNone || x.how == operandFixed):
			x.plain = uint8(1 + x.width)
		}
	}
	return t
}()

// scanWindow is how much Scan reads at a time, and the longest line that it takes.
const scanWindow = 64 << 10

// Scan reads the opcodes of the pickle that begins at byte off of a file of size bytes, up to its STOP, and
// returns where it ends. It builds nothing and takes 64 KiB. It calls large, if not nil, with each byte
// string of at least least bytes. Errors wrap ErrSyntax, or are the reader's or large's.
func Scan(r io.ReaderAt, off, size, least int64, large func(off, n int64) error) (end int64, err error) {
	s := scanner{r: r, next: off, size: size, buf: make([]byte, 0, scanWindow)}
	for {
		s.plain(least)
		p, err := s.need(1)
		if err != nil {
			return 0, err
		}
		op := p[0]
		s.pos++
		x := operands[op]
		if !x.known {
			return 0, syntax("unknown opcode 0x%02x", op)
		}
		switch x.how {
		case operandNone:
			if op == opStop {
				return s.at(), nil
			}
		case operandFixed:
			if _, err := s.need(int(x.width)); err != nil {
				return 0, err
			}
			s.pos += int(x.width)
		case operandLine, operandTwoLines:
			if err := s.line(); err != nil {
				return 0, err
			}
			if x.how == operandTwoLines {
				if err := s.line(); err != nil {
					return 0, err
				}
			}
		case operandCounted:
			p, err := s.need(int(x.width))
			if err != nil {
				return 0, err
			}
			var b [8]byte
			copy(b[:], p[:x.width])
			s.pos += int(x.width)
			n := binary.LittleEndian.Uint64(b[:])
			if n > uint64(size-s.at()) {
				return 0, ErrShort
			}
			if x.bytes && large != nil && int64(n) >= least {
				if err := large(s.at(), int64(n)); err != nil {
					return 0, err
				}
			}
			s.pass(int64(n))
		}
	}
}

// plain passes over the opcodes that the window has whole and of which nothing is to be said: most of them.
func (s *scanner) plain(least int64) {
	buf, pos := s.buf, s.pos
	for pos+1+8 <= len(buf) {
		x := &operands[buf[pos]]
		next := pos + int(x.plain)
		if x.plain == 0 {
			if x.how != operandCounted {
				break
			}
			n := binary.LittleEndian.Uint64(buf[pos+1:]) & x.mask
			if n > uint64(len(buf)) || x.bytes && int64(n) >= least {
				break
			}
			if next = pos + 1 + int(x.width) + int(n); next > len(buf) {
				break
			}
		}
		pos = next
	}
	s.pos = pos
}

// scanner is a window on a file.
type scanner struct {
	r    io.ReaderAt
	next int64 // offset of the byte after the window
	size int64
	buf  []byte
	pos  int
}

func (s *scanner) at() int64 { return s.next - int64(len(s.buf)-s.pos) }

// need returns what the window has from pos on, n bytes or more.
func (s *scanner) need(n int) ([]byte, error) {
	if len(s.buf)-s.pos >= n {
		return s.buf[s.pos:], nil
	}
	k := copy(s.buf[:cap(s.buf)], s.buf[s.pos:])
	more := int(min(int64(cap(s.buf)-k), s.size-s.next))
	s.buf, s.pos = s.buf[:k+more], 0
	if err := formats.ReadFull(s.r, s.buf[k:], s.next); err != nil {
		return nil, err
	}
	s.next += int64(more)
	if len(s.buf) < n {
		return nil, ErrShort
	}
	return s.buf, nil
}

func (s *scanner) line() error {
	for n := 1; ; n = len(s.buf) - s.pos + 1 {
		if n > scanWindow {
			return syntax("a line of more than %d bytes", scanWindow)
		}
		p, err := s.need(n)
		if err != nil {
			return err
		}
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			s.pos += i + 1
			return nil
		}
	}
}

func (s *scanner) pass(n int64) {
	if have := int64(len(s.buf) - s.pos); n <= have {
		s.pos += int(n)
		return
	}
	s.next = s.at() + n
	s.buf, s.pos = s.buf[:0], 0
}
