package content

import (
	"context"
	"time"

	"ckptfs/fs/tree"
)

// State is what a File knows of itself at one moment.
type State struct {
	Record     tree.Record // once LoadLocked has read it
	Damage     error       // why the file cannot be opened, or nil
	Moved      bool        // a transition was made: what was seen of the inode before the lock may be old
	Gen        uint64      // grows with everything that may change the bytes
	Dirty      bool        // changed since it was packed or found to stay as it is
	Emptied    uint64      // how often it was truncated to nothing
	Writers    int         // handles that may write
	Open       bool        // a program has it open
	InUse      bool        // a program or a reader of this process has it open
	Hydrating  bool        // the local copy is being written from the manifest
	Kept       int         // how often eviction failed and had it packed again, since it last succeeded
	PackedSize int64       // the length by its manifest, of a packed file that is read by it now; else 0
}

// StateLocked is the file's state, for as long as mu is held.
func (f *File) StateLocked() State {
	f.mu.AssertHeld()
	s := State{
		Record: f.rec, Damage: f.damaged, Moved: f.moved, Hydrating: f.local.hydrating,
		Gen: f.bytes.gen, Dirty: f.bytes.dirty, Emptied: f.bytes.emptied,
		Kept:    f.local.kept,
		Writers: f.users.writers, Open: f.users.open(), InUse: f.users.all() > 0,
	}
	if f.src.asm != nil {
		s.PackedSize = f.src.asm.Size()
	}
	return s
}

// Packed reports whether the file has a manifest.
func (s State) Packed() bool { return s.Record.Packed() }

// Resident reports whether the file has a manifest and a local copy of its bytes, as far as its record says.
func (s State) Resident() bool { return s.Record.Packed() && !s.Record.Hollow }

// NewLocked says that the file was made just now.
func (f *File) NewLocked() { f.loaded, f.vetted = true, true }

// SetDirtyLocked has the next packing look at the file: it is not known whether it is to be packed.
func (f *File) SetDirtyLocked() { f.bytes.dirty = true }

// closedGrace is how long Closed waits. Who waited in vain waits again after ten times as long: a program may
// have closed a copy of a descriptor that it goes on writing by.
const closedGrace = 200 * time.Millisecond

// Closed waits shortly for the kernel to tell of the last close(2) of a file, which returned already: what
// looks at files that nobody writes is to find one that was just saved. No lock is held.
func Closed(f *File) {
	f.mu.Lock()
	wait := f.users.closed() && time.Now().After(f.users.vain)
	f.mu.Unlock()
	if !wait {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), closedGrace)
	defer stop()
	if f.AwaitRelease(ctx); ctx.Err() != nil {
		f.mu.Lock()
		f.users.vain = time.Now().Add(10 * closedGrace)
		f.mu.Unlock()
	}
}

// AwaitRelease waits until every writer that was closed is released, or ctx ends.
func (f *File) AwaitRelease(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.users.closed() {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cond.Broadcast()
	})
	defer stop()
	for f.users.closed() && ctx.Err() == nil {
		f.cond.Wait()
	}
}
