package volume

import (
	"errors"
	"log/slog"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/tree"
)

// Mode is how the kernel serves a handle's reads and writes.
type Mode int

const (
	// Cached: through the kernel's page cache, from this process.
	Cached Mode = iota
	// Direct: from this process, past the page cache.
	Direct
	// Passthrough: by the kernel from the inode in the tree, without this process.
	Passthrough
)

// Kernel is what a volume asks of the side that mounts it. A volume without one serves every handle itself.
type Kernel interface {
	// RegisterBacking lets the kernel read and write the open file fd by itself.
	RegisterBacking(fd int) (int32, error)
	UnregisterBacking(id int32)
	// InvalidateData drops the kernel's cached bytes [off, off+n) of a node, all of them for n = 0, none for off < 0, and
	// its attributes.
	InvalidateData(id NodeID, off, n int64)
}

// openedToExecute is the flag that the kernel opens a program with; open(2) has none for it.
const openedToExecute = 0x20

// Handle is an open file.
type Handle struct {
	Node      *Node
	Mode      Mode
	Backing   int32 // in Passthrough
	KeepCache bool  // in Cached: what the kernel has of the file is still right

	write   bool
	program bool         // a process executes the file
	noatime bool         // O_NOATIME
	sync    uint32       // O_SYNC or O_DSYNC: what this process writes is durable before it answers
	flushed bool         // guarded by file.mu
	read    atomic.Int64 // bytes
	text    []byte       // of a virtual file that has virtual.text
}

// Writes reports whether the handle may write.
func (h *Handle) Writes() bool { return h.write }

// Open opens a regular file or a view. flags are open(2)'s; the kernel has checked the permissions.
func (v *Volume) Open(n *Node, flags uint32) (*Handle, error) { return v.OpenBy(n, flags, 0) }

// OpenBy is Open by a thread, as the kernel tells it.
func (v *Volume) OpenBy(n *Node, flags, thread uint32) (*Handle, error) {
	if n.view != nil {
		return v.openView(n, flags)
	}
	if n.virt != nil {
		return v.openVirtual(n, flags)
	}
	if n.file == nil {
		return nil, unix.ENXIO
	}
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		return nil, err
	}
	if flags&unix.O_TRUNC == 0 {
		if err := f.vet(); err != nil {
			return nil, err
		}
	}
	if f.damaged != nil && flags&unix.O_TRUNC == 0 {
		v.report(slog.LevelError, "damaged file", "path", n.Path(), "reason", f.damaged)
		return nil, unix.EIO
	}
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	if write || flags&unix.O_TRUNC != 0 {
		if v.readOnly {
			return nil, unix.EROFS
		}
		if f.programs > 0 && !write { // who opens it for writing is refused by the kernel; who only truncates is not
			return nil, unix.ETXTBSY
		}
		if err := f.makeWritable(flags&unix.O_TRUNC != 0); err != nil {
			return nil, err
		}
	}
	return f.attach(flags, f.noteOpen(flags, thread))
}

// makeWritable prepares a file for a writer. f.mu is held.
func (f *file) makeWritable(truncate bool) error {
	if err := f.unpack(truncate); err != nil {
		return err
	}
	if truncate {
		if err := f.truncateRaw(0); err != nil {
			return err
		}
		// What comes is another checkpoint, and the old one's damage is gone with it.
		if f.damaged != nil || f.rec != (tree.Record{}) {
			if err := f.writeRecord(tree.Record{}); err != nil {
				return err
			}
		}
		f.damaged, f.vetted = nil, true
	}
	f.changed()
	return nil
}

// truncateRaw sets the length of a plain file. f.mu is held.
func (f *file) truncateRaw(size int64) error {
	w, done, err := f.writable()
	if err != nil {
		return err
	}
	defer done()
	if err := w.Truncate(size); err != nil {
		return err
	}
	f.stale = f.stale || f.pass > 0
	return nil
}

// writable returns the inode open for writing, until done is called. f.mu is held.
func (f *file) writable() (w *os.File, done func(), err error) {
	if f.rw {
		return f.raw, func() {}, nil
	}
	w, err = f.node.openInode(unix.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	return w, func() { w.Close() }, nil
}

// attach makes a handle of a file whose state fits flags. With served set it is not in passthrough, if it can be. f.mu is
// held.
func (f *file) attach(flags uint32, served bool) (*Handle, error) {
	access := flags & unix.O_ACCMODE
	h := &Handle{
		Node: f.node, write: access != unix.O_RDONLY, sync: flags & (unix.O_SYNC | unix.O_DSYNC),
		program: flags&openedToExecute != 0, noatime: flags&unix.O_NOATIME != 0,
	}
	if err := f.openSource(); err != nil {
		f.closeSources()
		return nil, f.openFailed(err)
	}
	h.Mode = f.chooseMode(access, served)
	if h.Mode == Passthrough && f.pass == 0 {
		id, err := f.c.kernel.RegisterBacking(int(f.raw.Fd()))
		if err != nil {
			f.c.v.report(slog.LevelWarn, "passthrough refused for one file; the daemon serves it", "path", f.node.Path(), "reason", err)
			h.Mode = Cached
		} else {
			f.backing = id
		}
	}
	if h.Mode != Passthrough && h.write {
		if err := f.openRaw(true); err != nil {
			f.closeSources()
			return nil, err
		}
	}
	switch h.Mode {
	case Passthrough:
		f.pass++
		h.Backing = f.backing
	case Cached:
		f.cached++
		h.KeepCache = !f.stale
		f.stale = false
	case Direct:
		f.direct++
	}
	if h.program {
		f.programs++
	}
	if h.write {
		if f.writers++; f.writers == 1 {
			f.c.v.steps.Begin(f.node.ino)
		}
		if h.Mode == Passthrough {
			f.stale = true
		}
	}
	f.opened()
	f.node.ref()
	f.c.count.opens[h.Mode].Add(1)
	f.c.count.handles.Add(1)
	return h, nil
}

// chooseMode keeps to the kernel's rule: an inode is either in passthrough with one backing file, or cached.
func (f *file) chooseMode(access uint32, served bool) Mode {
	passthrough := f.c.passthrough.Load() && !served
	switch {
	case f.pass > 0:
		return Passthrough
	case f.cached > 0:
		return Cached
	case f.direct == 0 && f.raw != nil && passthrough:
		return Passthrough
	case access == unix.O_WRONLY && !passthrough:
		return Direct // a handle that can't be mapped; half as fast again as through the page cache
	}
	return Cached
}

// Release ends a handle.
func (v *Volume) Release(h *Handle) {
	n := h.Node
	v.content.count.handles.Add(-1)
	if n.view != nil {
		v.releaseView(h)
		return
	}
	if n.virt != nil {
		if n.virt.set != nil {
			n.virt.set.release()
		}
		n.unref(1)
		return
	}
	f := n.file
	f.mu.Lock()
	switch h.Mode {
	case Passthrough:
		if f.pass--; f.pass == 0 {
			v.content.kernel.UnregisterBacking(f.backing)
		}
	case Cached:
		f.cached--
	case Direct:
		f.direct--
	}
	if h.program {
		f.programs--
	}
	if h.write {
		if h.flushed {
			f.flushed--
		}
		if f.writers--; f.writers == 0 {
			v.steps.End(n.ino)
			f.writersGone()
		}
		f.cond.Broadcast()
	}
	f.closed(h)
	f.closeSources()
	if f.users() == 0 {
		v.hot.released(n)
	}
	f.mu.Unlock()
	n.unref(1)
}

// writersGone has the file packed, or finds that it stays as it is. f.mu is held.
func (f *file) writersGone() {
	if f.node.isDead() {
		return
	}
	if !f.settleSmall() {
		f.c.v.packer.add(f.node)
	}
	if f.rw && f.users() > 0 { // who reads on must not look like a writer
		if raw, err := f.node.openInode(unix.O_RDONLY); err == nil {
			f.setRaw(raw, false)
		}
	}
}

// Read reads into p at off. Fewer bytes than asked for mean the end of the file.
func (v *Volume) Read(h *Handle, p []byte, off int64) (int, error) {
	if h.Node.view != nil {
		return v.readView(h, p, off)
	}
	if h.Node.virt != nil {
		return readVirtual(h, p, off)
	}
	k, packed, err := h.Node.file.read(p, off)
	if err == errNoSource {
		k, packed, err = h.Node.file.readAgain(p, off)
	}
	if err != nil {
		return 0, h.Node.file.readFailed(off, err)
	}
	v.wasRead(h, k, packed)
	return k, nil
}

// wasRead notes that k bytes were read.
func (v *Volume) wasRead(h *Handle, k int, packed bool) {
	if packed {
		v.content.count.readPacked.add(k)
	} else {
		v.content.count.readPlace.add(k)
	}
	if first := h.read.Add(int64(k)) == int64(k); first && k > 0 && !h.noatime {
		h.Node.file.accessed()
	}
}

// Lend is Read of n bytes without a copy; nil: they are not lent, but can be read.
func (v *Volume) Lend(h *Handle, n int, off int64) (*assemble.Loan, int, error) {
	f := h.Node.file
	if f == nil || h.Node.view != nil || h.Node.virt != nil {
		return nil, 0, nil
	}
	l, k, err := f.lend(n, off)
	if err != nil {
		return nil, 0, f.readFailed(off, err)
	}
	if l != nil {
		v.wasRead(h, k, true)
	}
	return l, k, nil
}

// readAgain is read of a file that is being made another's copy: afterwards there is something to read.
func (f *file) readAgain(p []byte, off int64) (k int, packed bool, err error) {
	for {
		f.mu.Lock()
		err := f.openSource()
		f.mu.Unlock()
		if err != nil {
			return 0, false, err
		}
		if k, packed, err = f.read(p, off); err != errNoSource {
			return k, packed, err
		}
	}
}

// Write writes p at off; the kernel has resolved O_APPEND.
func (v *Volume) Write(h *Handle, p []byte, off int64) (int, error) {
	f := h.Node.file
	if h.Node.virt != nil && h.Node.virt.query != nil && h.write {
		return h.Node.virt.query.write(p, off)
	}
	if f == nil {
		return 0, unix.EBADF
	}
	k, err := f.write(p, off, h.sync)
	if err == errNotPlain {
		k, err = v.writePacked(h, p, off)
	}
	if h.Mode == Direct && k > 0 {
		f.mu.Lock()
		shared := f.cached > 0
		f.stale = true
		f.mu.Unlock()
		if shared {
			v.content.kernel.InvalidateData(h.Node.id, off, int64(k))
		}
	}
	if k > 0 {
		return k, nil
	}
	return k, err
}

// errNotPlain: the file is not open here for writing.
var errNotPlain = errors.New("not plain")

// writePacked writes to a file that a copy has packed since the handle was opened.
func (v *Volume) writePacked(h *Handle, p []byte, off int64) (int, error) {
	f := h.Node.file
	for h.write {
		f.mu.Lock()
		err := f.beginWrite()
		if err == nil {
			err = f.openRaw(true)
		}
		f.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if k, err := f.write(p, off, h.sync); err != errNotPlain {
			return k, err
		}
	}
	return 0, unix.EBADF
}

// write writes p at off, durably if sync has O_SYNC or O_DSYNC.
func (f *file) write(p []byte, off int64, sync uint32) (int, error) {
	f.io.RLock()
	defer f.io.RUnlock()
	if !f.rw {
		return 0, errNotPlain
	}
	k, err := pwrite(f.raw, p, off)
	if k > 0 && sync != 0 {
		if sync&unix.O_SYNC == unix.O_SYNC {
			err = unix.Fsync(int(f.raw.Fd()))
		} else {
			err = unix.Fdatasync(int(f.raw.Fd()))
		}
		if err != nil {
			return 0, err
		}
	}
	return k, err
}

// pwrite is pwrite(2): unlike WriteAt it tells how much was written before the disk was full.
func pwrite(w *os.File, p []byte, off int64) (int, error) {
	for {
		k, err := unix.Pwrite(int(w.Fd()), p, off)
		if err != unix.EINTR {
			return max(k, 0), err
		}
	}
}

// Flush is a close(2) of one of the handle's descriptors. Its RELEASE may come later. A writer's waits while more than
// Options.MaxUnpacked waits to be packed.
func (v *Volume) Flush(h *Handle) {
	f := h.Node.file
	if f == nil || !h.write {
		return
	}
	f.mu.Lock()
	if !h.flushed {
		h.flushed = true
		f.flushed++
	}
	own := f.rawSizeLocked()
	f.mu.Unlock()
	v.packer.makeRoom(own)
}

// Fsync makes the file's bytes, attributes and name durable, as fsync(2) on the host does.
func (v *Volume) Fsync(h *Handle) error {
	n := h.Node
	if n.view != nil || n.virt != nil {
		return nil
	}
	return v.syncInode(n)
}
