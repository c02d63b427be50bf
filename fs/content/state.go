package content

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"ckptfs/cas"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// Lock takes the file's mu: what its transitions and its writers wait for. It comes before every other lock.
func (f *File) Lock() { f.mu.Lock() }

// Unlock gives mu back.
func (f *File) Unlock() { f.mu.Unlock() }

// Node is the inode that the file is the bytes of.
func (f *File) Node() Inode { return f.node }

// State is what a File knows of itself at one moment.
type State struct {
	Record    tree.Record // once LoadLocked has read it
	Damage    error       // why the file cannot be opened, or nil
	Moved     bool        // a transition was made: what was seen of the inode before the lock may be old
	Gen       uint64      // grows with everything that may change the bytes
	Dirty     bool        // changed since it was packed or found to stay as it is
	Writers   int         // handles that may write
	Open      bool        // a program has it open
	InUse     bool        // a program or a reader of this process has it open
	Hydrating bool        // the local copy is being written from the manifest
}

// StateLocked is the file's state, for as long as mu is held.
func (f *File) StateLocked() State {
	return State{
		Record: f.rec, Damage: f.damaged, Moved: f.moved, Gen: f.gen, Dirty: f.dirty, Writers: f.writers,
		Open: f.pass+f.cached+f.direct > 0, InUse: f.users() > 0, Hydrating: f.hydrating,
	}
}

// Packed reports whether the file has a manifest.
func (s State) Packed() bool { return s.Record.Packed() }

// Resident reports whether the file has a manifest and a local copy of its bytes, as far as its record says.
func (s State) Resident() bool { return s.Record.Packed() && !s.Record.Hollow }

// SetDirtyLocked has the file packed: nobody knows whether it is.
func (f *File) SetDirtyLocked() { f.dirty = true }

// MendLocked takes a damage away: the record was mended.
func (f *File) MendLocked() { f.damaged, f.vetted, f.loaded = nil, true, true }

// UseLocked counts readers of this process in or out, for whom the source is open, and returns how many there are.
func (f *File) UseLocked(more int) (left int) {
	f.inside += more
	return f.inside
}

// NewLocked says that the file was made just now.
func (f *File) NewLocked() { f.loaded, f.vetted = true, true }

// AwaitRelease waits until every writer that was closed is released, or ctx ends.
func (f *File) AwaitRelease(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writers == 0 || f.flushed < f.writers {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cond.Broadcast()
	})
	defer stop()
	for f.writers > 0 && f.flushed >= f.writers && ctx.Err() == nil {
		f.cond.Wait()
	}
}

// PackedSizeLocked is the length that the manifest says of a packed file that is open; 0 for others.
func (f *File) PackedSizeLocked() int64 {
	if f.asm == nil {
		return 0
	}
	return f.asm.Size()
}

// HideViewLocked sets whether the file is without its view.
func (f *File) HideViewLocked(hidden bool) error {
	rec := f.rec
	if rec.ViewHidden == hidden {
		return nil
	}
	rec.ViewHidden = hidden
	return f.WriteRecordLocked(rec)
}

// ViewSizeLocked is the size of the file's view, or 0. Of a file that is not packed it is measured once for each generation of its bytes.
func (f *File) ViewSizeLocked() int64 {
	if f.rec.Packed() {
		return f.rec.ViewSize
	}
	if f.viewGen == f.gen+1 { // measured
		return f.viewSize
	}
	f.viewGen, f.viewSize = f.gen+1, 0
	raw, err := f.OpenQuietly()
	if err != nil {
		return 0
	}
	defer raw.Close()
	st, err := raw.Stat()
	if err != nil {
		return 0
	}
	layout, err := f.Detect(raw, st.Size())
	if err != nil {
		return 0
	}
	f.viewSize = view.SizeOf(layout)
	return f.viewSize
}

// TouchedLocked is touch after something that succeeded.
func (f *File) TouchedLocked() {
	if err := f.touch(); err != nil {
		f.c.report(slog.LevelWarn, "the change time of a file was not kept", "path", f.node.Path(), "reason", err)
	}
}

// HeaderLocked reads the header of a hollow file.
func (f *File) HeaderLocked() (tree.Header, error) {
	raw, err := f.OpenQuietly()
	if err != nil {
		return tree.Header{}, err
	}
	defer raw.Close()
	head := make([]byte, tree.HeaderSize)
	if _, err := raw.ReadAt(head, 0); err != nil && err != io.EOF {
		return tree.Header{}, err
	}
	h, err := tree.DecodeHeader(head)
	if err == nil && h.Store != f.c.ID {
		err = fmt.Errorf("header of a hollow file: of another store: %w", cas.ErrCorrupt)
	}
	return h, err
}

// Path is where the file lies below the mount's root, by one of its names.
func (f *File) Path() string { return f.node.Path() }

// Dead reports whether no name leads to the file.
func (f *File) Dead() bool { return f.node.Dead() }

// Pin keeps the file known until as many Unpins.
func (f *File) Pin() { f.node.Pin() }

// Unpin ends one Pin.
func (f *File) Unpin() { f.node.Unpin() }
