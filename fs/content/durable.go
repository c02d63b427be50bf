package content

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/tree"
)

// Writeback may fail long after write(2) has succeeded. The kernel then takes the pages for clean, so that
// they may go, and what the disk has is read from then on. It tells of the failure once, to each descriptor
// that was open before, and, if none was told yet, to one that is opened later. So a sync that succeeds
// says something of those bytes alone that were written after its descriptor was opened, or if nothing failed
// that another descriptor was told of.

// A local copy may be made the file, in place of its manifest, if it is known to be durable:
//
//   - it was hydrated, and synced on the descriptor that it was written by;
//   - a sync of the whole filesystem succeeded since, on a descriptor that is open since the start;
//   - or the inode was kept in memory since before it was read to be packed. What failed before that was met
//     at the last close or by the packing. What fails later is told to a new descriptor: no program has one.
//
// Any other copy is hydrated afresh, or, while the kernel reads it for programs, read from the disk: see
// verify.go. One of which a sync failed is made hollow: see distrust.

// syncs numbers the syncs of the filesystem.
type syncs struct {
	mu          locks.Mutex[syncingLock] // held over a SyncAll
	begun, held atomic.Uint64            // the last one that began; the last that succeeded of those
	wanted      atomic.Bool              // something was written that none of them covers
	forgotten   forgotten
	kept        atomic.Int64 // inodes that are kept in memory for local copies, at most most
	most        int64
}

const (
	durable  = 0              // localCopy.after of a copy that is known to be durable
	unknown  = math.MaxUint64 // of one that an earlier process left
	mostKept = 1024           // of each kind of inode that is kept in memory
)

// SyncAll makes everything durable, and knows then that the local copies are that were there before. syncfs
// is syncfs(2) of the store's filesystem, by one descriptor that is open since the start. then is called with
// its error before another SyncAll begins, and tells every file by Suspect: the kernel told this one alone,
// and another that succeeded would hold for durable what this one rejects.
func (c *Files) SyncAll(syncfs func() error, then func(error)) {
	c.syncs.mu.Lock()
	defer c.syncs.mu.Unlock()
	c.syncs.wanted.Store(false)
	missed := c.unsynced.begin()
	n := c.syncs.begun.Add(1)
	if err := syncfs(); err != nil {
		c.Count.SyncErrs.Add(1)
		c.syncs.forgotten.miss(n)
		c.syncs.wanted.Store(true)
		if missed {
			c.unsynced.miss()
		}
		then(err)
		return
	}
	c.unsynced.held(n)
	c.syncs.held.Store(n)
	c.syncs.forgotten.held(n)
	then(nil)
}

// Unsynced reports whether something was written since the last SyncAll that succeeded.
func (c *Files) Unsynced() bool { return c.syncs.wanted.Load() }

// fsync makes an inode durable; with data set, its bytes and its size alone.
func fsync(fd int, data bool) error {
	sync := unix.Fsync
	if data {
		sync = unix.Fdatasync
	}
	for {
		if err := sync(fd); err != unix.EINTR {
			return err
		}
	}
}

// durable reports whether the copy is known to be durable, or a new descriptor would be told if it is not.
func (l *localCopy) durable(c *Files) bool { return l.after <= c.syncs.held.Load() || l.inode != nil }

// came notes what is known of a copy that came. inode, which may be nil, keeps its inode in memory, and is
// the copy's from now on.
func (l *localCopy) came(c *Files, after uint64, inode *os.File) {
	l.forget(c)
	l.after = after
	if inode != nil && c.syncs.kept.Add(1) > c.syncs.most {
		c.syncs.kept.Add(-1)
		inode.Close()
		inode = nil
	}
	l.inode = inode
}

// forget lets go of what came was given.
func (l *localCopy) forget(c *Files) {
	if l.inode != nil {
		l.inode.Close()
		l.inode = nil
		c.syncs.kept.Add(-1)
	}
}

// keepInode opens the inode of an open file so that it stays in memory, and with it what is known there of
// its writeback. It hinders no process: no lease breaks. nil if that cannot be.
func keepInode(own *os.File) *os.File {
	fd, err := unix.Open(tree.FdPath(int(own.Fd())), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), own.Name())
}

// Settled lets go of what was needed to know that a local copy is durable, once it is. It is told of every
// file that a node has, as is Suspect.
func (c *Files) Settled(f *File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local.after <= c.syncs.held.Load() {
		f.local.forget(c)
	}
}

// Suspect is told that writeback of some inode failed, perhaps that of a packed file whose local copy is not
// known to be durable.
func (c *Files) Suspect(f *File, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec.Packed() && !f.rec.Hollow && f.local.after > c.syncs.held.Load() {
		distrust{f}.noteLocked(why)
	}
}

// NotWritten reports whether the kernel tells of a packed file that its inode could not be written. Of a
// hollow one that is no loss: its bytes are in the segments, and the next start mends its header.
func (c *Files) NotWritten(f *File) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	own, err := f.OpenQuietly()
	if err != nil {
		return false
	}
	defer own.Close()
	if err = c.Failed(int(own.Fd())); err != nil {
		distrust{f}.noteLocked(err)
	}
	return err != nil
}

// doubt notes that the disk says of some file what is not so.
func (c *Files) doubt() {
	c.Doubt.Store(true)
	c.Doubt.Tell()
}

// distrust is of a file of whose inode writeback failed, or may have. File.mu is held.
type distrust struct{ f *File }

// noteLocked has a packed file be read by its manifest from now on. Of a plain one it tells Events, since it
// may have lost bytes.
func (d distrust) noteLocked(why error) {
	f := d.f
	f.mu.AssertHeld()
	f.c.Count.NotWritten.Add(1)
	err := f.LoadLocked()
	switch {
	case f.c.readOnly || f.Dead():
	case err != nil:
		f.c.events.Lost(f, why)
	case !f.rec.Packed():
		d.markLocked()
		f.c.events.Lost(f, why)
	case f.local.hydrating: // which finds out by itself
		if !f.rec.Hollow { // it is being verified
			f.local.forget(f.c)
			f.local.after = unknown
		}
	case !f.rec.Hollow:
		if err := d.rejectLocked(); err != nil {
			f.local.after = unknown
			f.c.report(slog.LevelError, "the local copy of a packed file may not be on the disk, and it cannot be read by its manifest; keeping the local copy",
				"path", f.Path(), "reason", errors.Join(why, err))
			return
		}
		f.c.report(slog.LevelWarn, "the local copy of a packed file may not be on the disk; the file is read by its manifest",
			"path", f.Path(), "reason", why)
	}
}

// errLost: an earlier process was told, or it was of another file of which this one is a copy.
var errLost = errors.New("some of what was written did not reach the disk")

// markLocked writes into the record of a plain file that it may have lost bytes: later processes are to know.
func (d distrust) markLocked() {
	f := d.f
	if f.rec.Lost || f.rec.Emptying {
		return
	}
	f.moved = true
	rec := tree.Record{ViewHidden: f.rec.ViewHidden, Literal: f.rec.Literal, Lost: true}
	err := f.c.Step("lost: record")
	if err == nil {
		err = f.writeRecordLocked(rec)
	}
	if err != nil {
		f.c.doubt()
		f.c.report(slog.LevelError, "a file may have lost bytes, and the next daemon will not know", "path",
			f.Path(), "reason", err)
	}
}

// rejectLocked makes a resident file hollow, also one in use. The bytes are dropped only if no process has
// the inode open or mapped past this process: a descriptor that the kernel serves reads on from them.
func (d distrust) rejectLocked() error {
	f := d.f
	err := f.c.readable(&f.rec)
	if err == nil && !f.rec.Remote {
		err = f.c.prove(f.rec.Manifest)
	}
	if err != nil {
		return err // the local copy may be all there is
	}
	if f.users.all() > 0 {
		if err := openAsmLocked(f); err != nil {
			return err
		}
	}
	f.src.setRaw(nil, false)
	f.local.forget(f.c)
	rec := f.rec
	rec.Hollow = true
	err = f.c.Step("distrust: record")
	if err == nil {
		err = f.writeRecordLocked(rec)
	}
	if err != nil { // the disk goes on saying that the file is resident: this process does not
		f.rec = rec
		f.c.doubt()
	}
	f.moved, f.users.stale = true, true
	f.c.events.Resident(f, 0)
	f.local.left = true
	d.dropLeftLocked()
	return nil
}

// dropHydratedLocked drops the bytes of a file that could not be hydrated and is hollow still. own is open on
// the inode.
func (d distrust) dropHydratedLocked(own *os.File, size int64) {
	f := d.f
	switch {
	case !f.rec.Hollow || f.Dead():
	case f.users.pass > 0 || f.local.left: // a program uses them
		f.local.left = true
	default:
		f.dropBytesLocked(own, size)
	}
}

// dropLeftLocked drops the bytes that a file has that was made hollow while it was in use, once it is not.
func (d distrust) dropLeftLocked() {
	f := d.f
	if !f.local.left || !f.rec.Hollow || f.local.hydrating || f.users.pass > 0 || f.Dead() {
		return
	}
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return
	}
	defer own.Close()
	release, err := tree.Alone(int(own.Fd()))
	if err == nil {
		defer release()
	} else if errors.Is(err, tree.ErrInUse) || f.c.Passthrough.Load() {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(int(own.Fd()), &st) == nil {
		f.local.left = false
		f.dropBytesLocked(own, st.Size)
	}
}
