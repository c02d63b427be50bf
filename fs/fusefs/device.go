package fusefs

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// Of linux/fuse.h.
const (
	backingOpen  = 0x4010e501 // FUSE_DEV_IOC_BACKING_OPEN, of struct fuse_backing_map
	backingClose = 0x4004e502 // FUSE_DEV_IOC_BACKING_CLOSE, of the id

	notifyInvalInode = 2 // FUSE_NOTIFY_INVAL_INODE
	notifyInvalEntry = 3 // FUSE_NOTIFY_INVAL_ENTRY
	notifyResend     = 7 // FUSE_NOTIFY_RESEND
	notifyPrune      = 9 // FUSE_NOTIFY_PRUNE, since Linux 6.18
)

// backingMap is struct fuse_backing_map.
type backingMap struct {
	fd      int32
	flags   uint32
	padding uint64
}

// invalInode is a notification by the kernel's structs: struct fuse_out_header, whose unique is 0 and whose
// error is the code, and struct fuse_notify_inval_inode_out.
type invalInode struct {
	length uint32
	code   int32
	unique uint64

	node        uint64
	off, extent int64
}

// invalEntry is struct fuse_out_header likewise, and struct fuse_notify_inval_entry_out, which the name and a
// zero byte follow.
type invalEntry struct {
	length uint32
	code   int32
	unique uint64

	dir  uint64
	name uint32 // its length
	_    uint32
}

// device is an open /dev/fuse, to which a mount's requests come. It is the volume's way to the kernel, too.
type device struct {
	fd int // the readers' and writers', who are gone before it is closed

	elsewhere func(fd int, p []byte) error // Keeper.Write; nil: there is none

	mu     sync.RWMutex // held, shared, by those who may still come then
	closed bool
}

// read takes a request. It fails with ENODEV when the mount is gone.
func (d *device) read(buf []byte) (int, error) {
	for {
		n, err := unix.Read(d.fd, buf)
		switch {
		case err == unix.EINTR, err == unix.EAGAIN, err == unix.ENOENT: // the last: its caller went
		case err == nil && n == 0: // a socket in place of the kernel was closed
			return 0, unix.ENODEV
		default:
			return n, err
		}
	}
}

// readInit takes the first request of a mount, which is INIT. There is one only: whoever answers it later,
// or again, needs these bytes.
func (d *device) readInit() ([]byte, error) {
	buf := make([]byte, 16<<10) // FUSE_MIN_READ_BUFFER is 8 KiB
	n, err := d.read(buf)
	if err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	return buf[:n:n], nil
}

// write answers a request, whose bytes are all there is in parts, or notifies.
func (d *device) write(parts ...[]byte) error {
	for {
		var err error
		if len(parts) == 1 {
			_, err = unix.Write(d.fd, parts[0])
		} else {
			_, err = unix.Writev(d.fd, parts)
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// close lets go of the device, once nobody reads from it.
func (d *device) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	unix.Close(d.fd)
}

// open runs f, unless the device is closed.
func (d *device) open(f func() error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return unix.EBADF
	}
	return f()
}

// RegisterBacking lets the kernel read and write the open file fd by itself.
func (d *device) RegisterBacking(fd int) (id int32, err error) {
	err = d.open(func() error {
		m := &backingMap{fd: int32(fd)}
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), backingOpen, uintptr(unsafe.Pointer(m)))
		runtime.KeepAlive(m)
		if errno != 0 {
			return errno
		}
		id = int32(r)
		return nil
	})
	return id, err
}

// UnregisterBacking takes back what RegisterBacking gave.
func (d *device) UnregisterBacking(id int32) {
	d.open(func() error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), backingClose, uintptr(unsafe.Pointer(&id)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// InvalidateData has the kernel drop its cached bytes [off, off+n) of a node, all of them for n = 0, none for
// off < 0, and its attributes. It may wait for pages that are being read.
func (d *device) InvalidateData(id content.NodeID, off, n int64) { _ = d.invalidate(id, off, n) }

// notify writes a notification that may have to wait: for a folder that the kernel keeps locked until a
// lookup in it is answered, or for pages that are being read. Not even a kill ends that, and this process
// could not end before the next one answers, which waits for its end. So another process writes it.
func (d *device) notify(parts ...[]byte) error {
	if d.elsewhere != nil {
		return d.elsewhere(d.fd, slices.Concat(parts...))
	}
	return d.write(parts...)
}

// InvalidateName has the kernel ask again for a name, and for the attributes and the list of its directory.
func (d *device) InvalidateName(dir content.NodeID, name string) {
	_ = d.open(func() error {
		m := invalEntry{code: notifyInvalEntry, dir: uint64(dir), name: uint32(len(name))}
		m.length = uint32(int(unsafe.Sizeof(m)) + len(name) + 1)
		return d.notify(unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m)), append([]byte(name), 0))
	})
	d.InvalidateData(dir, 0, 0)
}

// knows reports whether the kernel has a reference to a node, or may have.
func (d *device) knows(id content.NodeID) bool { return d.invalidate(id, -1, 0) != unix.ENOENT }

// resend has the kernel send again every request that was read and not answered, before all others. No
// request of this process may be in hand. EINVAL from a kernel that cannot.
func (d *device) resend() error {
	return d.open(func() error {
		m := fuse.OutHeader{Length: uint32(unsafe.Sizeof(fuse.OutHeader{})), Status: notifyResend}
		return d.write(unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m)))
	})
}

func (d *device) invalidate(id content.NodeID, off, n int64) error {
	return d.open(func() error {
		m := invalInode{code: notifyInvalInode, node: uint64(id), off: off, extent: n}
		m.length = uint32(unsafe.Sizeof(m))
		say := d.notify
		if off < 0 { // it is about no pages, and waits for nothing
			say = d.write
		}
		return say(unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m)))
	})
}
