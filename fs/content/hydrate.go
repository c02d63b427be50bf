package content

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"ckptfs/fs/tree"
)

// Hydrate fills in the bytes of a packed file, if they are not in place, and returns its size.
func (f *File) Hydrate() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return 0, err
	}
	if !f.rec.Hollow || f.Dead() {
		return 0, nil
	}
	if err := f.hydrateLocked(); err != nil {
		return 0, err
	}
	return f.UnpackedLocked(), nil
}

// hydrateLocked is hydrate with f.mu held; it is released while the bytes are written. Until the flag hollow goes, the
// manifest is read. The bytes are a cache: whole when the flag goes, and not durable.
func (f *File) hydrateLocked() error {
	for f.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Hollow {
		return nil
	}
	own, err := f.node.Open(os.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	f.hydrating, f.moved = true, true
	rec := f.rec
	f.mu.Unlock()
	size, err := f.fill(own, rec)
	f.mu.Lock()
	f.hydrating = false
	f.cond.Broadcast()
	filled := err == nil
	if filled {
		err = f.hydrated(own)
	}
	if err != nil {
		if !filled && !f.Dead() { // a record that failed to be written may have been, all the same
			f.giveUp(own, size)
		}
		return err
	}
	if !f.Dead() {
		f.c.events.Resident(f, size)
		f.c.Count.HydratedFiles.Add(1)
		f.c.Count.HydratedBytes.Add(size)
	}
	if f.users() > 0 {
		return f.openRaw(false)
	}
	return nil
}

// hydrated ends a hydration. f.mu is held.
func (f *File) hydrated(own *os.File) error {
	if err := f.c.Step("hydrate: mtime"); err != nil {
		return err
	}
	if err := tree.SetMtime(int(own.Fd()), f.rec.Mtime); err != nil {
		return err
	}
	if err := f.c.Step("hydrate: record"); err != nil {
		return err
	}
	rec := f.rec
	rec.Hollow = false
	return f.WriteRecordLocked(rec)
}

// fill writes a packed file's bytes into its inode, and returns their number, which is right after a failure too.
func (f *File) fill(own *os.File, rec tree.Record) (int64, error) {
	st, err := own.Stat()
	if err != nil {
		return 0, err
	}
	src, err := f.c.asm.Open(rec.Manifest)
	if err != nil {
		return st.Size(), f.OpenFailed(err)
	}
	defer src.Close()
	if err := f.c.Step("hydrate: bytes"); err != nil {
		return st.Size(), err
	}
	if err := f.c.copyParallel(own, src, src.Size()); err != nil {
		var bad *sourceError
		if errors.As(err, &bad) {
			return src.Size(), f.ReadFailed(bad.off, bad.err)
		}
		return src.Size(), err
	}
	if st.Size() != src.Size() { // somebody was at the store
		return src.Size(), own.Truncate(src.Size())
	}
	return src.Size(), nil
}

// sourceError tells a read that failed from a write that did.
type sourceError struct {
	off int64
	err error
}

func (e *sourceError) Error() string { return fmt.Sprintf("at %d: %v", e.off, e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// copyParallel copies size bytes by a few workers, each in steps of 4 MiB.
func (c *Files) copyParallel(dst *os.File, src io.ReaderAt, size int64) error {
	const step = 4 << 20
	var g errgroup.Group
	g.SetLimit(4)
	for off := int64(0); off < size; off += step {
		g.Go(func() error {
			buf := c.copyBufs.Get().(*[]byte)
			defer c.copyBufs.Put(buf)
			p := (*buf)[:min(step, size-off)]
			if k, err := src.ReadAt(p, off); k < len(p) {
				if err == nil || err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return &sourceError{off, err}
			}
			_, err := dst.WriteAt(p, off)
			return err
		})
	}
	return g.Wait()
}
