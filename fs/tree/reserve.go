package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ReserveFile is room that a store keeps for itself: a start needs some for its socket and its index, and must not fail on
// a disk that is full.
const ReserveFile = "reserve"

const (
	reserveSize = 8 << 20
	reservePart = 64 // at most this part of the disk
)

// Reserve keeps the reserve of the store in dir, or gives it up if the disk is full, which it reports. That it cannot be
// made is no error.
func Reserve(dir string) (full bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, err
	}
	avail := int64(st.Bavail)
	if os.Geteuid() == 0 {
		avail = int64(st.Bfree)
	}
	size := min(reserveSize, int64(st.Blocks)*st.Bsize/reservePart)
	path := filepath.Join(dir, ReserveFile)
	if free := avail * st.Bsize; free < size {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return true, err
	} else if free < 4*size {
		return false, nil // not worth the last of it
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), 0, 0, size) != nil {
		_ = os.Remove(path)
	}
	return false, nil
}
