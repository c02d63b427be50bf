package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/assemble"
	"ckptfs/fs/tree"
)

// File is the state of a regular file. Its mu comes before every lock that Inode and Events take.
//
// Invariants, under mu:
//
//	writers > 0        implies !rec.Packed(), but for the target of a copy, whose writers are all served: see beginWrite
//	pass > 0           implies cached == 0 and direct == 0, and backing is registered
//	raw != nil         implies !rec.Hollow and users() > 0
//	rw                 implies raw != nil
//	moved              if the inode's times were ever not those that programs see
type File struct {
	c    *Files
	node Inode

	mu   sync.Mutex
	cond sync.Cond // hydrating ended, writers changed

	loaded  bool // rec and damaged are known
	rec     tree.Record
	damaged error // why the file cannot be opened
	vetted  bool  // known not to be a hollow file that lost its record
	moved   bool  // a transition was made of it

	writers int // handles that may write
	pass    int // handles in passthrough
	cached  int // handles served by the daemon through the kernel's page cache
	direct  int // handles served by the daemon without it
	inside  int // readers in this process: views, packing

	programs int // handles of processes that execute the file

	flushed int    // writing handles that saw a close(2); see Sync
	gen     uint64 // counts everything that may change the bytes
	dirty   bool   // changed since it was packed or found to stay as it is

	copied cas.Hash // the packed file of which this one is the beginning, by a copy that may go on

	cancelPack context.CancelFunc // while a group packs the file

	hydrating bool
	stale     bool  // the kernel may have cached pages of older bytes
	opens     int   // since it was packed; a second one makes it hot
	kept      int   // times that its resident bytes were kept and it was packed again, since it was last evicted
	backing   int32 // the kernel's id of raw while pass > 0

	quiet    uint64 // gen + 1 of bytes that nobody writes; see MappedLocked
	viewGen  uint64 // gen + 1 of the bytes that viewSize was measured on; see ViewSizeLocked
	viewSize int64

	// io guards what reads go to. It is taken shared around a read and exclusively, shortly, for a change.
	io  sync.RWMutex
	raw *os.File // the bytes in place
	rw  bool     // raw is open for writing too
	asm *assemble.File

	asmOf cas.Hash // the manifest of asm; guarded by mu
}

// NewFile makes the state of a file of which nothing is known yet.
func NewFile(c *Files, n Inode) *File {
	f := &File{c: c, node: n}
	f.cond.L = &f.mu
	return f
}

// UsersLocked is how many handles and readers of this process there are.
func (f *File) users() int { return f.pass + f.cached + f.direct + f.inside }

// LoadLocked reads the file's record once.
func (f *File) LoadLocked() error {
	if f.loaded {
		return nil
	}
	rec, err := f.node.ReadRecord()
	switch {
	case errors.Is(err, tree.ErrNoRecord):
		f.rec = tree.Record{} // what a transition that failed left here
	case err != nil && errors.As(err, new(unix.Errno)):
		return err
	case err != nil:
		f.damaged = fmt.Errorf("%w: %w", err, unix.EIO)
	default:
		f.rec, f.vetted = rec, true
		if rec.Emptying && !f.c.readOnly { // it was cut off
			if err := f.finishEmptying(); err != nil {
				return err
			}
		}
		if f.c.Doubt && rec.Packed() && !rec.Hollow {
			// Recovery could not look here. Bytes hydrated since are known to residency, whose files are loaded.
			if err := f.DisbelieveLocked(); err != nil {
				return err
			}
		}
	}
	f.loaded = true
	return nil
}

// WriteRecordLocked stores rec in the inode and, if that went well, here.
func (f *File) WriteRecordLocked(rec tree.Record) error {
	if err := f.node.WriteRecord(&rec); err != nil {
		return err
	}
	f.rec = rec
	return nil
}

// touch moves the change time that programs see to now, of a file whose record keeps it: something was done to its inode. f.mu
// is held.
func (f *File) touch() error {
	if err := f.LoadLocked(); err != nil {
		return err
	}
	if !f.rec.Packed() {
		if f.Dead() {
			return nil
		}
		return f.unsum() // which moves the inode's
	}
	rec := f.rec
	rec.Ctime = f.c.now().UnixNano()
	return f.WriteRecordLocked(rec)
}

// OpenQuietly opens the inode for reading on the daemon's own account: the file's access time is the user's.
func (f *File) OpenQuietly() (*os.File, error) {
	own, err := f.node.Open(unix.O_RDONLY | unix.O_NOATIME)
	if err == unix.EPERM { // a file of another owner, and no privileges
		return f.node.Open(unix.O_RDONLY)
	}
	return own, err
}

// openRaw makes f.raw the bytes in place, for writing too if write is set. f.mu is held.
func (f *File) openRaw(write bool) error {
	if f.raw != nil && (f.rw || !write) {
		return nil
	}
	var raw *os.File
	var err error
	switch {
	case write:
		raw, err = f.node.Open(unix.O_RDWR)
	case f.rec.Emptying: // and the store may not be changed
		raw, err = emptyFile()
	case f.c.readOnly:
		raw, err = f.OpenQuietly()
	default:
		raw, err = f.node.Open(unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	f.setRaw(raw, write)
	return nil
}

func emptyFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "empty"), nil
}

// setRaw replaces f.raw, which may be nil before and after. f.mu is held.
func (f *File) setRaw(raw *os.File, rw bool) {
	f.io.Lock()
	defer f.io.Unlock()
	if f.raw != nil {
		f.raw.Close()
	}
	f.raw, f.rw = raw, rw
}

// VetLocked finds a hollow file that lost its record: the store was copied without attributes.
func (f *File) VetLocked() error {
	if f.vetted || f.damaged != nil {
		return nil
	}
	raw, err := f.OpenQuietly()
	if err != nil {
		return err
	}
	defer raw.Close()
	head := make([]byte, tree.HeaderSize)
	if k, err := raw.ReadAt(head, 0); err != nil && err != io.EOF {
		return err
	} else if tree.LooksHollow(head[:k], f.c.ID) {
		f.damaged = errUnrecorded
		return nil
	}
	f.vetted = true
	return nil
}

// errUnrecorded: the file is hollow and nothing says of what.
var errUnrecorded = fmt.Errorf("the bytes are packed and the file lost its attribute %s (was the store copied without xattrs?): %w", tree.XattrName, unix.EIO)

// openAsm makes f.asm the packed file. f.mu is held.
func (f *File) openAsm() error {
	if f.asm != nil && f.asmOf == f.rec.Manifest { // else a transition failed halfway
		return nil
	}
	asm, err := f.c.asm.Open(f.rec.Manifest)
	if err != nil {
		return err
	}
	f.io.Lock()
	defer f.io.Unlock()
	if f.asm != nil {
		f.asm.Close()
	}
	f.asm, f.asmOf = asm, f.rec.Manifest
	return nil
}

// OpenSourceLocked makes the file readable through read.
func (f *File) OpenSourceLocked() error {
	if f.damaged != nil {
		return f.damaged
	}
	if f.rec.Hollow {
		return f.openAsm()
	}
	return f.openRaw(false)
}

// CloseSourcesLocked ends what OpenSourceLocked began once nobody reads.
func (f *File) CloseSourcesLocked() {
	if f.users() == 0 {
		f.CloseAll()
	}
}

// CloseAll closes what reads go to.
func (f *File) CloseAll() {
	f.setRaw(nil, false)
	f.closeAsm()
}

func (f *File) closeAsm() {
	f.io.Lock()
	defer f.io.Unlock()
	if f.asm != nil {
		f.asm.Close()
		f.asm = nil
	}
}

// errNoSource: what reads go to is not open, for the moment or since a transition failed; see readAgain.
var errNoSource = errors.New("no source")

// read fills p from the file at off: from the bytes in place if they are open, else from the manifest, as packed says.
func (f *File) read(p []byte, off int64) (n int, packed bool, err error) {
	return f.readWithin(p, off, math.MaxInt64)
}

// readWithin is read for who reads no further than end.
func (f *File) readWithin(p []byte, off, end int64) (n int, packed bool, err error) {
	f.io.RLock()
	defer f.io.RUnlock()
	switch {
	case f.raw != nil:
		n, err = f.raw.ReadAt(p, off)
	case f.asm != nil:
		packed = true
		n, err = f.asm.ReadWithin(p, off, end)
	default:
		err = errNoSource
	}
	if err == io.EOF {
		err = nil
	}
	return n, packed, err
}

// lend is read without a copy; nil: it takes one.
func (f *File) lend(n int, off int64) (*assemble.Loan, int, error) {
	f.io.RLock()
	defer f.io.RUnlock()
	if f.raw != nil || f.asm == nil {
		return nil, 0, nil
	}
	return f.asm.Lend(off, int64(n), math.MaxInt64)
}

var _ io.ReaderAt = (*File)(nil)

// ReadAt makes the file's present bytes an io.ReaderAt for this process.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return upTo{f, math.MaxInt64}.ReadAt(p, off) }

// UpTo is the file's present bytes for who reads no further than end.
func (f *File) UpTo(end int64) io.ReaderAt { return upTo{f, end} }

// upTo is a file that is read no further than end.
type upTo struct {
	f   *File
	end int64
}

func (u upTo) ReadAt(p []byte, off int64) (int, error) {
	n, _, err := u.f.readWithin(p, off, u.end)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// changed notes that the bytes may differ from now on from what was packed. f.mu is held.
func (f *File) changed() {
	f.gen++
	f.dirty = true
	f.opens = 0
	f.StopPackingLocked()
}

// StopPackingLocked ends a packing of bytes that nobody wants any more.
func (f *File) StopPackingLocked() {
	if f.cancelPack != nil {
		f.cancelPack()
	}
}

// Sync makes the inode durable: bytes, record, attributes and, on the filesystems in use, its name. No lock is held.
func (f *File) Sync() error {
	f.mu.Lock()
	raw := f.raw
	if raw == nil {
		own, err := f.node.Open(unix.O_RDONLY)
		if err != nil {
			f.mu.Unlock()
			return err
		}
		defer own.Close()
		raw = own
	}
	fd, err := unix.FcntlInt(raw.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// ReadFailed logs a failed read with what it struck, and returns what the program gets.
func (f *File) ReadFailed(off int64, err error) error {
	f.c.Count.ReadErrs.Add(1)
	args := []any{"path", f.Path(), "offset", off, "reason", err}
	var ae *assemble.Error
	if errors.As(err, &ae) {
		args = append(args, "tensor", ae.Tensor)
	}
	f.c.report(slog.LevelError, "read failed", args...)
	return unix.EIO
}

// OpenFailed is ReadFailed for what was damaged; other errors of an open are the caller's to see.
func (f *File) OpenFailed(err error) error {
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrNewer) {
		return f.ReadFailed(0, err)
	}
	return err
}
