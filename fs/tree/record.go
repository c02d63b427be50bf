package tree

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

// RecordSize is the length in bytes of an encoded Record.
const RecordSize = 64

const recordVersion = 1

const (
	flagPacked     = 1
	flagViewHidden = 2
)

// ID names a content file. It is random, never reused, and no part of the file's identity.
type ID [16]byte

// String is the id in hex, 32 characters, as content files are named.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// Record is what a stub's attribute holds.
type Record struct {
	ID         ID
	Manifest   cas.Hash // zero unless packed
	ViewSize   int64    // bytes of the safetensors view, 0 without one
	ViewHidden bool     // the view's name was unlinked
}

// Packed reports whether the file's bytes are in the segments.
func (r *Record) Packed() bool { return !r.Manifest.IsZero() }

// ErrNoRecord: the file has no user.ckptfs attribute.
var ErrNoRecord = errors.New("no ckptfs record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes the record in the form that the package comment draws.
func (r *Record) Encode() [RecordSize]byte {
	var b [RecordSize]byte
	b[0] = recordVersion
	if r.Packed() {
		b[1] |= flagPacked
	}
	if r.ViewHidden {
		b[1] |= flagViewHidden
	}
	copy(b[8:24], r.ID[:])
	copy(b[24:56], r.Manifest[:])
	binary.LittleEndian.PutUint64(b[56:], uint64(r.ViewSize))
	binary.LittleEndian.PutUint32(b[4:], recordSum(b[:]))
	return b
}

// DecodeRecord reads a record; an error wraps cas.ErrCorrupt or cas.ErrNewer.
func DecodeRecord(b []byte) (Record, error) {
	var r Record
	if len(b) == 0 {
		return r, fmt.Errorf("stub record: empty: %w", cas.ErrCorrupt)
	}
	if b[0] > recordVersion {
		return r, fmt.Errorf("stub record: version %d: %w", b[0], cas.ErrNewer)
	}
	if len(b) != RecordSize || b[0] != recordVersion {
		return r, fmt.Errorf("stub record: version %d, %d bytes: %w", b[0], len(b), cas.ErrCorrupt)
	}
	if binary.LittleEndian.Uint32(b[4:]) != recordSum(b) {
		return r, fmt.Errorf("stub record: checksum: %w", cas.ErrCorrupt)
	}
	copy(r.ID[:], b[8:24])
	copy(r.Manifest[:], b[24:56])
	r.ViewSize = int64(binary.LittleEndian.Uint64(b[56:]))
	r.ViewHidden = b[1]&flagViewHidden != 0
	if r.Packed() != (b[1]&flagPacked != 0) || r.ViewSize < 0 || r.ID.IsZero() || b[1]&^3 != 0 || b[2]|b[3] != 0 {
		return Record{}, fmt.Errorf("stub record: contradicts itself: %w", cas.ErrCorrupt)
	}
	return r, nil
}

func recordSum(b []byte) uint32 {
	sum := crc32.Update(0, castagnoli, b[:4])
	return crc32.Update(sum, castagnoli, b[8:])
}

// ReadRecord reads the record of the regular file at path. ErrNoRecord when it has none.
func ReadRecord(path string) (Record, error) {
	var b [RecordSize + 1]byte
	n, err := unix.Getxattr(path, XattrName, b[:])
	if err == unix.EACCES {
		err = withOwnerBits(path, func() (err error) {
			n, err = unix.Getxattr(path, XattrName, b[:])
			return err
		})
	}
	return decodeXattr(b[:], n, err)
}

// ReadRecordFd is ReadRecord on an open file.
func ReadRecordFd(fd int) (Record, error) {
	var b [RecordSize + 1]byte
	n, err := unix.Fgetxattr(fd, XattrName, b[:])
	return decodeXattr(b[:], n, err)
}

func decodeXattr(b []byte, n int, err error) (Record, error) {
	switch err {
	case nil:
		return DecodeRecord(b[:n])
	case unix.ENODATA:
		return Record{}, ErrNoRecord
	case unix.ERANGE:
		return Record{}, fmt.Errorf("stub record: over %d bytes: %w", RecordSize, cas.ErrNewer)
	}
	return Record{}, fmt.Errorf("stub record: %w", err)
}

// WriteRecord sets the record of the regular file at path.
func WriteRecord(path string, r *Record) error {
	b := r.Encode()
	set := func() error { return unix.Setxattr(path, XattrName, b[:], 0) }
	err := set()
	if err == unix.EACCES {
		err = withOwnerBits(path, set)
	}
	return wrapRecord(err)
}

// withOwnerBits runs f while the owner of path may read and write it: a daemon without privileges may not touch the
// attributes of a file whose mode denies its owner.
func withOwnerBits(path string, f func() error) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	mode := st.Mode & 0o7777
	if mode&0o600 == 0o600 {
		return unix.EACCES
	}
	if err := unix.Chmod(path, mode|0o600); err != nil {
		return err
	}
	err := f()
	if cerr := unix.Chmod(path, mode); err == nil {
		err = cerr
	}
	return err
}

// WriteRecordFd is WriteRecord on a file just made and still open.
func WriteRecordFd(fd int, r *Record) error {
	b := r.Encode()
	return wrapRecord(unix.Fsetxattr(fd, XattrName, b[:], 0))
}

func wrapRecord(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write stub record: %w", err)
}

func parseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("%q is no id", s)
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err
}
