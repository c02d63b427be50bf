package content

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/cas/pages"
	"ckptfs/fs/tree"
)

// A local copy of which it is not known whether the disk has it cannot be filled afresh under a program that
// the kernel serves from it. It is read from the disk then, past the page cache, and compared with what the
// manifest says: the page cache proves nothing, since it keeps pages that the disk did not take. Who was told
// of a failure does not matter.

var (
	errNotOnDisk  = errors.New("the disk has other bytes than were packed")
	errUnverified = errors.New("this filesystem cannot be read past its page cache")
)

// openPast opens an inode to be read past the page cache.
func openPast(n Inode) (*os.File, error) { return openQuietly(n, unix.O_RDONLY|unix.O_DIRECT) }

// verifiedLocked opens the inode of a resident file if the disk has all of its bytes, or they are all there
// is. What fails from now on is told to the descriptor. mu is released while the disk is read, and
// local.hydrating is set.
func (u unpacking) verifiedLocked() (*os.File, error) {
	f := u.f
	if err := f.c.readable(&f.rec); err != nil {
		return f.OpenQuietly()
	}
	own, err := f.OpenQuietly()
	if err != nil {
		return nil, err
	}
	rec := f.rec
	f.local.hydrating = true
	f.mu.Unlock()
	err = u.verify(&rec)
	f.mu.Lock()
	f.local.hydrating = false
	f.cond.Broadcast()
	if err == nil {
		return own, nil
	}
	own.Close()
	var bad *sourceError
	switch {
	case errors.As(err, &bad):
		return nil, f.ReadFailed(bad.off, bad.err)
	case errors.Is(err, errNotOnDisk):
		distrust{f}.noteLocked(err)
		return nil, errCopyInUse
	case errors.Is(err, errUnverified):
		return nil, errCopyInUse
	}
	return nil, err
}

// verify reads the local copy from the disk. No lock is held. The error is errNotOnDisk when that has not all
// that the manifest has, errUnverified when it cannot be known, and a *sourceError when the manifest cannot
// be read.
func (u unpacking) verify(rec *tree.Record) error {
	c := u.f.c
	src, err := c.openPacked(rec)
	if err != nil {
		return &sourceError{0, err}
	}
	defer src.Close()
	past, err := c.Past(u.f.node)
	if err == unix.EINVAL || err == unix.EOPNOTSUPP {
		return errUnverified
	}
	if err != nil {
		return err
	}
	defer past.Close()
	if err := c.Step("verify"); err != nil {
		return err
	}
	st, err := past.Stat()
	if err != nil {
		return err
	}
	if st.Size() != src.Size() {
		return errNotOnDisk
	}
	// A block that was never written reads as zeros, and may be one of zeros that was not taken: then what is
	// written over it may be lost, too; see hydration.openLocked.
	switch written, err := tree.AllWritten(int(past.Fd()), st.Size()); {
	case err == unix.ENOTTY || err == unix.EOPNOTSUPP || err == unix.EINVAL || err == unix.EBADR:
		return errUnverified
	case err != nil || !written:
		return errors.Join(errNotOnDisk, err)
	}
	return compare(past, src, st.Size())
}

// pastStep is how much is read from the disk at a time.
const pastStep = 1 << 20

var pastBufs = pages.NewPool(pastStep)

// compare compares a file that is read past the page cache with what it should be.
func compare(past *os.File, src io.ReaderAt, size int64) error {
	var g errgroup.Group
	g.SetLimit(4)
	for off := int64(0); off < size; off += pastStep {
		g.Go(func() error {
			has, want := pastBufs.Get(), pastBufs.Get()
			defer pastBufs.Put(has)
			defer pastBufs.Put(want)
			p := want.Bytes[:min(pastStep, size-off)]
			if k, err := src.ReadAt(p, off); k < len(p) {
				if err == nil || err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return &sourceError{off, err}
			}
			k, err := pread(past, has.Bytes, off)
			switch {
			case err == unix.EINVAL:
				return errUnverified
			case err != nil || !bytes.Equal(has.Bytes[:max(k, 0)], p):
				return errors.Join(errNotOnDisk, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// pread is pread(2) of whole pages, which is short at the end of the file alone.
func pread(past *os.File, p []byte, off int64) (int, error) {
	for {
		k, err := unix.Pread(int(past.Fd()), p, off)
		if err != unix.EINTR {
			return k, err
		}
	}
}
