package segment

import (
	"bytes"
	"hash/crc32"
	"io"
)

// scanBuffer is how much of a segment a Scanner holds. It bounds its memory whatever the file says.
const scanBuffer = 1 << 20

// A damaged payload is searched for records from its header on, since the header may be what is left of a
// write that failed, with good records behind it. A crash leaves few of these. A forged file may be made of
// them, and each costs its length. When that adds up to maxWaste, and to so many times the segment, headers
// are believed.
const (
	maxWaste      = 256 << 20
	maxWasteTimes = 4
)

// Scanner finds the records of a segment by reading it, payloads and all. Where there is no valid record it
// looks for the next one, at every multiple of 8: a record ties itself to its place, so none is found that
// was not written there. Blocks that the disk does not read are passed over, and no record lies in them.
//
//	for s.Next() {
//		if s.Gap() … // no valid record in s.Range(), but one behind it
//		else …       // s.Record()
//	}
//	if s.Err() != nil …
//	s.Tail() // no valid record from here on: what a crash tore, a footer, or nothing
type Scanner struct {
	f    io.ReaderAt
	size int64
	id   ID

	buf   []byte
	start int64 // buf holds [start, start+len(buf)) of the file
	end   int64 // of the last record or gap handed out
	rec   Record
	next  *Record // found behind a gap, to be handed out after it
	gap   Range
	isGap bool
	zero  bool  // the gap is all zeros
	waste int64 // bytes read in vain for payloads that did not match
	err   error
	holes holes
}

// NewScanner scans the first size bytes of f from off, where a record starts, or from the first record if off
// is 0.
func NewScanner(f io.ReaderAt, size int64, id ID, off int64) *Scanner {
	return &Scanner{f: f, size: size, id: id, end: max(roundUp(off), FileHeaderSize)}
}

// Next moves to the next record or gap. It returns false at the end and on an error of reading.
func (s *Scanner) Next() bool {
	if s.err != nil {
		return false
	}
	if s.next != nil {
		s.rec, s.next, s.isGap = *s.next, nil, false
		s.end = s.rec.End()
		return true
	}
	from := s.end
	for off := from; ; {
		ok, err := s.valid(off)
		if err != nil {
			s.err = err
			return false
		}
		if ok {
			if off == from {
				s.isGap = false
				s.end = s.rec.End()
				return true
			}
			r := s.rec
			s.next = &r
			s.gap, s.isGap = Range{from, off}, true
			s.end = off
			s.zero, s.err = s.zeros(s.gap)
			return s.err == nil
		}
		next := off + align
		if s.rec.Off == off && s.waste > max(maxWaste, maxWasteTimes*s.size) {
			next = s.rec.End()
		}
		if off = s.candidate(next); off < 0 {
			return false
		}
	}
}

// Gap reports whether Next has found a gap rather than a record.
func (s *Scanner) Gap() bool { return s.isGap }

// Record is the record that Next has found, valid until the next call.
func (s *Scanner) Record() *Record { return &s.rec }

// Range is where the gap lies that Next has found. zero: it holds nothing but zeros, as a range does that was
// reserved and never written.
func (s *Scanner) Range() (r Range, zero bool) { return s.gap, s.zero }

// Tail is the end of the last record so far.
func (s *Scanner) Tail() int64 { return s.end }

// Err is the error of reading that ended the scan, if one did.
func (s *Scanner) Err() error { return s.err }

// Unread says what the disk did not read so far, with the first error that it gave; see disk.Unreadable.
func (s *Scanner) Unread() error { return s.holes.unread() }

// Holed reports whether the disk did not read all of r.
func (s *Scanner) Holed(r Range) bool { return s.holes.in(r) }

// valid reports whether a valid record lies at off, and leaves it in s.rec.
func (s *Scanner) valid(off int64) (bool, error) {
	if off > s.size-RecordHeaderSize {
		return false, nil
	}
	p, err := s.at(off, RecordHeaderSize)
	if err != nil {
		return false, err
	}
	from := off
	if s.rec.parse(p, s.id, off) != nil || off+RecordHeaderSize+int64(s.rec.Stored) > s.size {
		s.rec.Off = -1
		return false, nil
	}
	sum := uint32(0)
	off += RecordHeaderSize
	for left := int64(s.rec.Stored); left > 0; {
		p, err := s.at(off, 1)
		if err != nil {
			return false, err
		}
		p = p[:min(int64(len(p)), left)]
		sum = crc32.Update(sum, castagnoli, p)
		off += int64(len(p))
		left -= int64(len(p))
	}
	if sum != s.rec.CRC || s.holes.in(Range{from, off}) {
		s.waste += int64(s.rec.Stored) + int64(cap(s.buf))
		return false, nil
	}
	return true, nil
}

// candidate finds the next multiple of 8 from off at which a record may start, or -1. A read error sets
// s.err.
func (s *Scanner) candidate(off int64) int64 {
	for off <= s.size-RecordHeaderSize {
		p, err := s.at(off, RecordHeaderSize)
		if err != nil {
			s.err = err
			return -1
		}
		i := bytes.Index(p, recordMagic[:])
		if i < 0 {
			// A magic may lie across the buffer's end.
			off += roundUp(int64(len(p)) - int64(len(recordMagic)) + 1 - (align - 1))
			continue
		}
		if i%align == 0 {
			return off + int64(i)
		}
		off += roundUp(int64(i))
	}
	return -1
}

func (s *Scanner) zeros(r Range) (bool, error) {
	if s.holes.in(r) {
		return false, nil
	}
	for off := r.Off; off < r.End; {
		p, err := s.at(off, 1)
		if err != nil {
			return false, err
		}
		p = p[:min(int64(len(p)), r.End-off)]
		for _, b := range p {
			if b != 0 {
				return false, nil
			}
		}
		off += int64(len(p))
	}
	return true, nil
}

// at returns what is buffered from off, at least n bytes of it; off+n must not lie past the end of the file.
func (s *Scanner) at(off int64, n int) ([]byte, error) {
	if i := off - s.start; i >= 0 && i+int64(n) <= int64(len(s.buf)) {
		return s.buf[i:], nil
	}
	if s.buf == nil {
		s.buf = make([]byte, min(scanBuffer, s.size))
	}
	s.buf = s.buf[:cap(s.buf)]
	s.buf = s.buf[:min(int64(len(s.buf)), s.size-off)]
	s.start = off
	if err := s.holes.fill(s.f, s.buf, off); err != nil {
		s.buf = s.buf[:0]
		return nil, err
	}
	return s.buf, nil
}
