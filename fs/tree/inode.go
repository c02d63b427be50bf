package tree

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// ErrInUse: another process has the file open or mapped.
var ErrInUse = errors.New("open or mapped")

// ErrNoLease: the filesystem, or the process's privileges, do not allow to find out whether a file is in use.
var ErrNoLease = errors.New("no leases here")

// Alone takes an exclusive lease on the open file fd, which must be open for writing, and gives it back by
// release. ErrInUse when any other descriptor or mapping of the file lives, in this process or another. While
// the lease is held no process gets one.
func Alone(fd int) (release func(), err error) { return lease(fd, unix.F_WRLCK) }

// NoWriters takes a shared lease on the open file fd, which must be open for reading only, and gives it back
// at once. ErrInUse when a process has the file open or mapped for writing.
func NoWriters(fd int) error {
	release, err := lease(fd, unix.F_RDLCK)
	if err == nil {
		release()
	}
	return err
}

func lease(fd, kind int) (release func(), err error) {
	switch _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, kind); err {
	case nil:
		return func() { unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK) }, nil
	case unix.EAGAIN:
		return nil, ErrInUse
	default:
		return nil, fmt.Errorf("%w: %w", ErrNoLease, err)
	}
}

// HollowOut frees the blocks of the open file fd and writes the header. The record says
// hollow already, but the disk may not: no byte of the old blocks changes, and the filesystem gives them to
// others only once its journal has the record. No process uses the file. The inode's times move.
func HollowOut(fd int, h *Header) error {
	if err := punch(fd, h.Size); err != nil {
		return err
	}
	b := h.Encode()
	if n, err := unix.Pwrite(fd, b[:], 0); err != nil || n < len(b) {
		return fmt.Errorf("write header: %d bytes: %w", n, err)
	}
	return nil
}

// Punch makes one hole of the open file fd, which keeps its size.
func Punch(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == 0 {
		return err
	}
	return punch(fd, st.Size)
}

// maxBlock is as long as any filesystem's blocks, at least.
const maxBlock = 1 << 20

// punch goes beyond the end of the last block. A block of which a part lies outside of a hole is overwritten
// with zeros where it is, whatever the disk knows of the record by then.
func punch(fd int, size int64) error {
	const how = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	err := unix.Fallocate(fd, how, 0, size+min(maxBlock, math.MaxInt64-size))
	if err == unix.EFBIG { // no file is as long: to the end of the last page
		err = unix.Fallocate(fd, how, 0, size+-size&(1<<12-1))
	}
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		if err = unix.Ftruncate(fd, 0); err == nil {
			err = unix.Ftruncate(fd, size)
		}
	}
	if err != nil {
		return fmt.Errorf("punch: %w", err)
	}
	return nil
}

// HasHoles reports whether the open file fd of size bytes has holes. It moves the descriptor's position.
func HasHoles(fd int, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	off, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	if err == unix.EINVAL { // unknown here: no holes
		return false, nil
	}
	return off < size, err
}

// SetMtime sets the modification time of the open file fd, to the nanosecond, and leaves the access time.
func SetMtime(fd int, ns int64) error {
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(ns)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, FdPath(fd), ts[:], 0)
}

// FdPath is a path to what the descriptor fd of this process is open on.
func FdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// WritebackFailed is the error of a write to the inode that the disk did not take, of which fd has not told
// yet, and nil when there is none. Nothing is written and nothing waited for.
func WritebackFailed(fd int) error {
	const beyond = 1 << 60 // an offset where no file has pages
	err := unix.SyncFileRange(fd, beyond, 1, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	if err == unix.ESPIPE || err == unix.EINVAL || err == unix.EBADF || err == unix.ENOSYS {
		return nil // no file, or no such call here
	}
	return err
}

// WithOwnerBits runs f while the owner of path may read and write it: a daemon without privileges may not
// touch the bytes and attributes of a file whose mode denies its owner. EACCES, and f is not run, when that
// is not the reason. An error of another kind than f's says that the mode stays as f needed it; so does a
// kill in the middle.
func WithOwnerBits(path string, f func() error) error {
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
	cerr := unix.Chmod(path, mode)
	if cerr != nil { // perhaps it was interrupted
		cerr = unix.Chmod(path, mode)
	}
	if cerr != nil {
		return errors.Join(err, fmt.Errorf("its mode is %o, and could not be made %o again: %w", mode|0o600, mode, cerr))
	}
	return err
}
