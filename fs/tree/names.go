package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNotRegular: what needs a regular file got something else.
var ErrNotRegular = errors.New("not a regular file")

// DirEntry is one name in a directory.
type DirEntry struct {
	Name string
	Ino  uint64
	Mode uint32 // S_IFMT bits
	View bool
}

// ReadNames reads a directory from its start. The kernel's records are
//
//	ino u64 | off u64 | reclen u16 | type u8 | name, zero-terminated
//
// Where the filesystem keeps no types in its directories (XFS without ftype, for example), each name is
// looked at. The Mode of one that cannot be is 0.
func ReadNames(fd int) ([]DirEntry, error) {
	p := dirBufs.Get().(*[64 << 10]byte)
	defer dirBufs.Put(p)
	buf := p[:]
	var out []DirEntry
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return out, err
		}
		for b := buf[:n]; len(b) > 19; {
			reclen := int(binary.NativeEndian.Uint16(b[16:]))
			name := b[19:reclen]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			e := DirEntry{Name: string(name), Ino: binary.NativeEndian.Uint64(b), Mode: uint32(b[18]) << 12}
			if e.Mode == 0 {
				e.Mode = typeOf(fd, e.Name)
			}
			out = append(out, e)
			b = b[reclen:]
		}
	}
}

// typeOf is the S_IFMT bits of a name in a directory; 0: it cannot be looked at.
func typeOf(fd int, name string) uint32 {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Mode & unix.S_IFMT
}

var dirBufs = sync.Pool{New: func() any { return new([64 << 10]byte) }}
