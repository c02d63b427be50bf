package tree

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// ReserveFile is room that a store keeps for itself: a start needs some for its socket and its index, and a
// sweep for the index and the footers of segments. Neither must fail on a disk that is full.
const ReserveFile = "reserve"

const (
	reserveSize = 8 << 20
	reservePart = 64 // at most this part of the disk
)

// Reserve keeps the reserve of the store in d, or gives it up if the disk is full, which it reports. That
// it cannot be made is no error.
func Reserve(d *disk.Folder) (full bool, err error) {
	free, size, err := reckon(d)
	if err != nil {
		return false, err
	}
	if free < size {
		_, err := FreeReserve(d)
		return true, err
	} else if free < 4*size {
		return false, nil // not worth the last of it
	}
	take(d, size)
	return false, nil
}

// RetakeReserve takes back what FreeReserve freed, as far as it is free.
func RetakeReserve(d *disk.Folder) {
	if free, size, err := reckon(d); err == nil && free > 0 {
		take(d, min(free, size))
	}
}

// take makes the file, if there is room for it.
func take(d *disk.Folder, size int64) {
	if st, err := d.Lstat(ReserveFile); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size >= size {
		return
	}
	f, err := NewFile(d, ReserveFile)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), 0, 0, size) != nil {
		_ = d.Remove(ReserveFile)
	}
}

// FreeReserve gives the reserve up if the disk is full, and reports whether there was one.
func FreeReserve(d *disk.Folder) (gave bool, err error) {
	free, size, err := reckon(d)
	if err != nil || free >= size {
		return false, err
	}
	err = d.Remove(ReserveFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// reckon is what is free on the disk, and how much of it a reserve is.
func reckon(d *disk.Folder) (free, size int64, err error) {
	st, err := d.StatFS()
	if err != nil {
		return 0, 0, err
	}
	// Not Bfree, also for root: ext4 counts as free what it gives to no process.
	return int64(st.Bavail) * st.Bsize, min(reserveSize, int64(st.Blocks)*st.Bsize/reservePart), nil
}
