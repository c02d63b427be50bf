package tree

import (
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadRecordAt is ReadRecord of the regular file that a name in a directory leads to. A path through /proc
// takes the kernel twice as long to follow.
func ReadRecordAt(dir int, name string) (Record, error) {
	path := func() string { return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name }
	return readRecord(path, func(b []byte) (int, error) {
		if !noGetxattrat.Load() {
			n, err := callGetxattrat(dir, name, XattrName, b)
			if err != unix.ENOSYS && err != unix.EPERM {
				return n, err
			}
		}
		n, err := unix.Getxattr(path(), XattrName, b)
		if err != unix.EPERM {
			noGetxattrat.Store(true)
		}
		return n, err
	})
}

// noGetxattrat: there is no such call. Linux 6.13 was the first that had it, and a container may deny what
// its runtime does not know.
var noGetxattrat atomic.Bool

var callGetxattrat = getxattrat // a test's, too

// getxattrat is getxattrat(2), which golang.org/x/sys/unix has no function for. Symlinks are not followed.
func getxattrat(dir int, path, attr string, value []byte) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return 0, err
	}
	a, err := unix.BytePtrFromString(attr)
	if err != nil {
		return 0, err
	}
	args := struct { // struct xattr_args, where a pointer has 64 bits
		value       unsafe.Pointer
		size, flags uint32
	}{value: unsafe.Pointer(unsafe.SliceData(value)), size: uint32(len(value))}
	n, _, errno := unix.Syscall6(unix.SYS_GETXATTRAT, uintptr(dir), uintptr(unsafe.Pointer(p)),
		unix.AT_SYMLINK_NOFOLLOW, uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(&args)),
		unsafe.Sizeof(args))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
