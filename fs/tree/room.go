package tree

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNoRoom: the file's other attributes leave no room for its record, while the disk has some. Many
// filesystems bound what all attributes of a file take: 4 KiB on ext4.
var ErrNoRoom = errors.New("its extended attributes leave no room for the one that ckptfs keeps of it")

// roomName is the attribute that holds a record's place while another is set. A kill may leave it behind.
// ext4 rounds names up to four bytes: this one takes what XattrName takes, and fits where a record fits.
const roomName = XattrName + ".r"

// ample is how much of attributes, in bytes, leaves room on every filesystem: the least has 1 KiB.
const ample = 512

// KeepRoom calls set, which sets an attribute, with a name and a value of so many bytes, of the regular file
// at path, such that a record fits afterwards as well. ENOSPC or EDQUOT when it would not. It costs two
// system calls of a file with few attributes. The caller sees to it that they change nowhere else.
func KeepRoom(path string, bytes int, set func() error) error {
	if k, err := unix.Getxattr(path, XattrName, nil); err == nil && k >= RecordSize {
		return set()
	}
	if attributes(path, ample-bytes) <= ample-bytes {
		return set()
	}
	switch err := unix.Setxattr(path, roomName, make([]byte, RecordSize), 0); err {
	case nil:
		defer unix.Removexattr(path, roomName)
	case unix.ENOSPC, unix.EDQUOT, unix.E2BIG:
		return err
	}
	return set()
}

// attributes is about what the attributes of a file take, in bytes, or something over enough.
func attributes(path string, enough int) int {
	var names [ample]byte
	if enough < 0 {
		return 0
	}
	k, err := unix.Listxattr(path, names[:])
	if err != nil { // ERANGE: there are many
		return enough + 1
	}
	sum := 0
	for name := range bytes.SplitSeq(names[:k], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		const entry = 32 // what a filesystem keeps of one besides, at most
		n, err := unix.Getxattr(path, string(name), nil)
		if sum += entry + len(name) + max(n, 0); sum > enough || err != nil {
			return enough + 1
		}
	}
	return sum
}

// full is err of a record that was not written, or ErrNoRoom if that is why.
func full(path string, err error) error {
	if err != unix.ENOSPC && err != unix.EDQUOT && err != unix.E2BIG || attributes(path, ample) <= ample {
		return err
	}
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil || st.Bfree < 64 {
		return err
	}
	return fmt.Errorf("%w (getfattr -d names them, setfattr -x removes one): %w", ErrNoRoom, err)
}
