package content

import (
	"log/slog"

	"ckptfs/cas/locks"
)

// forgotten is what has to be remembered of resident files that nobody holds any more: by inode, the sync of
// the filesystem after which the local copy is durable (localCopy.after).
type forgotten struct {
	mu     locks.Mutex[leafLock]
	after  map[uint64]uint64 // of those that are not durable
	failed uint64            // copies that were to be durable after a sync up to this one are suspect
}

// Forgotten notes what is to be known of a file when it is found again. Nobody has it any more, and nobody
// has found it again yet.
func (c *Files) Forgotten(f *File) {
	f.local.forget(c) // Settled does not come to it any more
	after := f.local.after
	if !f.rec.Packed() || f.rec.Hollow || after <= c.syncs.held.Load() || c.Unclean { // see believeLocked
		return
	}
	g := &c.syncs.forgotten
	g.mu.Lock()
	defer g.mu.Unlock()
	g.after[f.node.Ino()] = after
}

// take is the sync after which a local copy is durable that was forgotten.
func (g *forgotten) take(ino uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	after := g.after[ino]
	delete(g.after, ino)
	if after > 0 && after <= g.failed {
		return unknown
	}
	return after
}

// held notes that a sync succeeded.
func (g *forgotten) held(sync uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ino, after := range g.after {
		if g.failed < after && after <= sync {
			delete(g.after, ino)
		}
	}
}

// miss notes that a sync failed: no later one says that a copy is durable that is there now.
func (g *forgotten) miss(sync uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = sync + 1
}

// believeLocked finds out what is known of the local copy of a file whose record was read just now.
func (d distrust) believeLocked() error {
	f, c := d.f, d.f.c
	f.mu.AssertHeld()
	// A load that failed after this is tried again: what it took stays known.
	f.local.after = max(f.local.after, c.syncs.forgotten.take(f.node.Ino()))
	if c.Unclean {
		f.local.after = unknown
	}
	if !c.Doubt.Load() || !f.rec.Packed() || f.rec.Hollow {
		return nil
	}
	if !c.Doubt.Counted(f.node.Ino()) { // recovery could not look here
		return f.DisbelieveLocked()
	}
	if f.local.after != unknown {
		return nil // a sync that fails will say so
	}
	if err := d.rejectLocked(); err != nil {
		f.local.after = unknown
		c.report(slog.LevelError, "the local copy of a packed file may not be on the disk, and it cannot be read by its manifest; keeping the local copy",
			"path", f.Path(), "reason", err)
	}
	return nil
}
