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

// RecordLocked is the file's record, once it was loaded.
func (f *File) RecordLocked() tree.Record { return f.rec }

// GenLocked counts everything that may change the bytes.
func (f *File) GenLocked() uint64 { return f.gen }

// DamageLocked is why the file cannot be opened, or nil.
func (f *File) DamageLocked() error { return f.damaged }

// WritersLocked is how many handles may write.
func (f *File) WritersLocked() int { return f.writers }

// DirtyLocked reports whether the file changed since it was packed or found to stay as it is.
func (f *File) DirtyLocked() bool { return f.dirty }

// HydratingLocked reports whether the bytes are being written from the manifest.
func (f *File) HydratingLocked() bool { return f.hydrating }

// OpenLocked reports whether a program has the file open.
func (f *File) OpenLocked() bool { return f.pass+f.cached+f.direct > 0 }

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

// PackedLocked reports whether the file has a manifest.
func (f *File) PackedLocked() bool { return f.rec.Packed() }

// MovedLocked reports whether a transition was made of the file: what was seen of its inode before the lock may be old.
func (f *File) MovedLocked() bool { return f.moved }

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
