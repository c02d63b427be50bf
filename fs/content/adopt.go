package content

import (
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// Adopt makes an empty file f, which was made just now and has no name yet, the packed file of a manifest,
// with a modification time in nanoseconds since 1970. The error wraps cas.ErrNotFound or cas.ErrCorrupt when
// the store does not have all of that file.
func Adopt(f *File, h cas.Hash, mtime int64) error {
	c := f.c
	c.Cloning.RLock() // a mark is to see the manifest
	defer c.Cloning.RUnlock()
	m, err := c.Complete(h)
	if err != nil {
		return err
	}
	rec := tree.Record{Manifest: h, Hollow: true, Mtime: mtime, Ctime: c.now().UnixNano(),
		ViewSize: viewSizeOf(m)}
	return adopt(f, rec, m.Size)
}

// adopt gives a file that was made just now its record and size.
func adopt(f *File, rec tree.Record, size int64) error {
	if size < tree.HeaderSize {
		return fmt.Errorf("a file of %d bytes is never packed: %w", size, unix.EINVAL)
	}
	c := f.c
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return err
	}
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	if st, err := own.Stat(); err != nil || st.Size() != 0 || f.rec != (tree.Record{}) {
		return fmt.Errorf("%s: not a new file: %w", f.Path(), unix.EEXIST)
	}
	if err := c.Step("adopt: record"); err != nil {
		return err
	}
	if err := f.writeRecordLocked(rec); err != nil {
		return err
	}
	f.changedLocked()
	f.bytes.dirty, f.moved, f.vetted = false, true, true
	c.events.Packed(f)
	c.events.Resident(f, 0)
	if err := c.Step("adopt: size"); err != nil {
		return err
	}
	if err := own.Truncate(size); err != nil {
		return err
	}
	f.dropBytesLocked(own, size)
	return nil
}
