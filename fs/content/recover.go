package content

import (
	"fmt"
	"io"
	"log/slog"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// DisbelieveLocked makes a packed file hollow whose local copy may be wrong, or that was cut off on
// its way to be hollow, and gives it the manifest's size.
func (f *File) DisbelieveLocked() error {
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	if !f.rec.Hollow {
		rec := f.rec
		rec.Hollow = true
		if err := f.writeRecordLocked(rec); err != nil {
			return err
		}
	}
	f.moved = true
	st, err := own.Stat()
	if err != nil {
		return err
	}
	has, err := f.c.packedSize(&f.rec)
	if err != nil { // the local copy may be all there is, for a repair to move aside
		f.c.report(slog.LevelError,
			"the manifest of a packed file cannot be read; its local copy stays and is not believed",
			"path", f.Path(), "reason", err)
		return nil
	}
	size := st.Size()
	if has != size {
		if err := own.Truncate(has); err != nil {
			return err
		}
		size = has
	}
	f.dropBytesLocked(own, size)
	return nil
}

// HeadedLocked reports whether a hollow file of this size has the header that says so.
func (f *File) HeadedLocked(size int64) bool {
	raw, err := f.OpenQuietly()
	if err != nil {
		return false
	}
	defer raw.Close()
	head, err := readHead(raw, size)
	if err != nil {
		return false
	}
	h, err := tree.DecodeHeader(head)
	return err == nil && h.Size == size && h.Record.Manifest == f.rec.Manifest
}

// HeaderLocked reads the header of a hollow file. The error wraps cas.ErrCorrupt when it is another store's.
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

// RestoreLocked gives a damaged hollow file the record that its header has. What lies behind the header
// becomes holes again, of the right size.
func (f *File) RestoreLocked(rec tree.Record) error {
	if err := f.writeRecordLocked(rec); err != nil {
		return err
	}
	f.damaged, f.vetted, f.loaded = nil, true, true
	return f.DisbelieveLocked()
}
