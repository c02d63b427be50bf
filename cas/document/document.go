// Package document reads what documents, of the index and of remotes, are made of. Each thing has one
// encoding, and a reader refuses every other.
//
//	magic     three letters and a digit, the version
//	number    an unsigned LEB128 varint of the fewest bytes, at most 2^63-1
//	zigzag    a signed number as an unsigned one: 0, -1, 1, -2 … are 0, 1, 2, 3 …
//	string    a number of bytes, and these
package document

import (
	"encoding/binary"
	"fmt"
	"math"

	"ckptfs/cas"
)

// Reader eats P. After the first error all reads return zero values and P is empty, so that every loop ends.
type Reader struct {
	P   []byte
	Err error  // wraps cas.ErrCorrupt, or cas.ErrNewer for a later version
	Of  string // what the document is, for errors
}

// Fail notes an error, unless there was one.
func (d *Reader) Fail(format string, args ...any) {
	if d.Err == nil {
		d.Err = fmt.Errorf("%s: %s: %w", d.Of, fmt.Sprintf(format, args...), cas.ErrCorrupt)
		d.P = nil
	}
}

// Magic reads three letters and a version's digit.
func (d *Reader) Magic(want string) {
	n := len(want) - 1
	switch got := string(d.Take(len(want))); {
	case got == want:
	case len(got) == len(want) && got[:n] == want[:n] && got[n] > want[n] && got[n] <= '9':
		d.Err = fmt.Errorf("%s: version %q: %w", d.Of, got, cas.ErrNewer)
		d.P = nil
	default:
		d.Err = nil
		d.Fail("no %s", want)
	}
}

// Take reads n bytes, which stay part of P; nil when there are fewer.
func (d *Reader) Take(n int) []byte {
	if n < 0 || n > len(d.P) {
		d.Fail("cut short")
		return nil
	}
	q := d.P[:n]
	d.P = d.P[n:]
	return q
}

// Byte reads one byte.
func (d *Reader) Byte() byte {
	if q := d.Take(1); q != nil {
		return q[0]
	}
	return 0
}

func (d *Reader) uvarint() uint64 {
	v, n := binary.Uvarint(d.P)
	if n <= 0 || n > 1 && d.P[n-1] == 0 {
		d.Fail("bad number")
		return 0
	}
	d.P = d.P[n:]
	return v
}

// Num reads a number.
func (d *Reader) Num() int64 {
	v := d.uvarint()
	if v > math.MaxInt64 {
		d.Fail("number past 2^63")
		return 0
	}
	return int64(v)
}

// Zigzag reads a signed number.
func (d *Reader) Zigzag() int64 {
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// Count reads how many items of at least size bytes follow.
func (d *Reader) Count(size int) int {
	n := d.Num()
	if n > int64(len(d.P)/size) {
		d.Fail("count %d in %d bytes", n, len(d.P))
		return 0
	}
	return int(n)
}

// String reads a string.
func (d *Reader) String() string { return string(d.Take(d.Count(1))) }

// End returns the error, which is one also when something is left.
func (d *Reader) End() error {
	if d.Err == nil && len(d.P) > 0 {
		d.Fail("%d bytes after the end", len(d.P))
	}
	return d.Err
}
