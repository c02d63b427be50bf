package content

import (
	"log/slog"

	"ckptfs/cas/locks"
)

// forgotten is what has to be remembered of resident files that nobody holds any more: by inode, the sync of
// the filesystem after which the local copy is durable (localCopy.after).
type forgotten struct {
	mu    locks.Mutex[leafLock]
	after map[uint64]uint64 // of those that are not durable
}

// Forgotten notes what is to be known of the file when it is found again. Nobody has it any more, and nobody
// has found it again yet.
func (f *File) Forgotten() {
	c, after := f.c, f.local.after
	if !f.rec.Packed() || f.rec.Hollow || after <= c.syncs.held.Load() || c.Unclean { // see believeLocked
		return
	}
	c.forgotten.mu.Lock()
	defer c.forgotten.mu.Unlock()
	if after <= c.syncs.failed.Load() {
		after = unknown
	}
	c.forgotten.after[f.node.Ino()] = after
}

// take is the sync after which a local copy is durable that was forgotten.
func (g *forgotten) take(ino uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	after := g.after[ino]
	delete(g.after, ino)
	return after
}

// settle notes that a sync succeeded.
func (g *forgotten) settle(sync uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ino, after := range g.after {
		if after <= sync {
			delete(g.after, ino)
		}
	}
}

// suspect notes that a sync failed: no later one says that these copies are durable.
func (g *forgotten) suspect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ino := range g.after {
		g.after[ino] = unknown
	}
}

// believeLocked finds out what is known of the local copy of a file whose record was read just now.
func (f *File) believeLocked() error {
	f.mu.AssertHeld()
	c := f.c
	f.local.after = c.forgotten.take(f.node.Ino())
	if c.Unclean {
		f.local.after = unknown
	}
	if !c.Doubt.Load() || !f.rec.Packed() || f.rec.Hollow {
		return nil
	}
	if !c.Counted(f.node.Ino()) { // recovery could not look here
		return f.DisbelieveLocked()
	}
	if f.local.after != unknown {
		return nil // a sync that fails will say so
	}
	if err := (distrust{f}).rejectLocked(); err != nil {
		f.local.after = unknown
		c.report(slog.LevelError, "the local copy of a packed file may not be on the disk, and it cannot be read by its manifest; keeping the local copy",
			"path", f.Path(), "reason", err)
	}
	return nil
}
