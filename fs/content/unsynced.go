package content

import (
	"os"

	"ckptfs/cas/locks"
)

// unsyncedInodes keeps the inodes of plain files in memory from the last close on until their bytes are
// durable or packed, at most most. The kernel may forget an inode that nobody has open, and with it that
// it could not write the bytes: then no sync of that file fails, and only syncfs tells.
type unsyncedInodes struct {
	mu     locks.Mutex[leafLock]
	kept   map[*File]unsyncedInode
	most   int  // that are kept
	missed bool // some inode could not be kept, or not long enough
}

type unsyncedInode struct {
	own   *os.File // O_PATH: it hinders no process
	after uint64   // the bytes are durable once this sync of the filesystem succeeded
}

// again notes that a file whose inode is kept is unsynced until sync number after. false: it is not kept.
func (u *unsyncedInodes) again(f *File, after uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	k, is := u.kept[f]
	if is {
		k.after = after
		u.kept[f] = k
	}
	return is
}

// keep keeps a file's inode, which is unsynced until sync number after. own is its, and nil if it could not
// be opened.
func (u *unsyncedInodes) keep(f *File, after uint64, own *os.File) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case own == nil:
		u.missed = true
	case len(u.kept) >= u.most:
		own.Close()
		u.missed = true
	default:
		u.kept[f] = unsyncedInode{own, after}
	}
}

// release lets go of a file's inode, and reports whether it was kept.
func (u *unsyncedInodes) release(f *File) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	k, is := u.kept[f]
	if is {
		k.own.Close()
		delete(u.kept, f)
	}
	return is
}

// Shed lets go of the inodes of closed files that are kept in memory, for want of descriptors. What was not
// written of them only a sync of the whole filesystem tells.
func (c *Files) Shed() {
	u := &c.unsynced
	u.mu.Lock()
	defer u.mu.Unlock()
	for f, k := range u.kept {
		k.own.Close()
		delete(u.kept, f)
		u.missed = true
	}
}

// begin begins a sync of the filesystem. The caller says whether it failed.
func (u *unsyncedInodes) begin() (missed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	missed, u.missed = u.missed, false
	return missed
}

// miss has the filesystem asked.
func (u *unsyncedInodes) miss() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.missed = true
}

// held lets go of what a sync of the filesystem made durable.
func (u *unsyncedInodes) held(sync uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for f, k := range u.kept {
		if k.after <= sync {
			k.own.Close()
			delete(u.kept, f)
		}
	}
}

// Missed reports whether only a sync of the whole filesystem tells what was not written: of some file the
// kernel may have forgotten it.
func (c *Files) Missed() bool {
	c.unsynced.mu.Lock()
	defer c.unsynced.mu.Unlock()
	return c.unsynced.missed
}

// Miss makes it so: an earlier process may have left such files.
func (c *Files) Miss() { c.unsynced.miss() }

// keepUnsyncedLocked keeps the inode of a plain file in memory that has no writer any more.
func keepUnsyncedLocked(f *File) {
	f.mu.AssertHeld()
	f.c.syncs.wanted.Store(true)
	u, after := &f.c.unsynced, f.c.syncs.begun.Load()+1
	if u.again(f, after) {
		return
	}
	raw := f.src.raw
	if raw == nil {
		own, err := f.OpenQuietly()
		if err != nil {
			u.miss()
			return
		}
		defer own.Close()
		raw = own
	}
	u.keep(f, after, keepInode(raw))
}
