package spilled

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// mapping is a file that is mapped. Without a reference to it, it goes.
type mapping struct {
	bytes []byte
	goes  runtime.Cleanup
}

// mappedFrom is how many slots lie in a file: those of 1 MiB, and more.
const mappedFrom = 1 << 20 / slotBytes

// allocate makes free slots, in a file if they are many and one can be made.
func allocate(dir *disk.Folder, n int) ([]Slot, *mapping) {
	if dir != nil && n >= mappedFrom {
		if m := newMapping(dir, n*slotBytes); m != nil {
			return unsafe.Slice((*Slot)(unsafe.Pointer(unsafe.SliceData(m.bytes))), n), m
		}
	}
	return make([]Slot, n), nil
}

// share is what part of a disk's free room one file takes at most.
const share = 16

// newMapping maps a file of zeros; nil: none can be made.
func newMapping(dir *disk.Folder, size int) *mapping {
	st, err := dir.StatFS()
	if err != nil || uint64(size) > st.Bavail*uint64(st.Bsize)/share {
		return nil
	}
	f, err := dir.Open(".", os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		return nil
	}
	defer f.Close()
	// Its room is reserved: a page that the disk has no room for when it is written to is a fault.
	if unix.Fallocate(int(f.Fd()), 0, 0, int64(size)) != nil {
		return nil
	}
	p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	m := &mapping{bytes: p}
	m.goes = runtime.AddCleanup(m, func(p []byte) { _ = unix.Munmap(p) }, p)
	return m
}

// close lets go of a file at once.
func (m *mapping) close() {
	if m != nil {
		m.goes.Stop()
		_ = unix.Munmap(m.bytes)
	}
}
