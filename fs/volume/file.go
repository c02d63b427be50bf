package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/tree"
)

// file is the state of a regular file. Lock order: file.mu, then Volume.ns, then table.mu and fdCache.mu.
//
// Invariants, under mu:
//
//	writers > 0        implies !rec.Packed() && resident
//	!rec.Packed()      implies resident, or the file is empty, or damaged != nil
//	pass > 0           implies cached == 0 and direct == 0, and backing is registered
//	raw != nil         while resident and users() > 0, and for as long as a dead file lives
type file struct {
	mu   sync.Mutex
	cond sync.Cond // hydrating ended, writers changed

	loaded   bool // rec, resident and damaged are known
	rec      tree.Record
	resident bool  // content/ID exists (for a dead file: raw is it)
	damaged  error // why the file cannot be opened

	writers int // handles that may write
	pass    int // handles in passthrough
	cached  int // handles served by the daemon through the kernel's page cache
	direct  int // handles served by the daemon without it
	inside  int // readers in this process: views, packing

	flushed int    // writing handles that saw a close(2); see Sync
	gen     uint64 // counts everything that may change the bytes
	dirty   bool   // changed since it was packed or found to stay resident
	queued  bool   // in the packer's queue

	cancelPack context.CancelFunc // while a group packs the file

	hydrating bool
	stale     bool  // the kernel may have cached pages of older bytes
	opens     int   // since it was packed; a second one makes it hot
	backing   int32 // the kernel's id of the raw file while pass > 0

	viewGen  uint64 // gen + 1 of the bytes that viewSize was measured on; see measureView
	viewSize int64

	hot *hotEntry // guarded by hotList.mu

	// io guards what reads go to. It is taken shared around a read and exclusively, shortly, for a change.
	io   sync.RWMutex
	raw  *os.File // read-only
	rawW *os.File // while the daemon itself has to write
	asm  *assemble.File
}

func newFile() *file {
	f := &file{}
	f.cond.L = &f.mu
	return f
}

func (f *file) users() int { return f.pass + f.cached + f.direct + f.inside }

// errDamaged is what a file gets whose bytes are gone; check tells more.
func errDamaged(why string) error { return fmt.Errorf("%s: %w", why, unix.EIO) }

// load reads the stub's record once. f.mu is held.
func (v *Volume) load(n *Node) error {
	f := n.file
	if f.loaded {
		return nil
	}
	v.ns.RLock()
	p, err := v.locate(n)
	if err != nil {
		v.ns.RUnlock()
		return err
	}
	rec, err := tree.ReadRecord(p.path())
	var st unix.Stat_t
	serr := p.stat(&st)
	v.release(p)
	v.ns.RUnlock()
	if serr != nil {
		return serr
	}
	switch {
	case errors.Is(err, tree.ErrNoRecord) && st.Size == 0: // its creation was cut short
	case errors.Is(err, tree.ErrNoRecord):
		f.damaged = errDamaged("the stub lost its attribute " + tree.XattrName + " (was the store copied without xattrs?)")
	case err != nil && errors.As(err, new(unix.Errno)):
		return err
	case err != nil:
		f.damaged = fmt.Errorf("%w: %w", err, unix.EIO)
	default:
		f.rec = rec
		var cst unix.Stat_t
		switch err := v.content.Stat(rec.ID, &cst); err {
		case nil:
			f.resident = true
			if v.doubt && rec.Packed() {
				// Recovery could not look here. Copies made since are in the hot list, whose nodes are loaded.
				if err := v.content.Remove(rec.ID); err != nil {
					return err
				}
				f.resident = false
			}
		case unix.ENOENT:
			if !rec.Packed() && st.Size > 0 {
				f.damaged = errDamaged("content/" + rec.ID.String() + " is missing and the file was not packed")
			}
		default:
			return err
		}
	}
	f.loaded = true
	return nil
}

// writeRecord stores rec in the stub and, if that went well, here. f.mu is held.
func (v *Volume) writeRecord(n *Node, rec tree.Record) error {
	v.ns.RLock()
	defer v.ns.RUnlock()
	p, err := v.locate(n)
	if err != nil {
		return err
	}
	defer v.release(p)
	if err := tree.WriteRecord(p.path(), &rec); err != nil {
		return err
	}
	n.file.rec = rec
	return nil
}

// openRaw makes f.raw the resident file. f.mu is held.
func (v *Volume) openRaw(f *file) error {
	if f.raw != nil {
		return nil
	}
	raw, err := v.content.Open(f.rec.ID, false)
	if err != nil {
		return err
	}
	f.io.Lock()
	f.raw = raw
	f.io.Unlock()
	return nil
}

// openAsm makes f.asm the packed file. f.mu is held.
func (v *Volume) openAsm(f *file) error {
	if f.asm != nil {
		return nil
	}
	asm, err := v.asm.Open(f.rec.Manifest)
	if err != nil {
		return err
	}
	f.io.Lock()
	f.asm = asm
	f.io.Unlock()
	return nil
}

// openSource makes the file readable through read. f.mu is held.
func (v *Volume) openSource(f *file) error {
	if f.damaged != nil {
		return f.damaged
	}
	if f.resident {
		return v.openRaw(f)
	}
	if f.rec.Packed() {
		return v.openAsm(f)
	}
	return nil // empty
}

// closeSources ends what openSource began once nobody reads. f.mu is held.
func (v *Volume) closeSources(n *Node) {
	f := n.file
	if f.users() > 0 {
		return
	}
	f.io.Lock()
	defer f.io.Unlock()
	if f.asm != nil {
		f.asm.Close()
		f.asm = nil
	}
	if f.rawW != nil {
		f.rawW.Close()
		f.rawW = nil
	}
	if f.raw != nil && !v.isDead(n) {
		f.raw.Close()
		f.raw = nil
	}
}

// closeAll ends what a node that leaves the table had open; nobody else has the file any more.
func (f *file) closeAll() {
	f.io.Lock()
	defer f.io.Unlock()
	for _, o := range []*os.File{f.raw, f.rawW} {
		if o != nil {
			o.Close()
		}
	}
	f.raw, f.rawW = nil, nil
	if f.asm != nil {
		f.asm.Close()
		f.asm = nil
	}
}

func (v *Volume) isDead(n *Node) bool {
	v.tab.mu.Lock()
	defer v.tab.mu.Unlock()
	return n.dead
}

// read fills p from the file at off: from the raw copy if there is one, else from the manifest.
func (f *file) read(p []byte, off int64) (int, error) {
	f.io.RLock()
	defer f.io.RUnlock()
	var n int
	var err error
	switch {
	case f.raw != nil:
		n, err = f.raw.ReadAt(p, off)
	case f.asm != nil:
		n, err = f.asm.ReadAt(p, off)
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

var _ io.ReaderAt = (*file)(nil)

// ReadAt makes the file's present bytes an io.ReaderAt for this process.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.read(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// reopen opens the raw file again for writing, whether it has a name or not.
func reopen(raw *os.File) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", raw.Fd()), os.O_RDWR, 0)
}

// ensureID gives a file its id and its raw file if it has none. f.mu is held.
func (v *Volume) ensureRaw(n *Node) error {
	f := n.file
	if f.resident {
		return nil
	}
	rec := f.rec
	rec.ID = tree.NewID()
	rec.Manifest, rec.ViewSize = [32]byte{}, 0
	dead := v.isDead(n)
	create := v.content.Create
	if dead {
		create = v.content.CreateUnnamed
	}
	raw, err := create(rec.ID)
	if err != nil {
		return err
	}
	if err := v.writeRecord(n, rec); err != nil {
		raw.Close()
		v.content.Remove(rec.ID)
		return err
	}
	f.resident = true
	if !dead {
		return raw.Close()
	}
	f.io.Lock()
	f.raw = raw
	f.io.Unlock()
	return nil
}

// unpack makes the raw copy the file: afterwards the file is resident and its record names no manifest. With empty
// set, the bytes are not wanted. f.mu is held; it is given up while a copy is made.
func (v *Volume) unpack(n *Node, empty bool) error {
	f := n.file
	for f.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Packed() {
		return v.ensureRaw(n)
	}
	if empty && !f.resident {
		// The old id's bytes stay with the old record until the new one is written.
		if err := v.ensureRaw(n); err != nil {
			return err
		}
		f.changed()
		v.swapSource(n)
		return nil
	}
	if !f.resident {
		if err := v.hydrateLocked(n); err != nil {
			return err
		}
	}
	if !empty && !v.isDead(n) {
		// The record must not lose the manifest before the copy that replaces it is durable.
		if err := v.syncContent(f); err != nil {
			return err
		}
	}
	rec := f.rec
	rec.Manifest, rec.ViewSize = [32]byte{}, 0
	if err := v.writeRecord(n, rec); err != nil {
		return err
	}
	v.hot.remove(n)
	f.changed()
	v.swapSource(n)
	return nil
}

// changed notes that the bytes may differ from now on from what was packed. f.mu is held.
func (f *file) changed() {
	f.gen++
	f.dirty = true
	f.opens = 0
	f.stopPacking()
}

// stopPacking ends a packing of bytes that nobody wants any more. f.mu is held.
func (f *file) stopPacking() {
	if f.cancelPack != nil {
		f.cancelPack()
	}
}

// swapSource lets readers that are at it read the raw copy from now on. f.mu is held.
func (v *Volume) swapSource(n *Node) error {
	f := n.file
	if f.asm == nil {
		return nil
	}
	if f.resident {
		if err := v.openRaw(f); err != nil {
			return err
		}
	}
	f.io.Lock()
	f.asm.Close()
	f.asm = nil
	f.io.Unlock()
	return nil
}

// syncContent makes the raw copy and its name durable. f.mu is held.
func (v *Volume) syncContent(f *file) error {
	raw, err := v.content.Open(f.rec.ID, false)
	if err != nil {
		return err
	}
	defer raw.Close()
	if err := raw.Sync(); err != nil {
		return err
	}
	return v.content.SyncName(f.rec.ID)
}

// openStub opens the stub itself, for fsync.
func (v *Volume) openStub(n *Node) (int, error) {
	v.ns.RLock()
	defer v.ns.RUnlock()
	p, err := v.locate(n)
	if err != nil {
		return -1, err
	}
	defer v.release(p)
	return p.open(unix.O_RDONLY)
}

// syncStub makes the stub durable: its record, its attributes and, on the filesystems in use, its name.
func (v *Volume) syncStub(n *Node) error {
	fd, err := v.openStub(n)
	if err == unix.EACCES {
		return v.syncTree() // a stub that its owner may not read, and no privileges
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

func (v *Volume) syncTree() error {
	fd, err := unix.Open(v.treePath(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// errNotRegular: a command that needs a regular file got something else.
var errNotRegular = errors.New("not a regular file")
