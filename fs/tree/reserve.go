package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ReserveFile is room that a store keeps for itself: a start needs some for its socket and its index, and a
// sweep for the index and the footers of segments. Neither must fail on a disk that is full.
const ReserveFile = "reserve"

const (
	reserveSize = 8 << 20
	reservePart = 64 // at most this part of the disk
)

// Reserve keeps the reserve of the store in dir, or gives it up if the disk is full, which it reports. That
// it cannot be made is no error.
func Reserve(dir string) (full bool, err error) {
	free, size, err := reckon(dir)
	if err != nil {
		return false, err
	}
	if free < size {
		_, err := FreeReserve(dir)
		return true, err
	} else if free < 4*size {
		return false, nil // not worth the last of it
	}
	take(dir, size)
	return false, nil
}

// RetakeReserve takes back what FreeReserve freed, as far as it is free.
func RetakeReserve(dir string) {
	if free, size, err := reckon(dir); err == nil && free > 0 {
		take(dir, min(free, size))
	}
}

// take makes the file, if there is room for it.
func take(dir string, size int64) {
	path := filepath.Join(dir, ReserveFile)
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() >= size {
		return
	}
	f, err := NewFile(path)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), 0, 0, size) != nil {
		_ = os.Remove(path)
	}
}

// FreeReserve gives the reserve up if the disk is full, and reports whether there was one.
func FreeReserve(dir string) (gave bool, err error) {
	free, size, err := reckon(dir)
	if err != nil || free >= size {
		return false, err
	}
	err = os.Remove(filepath.Join(dir, ReserveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// reckon is what is free on the disk, and how much of it a reserve is.
func reckon(dir string) (free, size int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	// Not Bfree, also for root: ext4 counts as free what it gives to no process.
	return int64(st.Bavail) * st.Bsize, min(reserveSize, int64(st.Blocks)*st.Bsize/reservePart), nil
}
