package tree

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fiemap is struct fiemap of linux/fiemap.h, with room for some extents.
type fiemap struct {
	start, length       uint64
	flags, mapped, room uint32
	_                   uint32
	extents             [64]struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
}

const (
	fsIocFiemap    = 0xc020660b
	fiemapSync     = 0x1               // FIEMAP_FLAG_SYNC: dirty pages are written first
	fiemapNotThere = 0x2 | 0x4 | 0x800 // FIEMAP_EXTENT_UNKNOWN, _DELALLOC, _UNWRITTEN
	fiemapLast     = 0x1               // FIEMAP_EXTENT_LAST
	fiemapExtents  = 64
)

// AllWritten reports whether each block of the open file fd, of size bytes, was written to the disk once:
// none is a hole, or allocated only. The error is that the filesystem does not tell, or could not write what
// was in memory.
func AllWritten(fd int, size int64) (bool, error) {
	for at := uint64(0); at < uint64(size); {
		m := fiemap{start: at, length: uint64(size) - at, flags: fiemapSync, room: fiemapExtents}
		if _, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocFiemap,
			uintptr(unsafe.Pointer(&m))); err != 0 {
			return false, err
		}
		if m.mapped == 0 {
			return false, nil
		}
		for _, e := range m.extents[:min(m.mapped, fiemapExtents)] {
			if e.logical > at || e.flags&fiemapNotThere != 0 {
				return false, nil
			}
			at = e.logical + e.length
			if e.flags&fiemapLast != 0 && at < uint64(size) {
				return false, nil
			}
		}
	}
	return true, nil
}
