package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/fs/assemble"
	"ckptfs/fs/tree"
)

// File is the state of a regular file.
//
// Invariants, under mu:
//
//	users.writers > 0  implies !rec.Packed(), but for the target of a copy, whose writers this process serves:
//	                   see Handle.beginWriteLocked
//	src.raw != nil     implies !rec.Hollow and users.all() > 0
//	moved              if the inode's times were ever not those that programs see
type File struct {
	c    *Files
	node Inode

	// mu guards all that follows. It is held over a transition, and not over the reads of a program.
	mu   locks.Mutex[fileLock]
	cond sync.Cond // a hydration ended, or the writers changed

	rec     tree.Record
	loaded  bool  // rec and damaged are known
	damaged error // why the file cannot be opened
	vetted  bool  // known not to be a hollow file that lost its record
	moved   bool  // a transition was made of it
	noRoom  bool  // it was not packed, since its other attributes leave no room for its record

	users users
	bytes byteState
	local localCopy
	src   source // which has a lock of its own

	packing   *Packing           // by a group, until its Drop; or nil
	cancelSum context.CancelFunc // while a checksum is made
}

// byteState is what is known of a file's present bytes. File.mu guards it.
type byteState struct {
	gen   uint64   // grows with everything that may change the bytes
	first uint64   // gen at the start
	dirty bool     // changed since the file was packed or found to stay as it is
	quiet uint64   // gen + 1 of bytes that no mapping can write; see MappedLocked
	view  viewSize // what was measured last
	// emptied counts how often the file was truncated to nothing. What is written then goes to new pages: to
	// write over one that the disk did not take does not help on each filesystem; see hydration.openLocked.
	emptied uint64
	copied  cas.Hash // the packed file of which this one is the beginning, by a copy that may go on
}

// viewSize is the size of the view of one generation of a file's bytes.
type viewSize struct {
	of   uint64 // gen + 1; 0: nothing was measured
	size int64
}

// localCopy is what is known of the resident bytes of a packed file. File.mu guards it.
type localCopy struct {
	hydrating bool
	opens     int      // since the file was packed; a second one makes it hot
	kept      int      // how often eviction failed and had the file packed again, since it last succeeded
	after     uint64   // the copy is durable once this sync of the filesystem succeeded; see durable.go
	inode     *os.File // keeps the inode in memory until then; or nil
	left      bool     // the file was made hollow while its bytes were in use: they are still in the inode
}

// NewFile makes the state of a file of which nothing is known yet.
func NewFile(c *Files, n Inode) *File {
	f := &File{c: c, node: n}
	f.cond.L = &f.mu
	return f
}

// FileOfPast is NewFile of an inode that an earlier process told the kernel of: its bytes are of generation
// gen. It is not known since when the kernel has its pages.
func FileOfPast(c *Files, n Inode, gen uint64) *File {
	f := NewFile(c, n)
	f.bytes.gen, f.bytes.first, f.users.stale = gen, gen, true
	return f
}

// Lock takes the file's mu, for which its transitions and its writers wait.
func (f *File) Lock() { f.mu.Lock() }

// Unlock releases mu.
func (f *File) Unlock() { f.mu.Unlock() }

// Node is the inode that has the file's bytes.
func (f *File) Node() Inode { return f.node }

// Path is where the file lies below the mount's root, by one of its names.
func (f *File) Path() string { return f.node.Path() }

// Dead reports whether no name leads to the file.
func (f *File) Dead() bool { return f.node.Dead() }

// Pin keeps the file known until as many Unpins.
func (f *File) Pin() { f.node.Pin() }

// Unpin ends one Pin.
func (f *File) Unpin() { f.node.Unpin() }

// LoadLocked reads the file's record once. It ends what was cut off, if the record says so.
func (f *File) LoadLocked() error {
	f.mu.AssertHeld()
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
			if err := (unpacking{f: f}).finishEmptyingLocked(); err != nil {
				return err
			}
		}
		if err := (distrust{f}).believeLocked(); err != nil {
			return err
		}
	}
	f.loaded = true
	return nil
}

// VetLocked finds a hollow file that lost its record: the store was copied without attributes.
func (f *File) VetLocked() error {
	f.mu.AssertHeld()
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

// writeRecordLocked stores rec in the inode and, if that went well, here.
func (f *File) writeRecordLocked(rec tree.Record) error {
	f.mu.AssertHeld()
	if err := f.node.WriteRecord(&rec); err != nil {
		return err
	}
	f.rec = rec
	return nil
}

// OpenQuietly opens the inode for reading on the daemon's own account: the access time is for programs.
func (f *File) OpenQuietly() (*os.File, error) { return openQuietly(f.node, unix.O_RDONLY) }

// openQuietly opens an inode so that reads of it do not move the access time.
func openQuietly(n Inode, flags int) (*os.File, error) {
	own, err := n.Open(flags | unix.O_NOATIME)
	if err == unix.EPERM { // a file of another owner, and no privileges
		return n.Open(flags)
	}
	return own, err
}

// changedLocked notes that the bytes may differ from now on from what was packed.
func (f *File) changedLocked() {
	f.mu.AssertHeld()
	f.bytes.gen++
	f.node.Changes(f.bytes.gen)
	f.bytes.dirty = true
	f.local.opens = 0
	f.c.syncs.wanted.Store(true)
	stopReadingLocked(f)
}

// stopReadingLocked ends the packing and the checksum of bytes that are not the file's any more.
func stopReadingLocked(f *File) {
	f.mu.AssertHeld()
	if f.packing != nil && f.packing.cancel != nil {
		f.packing.cancel()
	}
	if f.cancelSum != nil {
		f.cancelSum()
	}
}

// BuryLocked ends what goes on with a file that is Dead, and lets go of its inode: nobody asks what becomes
// of its bytes. Who has the file open keeps it.
func (f *File) BuryLocked() {
	f.mu.AssertHeld()
	stopReadingLocked(f)
	if f.packing != nil {
		f.packing.letGoLocked()
	}
	f.c.unsynced.release(f)
}

// Sync makes the inode durable: bytes, record, attributes and, on the filesystems in use, its name. No lock
// is held. If the disk did not take the bytes, this is noted: see distrust.
func (f *File) Sync() error {
	f.mu.Lock()
	raw, gen := f.src.raw, f.bytes.gen
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
	err = f.c.Fsync(fd, false)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		distrust{f}.noteLocked(err)
	case f.bytes.gen == gen && f.users.writers == 0:
		f.c.unsynced.release(f)
	}
	return err
}

// ReadFailed logs a failed read with what it struck, and returns what the program gets: EIO.
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
