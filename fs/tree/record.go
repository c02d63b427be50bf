package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

// RecordSize is the length in bytes of an encoded Record.
const RecordSize = 64

const recordVersion = 2

const (
	flagPacked     = 1
	flagViewHidden = 2
	flagHollow     = 4
	flagEmptying   = 8
	flagLiteral    = 16
	flagRemote     = 32
	flagSummed     = 64
	flagLost       = 128
)

// Record is what the store knows of a file. The zero Record is that of a plain file, which has none.
type Record struct {
	Manifest   cas.Hash // zero unless packed
	Mtime      int64    // of a packed file or one with a checksum, nanoseconds since 1970
	Ctime      int64    // likewise; 0: the inode's own
	ViewSize   int64    // bytes of the safetensors view of a packed file, 0 without one
	ViewHidden bool     // the view's name was unlinked
	Hollow     bool     // a packed file that is not resident
	Remote     bool     // a packed file that is read from a remote where the store does not have it
	Emptying   bool     // the file is empty, whatever its bytes
	Literal    bool     // a plain file that looks like a hollow one
	Lost       bool     // the disk did not take all that was written to the file
	Summed     bool     // a plain file with a checksum; else the next three are zero
	Sum        cas.Hash // of its bytes
	Size       uint32   // their number
	Epoch      uint32   // of the store when it was made; see Lock.Epoch
}

// Packed reports whether the file's bytes are in the segments.
func (r *Record) Packed() bool { return !r.Manifest.IsZero() }

// ErrNoRecord: the file has no user.ckptfs attribute.
var ErrNoRecord = errors.New("no ckptfs record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Nanoseconds is a time as records keep it; false when it is out of their range, the years 1678 to 2261.
func Nanoseconds(t unix.Timespec) (int64, bool) {
	const most = math.MaxInt64/1_000_000_000 - 1
	if t.Sec > most || t.Sec < -most {
		return 0, false
	}
	return t.Sec*1_000_000_000 + t.Nsec, true
}

func (r *Record) flags() byte {
	var b byte
	for _, f := range []struct {
		set bool
		bit byte
	}{
		{r.Packed(), flagPacked}, {r.ViewHidden, flagViewHidden}, {r.Hollow, flagHollow},
		{r.Emptying, flagEmptying}, {r.Literal, flagLiteral}, {r.Remote, flagRemote},
		{r.Summed, flagSummed}, {r.Lost, flagLost},
	} {
		if f.set {
			b |= f.bit
		}
	}
	return b
}

// valid reports whether the fields fit together.
func (r *Record) valid() bool {
	if r.Packed() {
		return r.ViewSize >= 0 && !r.Emptying && !r.Literal && !r.Summed
	}
	if r.Summed {
		return !r.Hollow && !r.Emptying && !r.Lost && !r.Remote
	}
	return !r.Remote && r.Mtime == 0 && r.Ctime == 0 && r.ViewSize == 0 && !r.Hollow &&
		!(r.Emptying && r.Lost) && *r != Record{}
}

// Encode writes the record in the form that the package comment draws.
func (r *Record) Encode() [RecordSize]byte {
	var b [RecordSize]byte
	b[0], b[1] = recordVersion, r.flags()
	binary.LittleEndian.PutUint64(b[8:], uint64(r.Mtime))
	binary.LittleEndian.PutUint64(b[16:], uint64(r.Ctime))
	if r.Summed {
		copy(b[24:56], r.Sum[:])
		binary.LittleEndian.PutUint32(b[56:], r.Size)
		binary.LittleEndian.PutUint32(b[60:], r.Epoch)
	} else {
		copy(b[24:56], r.Manifest[:])
		binary.LittleEndian.PutUint64(b[56:], uint64(r.ViewSize))
	}
	binary.LittleEndian.PutUint32(b[4:], recordSum(b[:]))
	return b
}

// DecodeRecord reads a record; an error wraps cas.ErrCorrupt or cas.ErrNewer.
func DecodeRecord(b []byte) (Record, error) {
	var r Record
	if len(b) == 0 {
		return r, fmt.Errorf("record: empty: %w", cas.ErrCorrupt)
	}
	if b[0] > recordVersion {
		return r, fmt.Errorf("record: version %d: %w", b[0], cas.ErrNewer)
	}
	if len(b) != RecordSize || b[0] != recordVersion {
		return r, fmt.Errorf("record: version %d, %d bytes: %w", b[0], len(b), cas.ErrCorrupt)
	}
	if binary.LittleEndian.Uint32(b[4:]) != recordSum(b) {
		return r, fmt.Errorf("record: checksum: %w", cas.ErrCorrupt)
	}
	r.Mtime = int64(binary.LittleEndian.Uint64(b[8:]))
	r.Ctime = int64(binary.LittleEndian.Uint64(b[16:]))
	if r.Summed = b[1]&flagSummed != 0; r.Summed {
		copy(r.Sum[:], b[24:56])
		r.Size = binary.LittleEndian.Uint32(b[56:])
		r.Epoch = binary.LittleEndian.Uint32(b[60:])
	} else {
		copy(r.Manifest[:], b[24:56])
		r.ViewSize = int64(binary.LittleEndian.Uint64(b[56:]))
	}
	r.ViewHidden = b[1]&flagViewHidden != 0
	r.Hollow = b[1]&flagHollow != 0
	r.Emptying = b[1]&flagEmptying != 0
	r.Remote = b[1]&flagRemote != 0
	r.Literal = b[1]&flagLiteral != 0
	r.Lost = b[1]&flagLost != 0
	if r.flags() != b[1] || !r.valid() || b[2]|b[3] != 0 {
		return Record{}, fmt.Errorf("record: contradicts itself: %w", cas.ErrCorrupt)
	}
	return r, nil
}

func recordSum(b []byte) uint32 {
	sum := crc32.Update(0, castagnoli, b[:4])
	return crc32.Update(sum, castagnoli, b[8:])
}

// ReadRecord reads the record of the regular file at path. ErrNoRecord when it has none.
func ReadRecord(path string) (Record, error) {
	return readRecord(func() string { return path }, func(b []byte) (int, error) {
		return unix.Getxattr(path, XattrName, b)
	})
}

// readRecord is ReadRecord where read reads the attribute.
func readRecord(path func() string, read func(b []byte) (int, error)) (Record, error) {
	var b [RecordSize + 1]byte
	n, err := read(b[:])
	if err == unix.EACCES {
		err = WithOwnerBits(path(), func() (err error) {
			n, err = read(b[:])
			return err
		})
	}
	switch err {
	case nil:
		return DecodeRecord(b[:n])
	case unix.ENODATA:
		return Record{}, ErrNoRecord
	case unix.ERANGE:
		return Record{}, fmt.Errorf("record: over %d bytes: %w", RecordSize, cas.ErrNewer)
	}
	return Record{}, fmt.Errorf("record: %w", err)
}

// WriteRecord sets the record of the regular file at path; that of a plain file is taken away. ErrNoRoom when
// the file's other attributes leave no room.
func WriteRecord(path string, r *Record) error {
	set := func() error {
		if *r == (Record{}) {
			if err := unix.Removexattr(path, XattrName); err != unix.ENODATA {
				return err
			}
			return nil
		}
		b := r.Encode()
		return unix.Setxattr(path, XattrName, b[:], 0)
	}
	err := set()
	if err == unix.EACCES {
		err = WithOwnerBits(path, set)
	}
	if err != nil && unix.Removexattr(path, roomName) == nil {
		err = set()
	}
	if err != nil {
		return fmt.Errorf("write record: %w", full(path, err))
	}
	return nil
}
