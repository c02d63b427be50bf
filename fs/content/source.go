package content

import (
	"errors"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/fs/assemble"
)

// source is what reads of a file go to: the local copy if it is open, else the packed file.
//
// io is taken shared around a read or a write, and exclusively, for a moment, around a change of raw, rw or
// asm. A change needs File.mu, too, or the last reference to the file; so under File.mu they may be looked
// at.
type source struct {
	io    locks.RWMutex[sourceLock]
	raw   *os.File    // the local copy
	rw    bool        // raw is open for writing too; implies raw != nil
	asm   *packedFile // the packed file
	asmOf cas.Hash    // the manifest of asm; guarded by File.mu
}

// errNoSource: what reads go to is not open, for the moment or since a transition failed; see
// Handle.readAgain.
var errNoSource = errors.New("no source")

// setRaw replaces raw, which may be nil before and after.
func (s *source) setRaw(raw *os.File, rw bool) {
	s.io.Lock()
	defer s.io.Unlock()
	if s.raw != nil {
		s.raw.Close()
	}
	s.raw, s.rw = raw, rw
}

// openAsmLocked makes asm the packed file of f's manifest.
func openAsmLocked(f *File) error {
	s, of := &f.src, f.rec.Manifest
	if s.asm != nil && s.asmOf == of { // else a transition failed halfway
		return nil
	}
	asm, err := f.c.openPacked(&f.rec)
	if err != nil {
		return err
	}
	s.io.Lock()
	defer s.io.Unlock()
	if s.asm != nil {
		s.asm.Close()
	}
	s.asm, s.asmOf = asm, of
	return nil
}

func (s *source) closeAsm() {
	s.io.Lock()
	defer s.io.Unlock()
	if s.asm != nil {
		s.asm.Close()
		s.asm = nil
	}
}

// read is readWithin for a reader of the whole file.
func (s *source) read(p []byte, off int64) (n int, packed bool, err error) {
	return s.readWithin(p, off, math.MaxInt64)
}

// readWithin fills p from the file at off, for a reader that reads no further than end. n < len(p) without an
// error means the end of the file. packed: it was read by the manifest.
func (s *source) readWithin(p []byte, off, end int64) (n int, packed bool, err error) {
	s.io.RLock()
	defer s.io.RUnlock()
	switch {
	case s.raw != nil:
		n, err = s.raw.ReadAt(p, off)
	case s.asm != nil:
		packed = true
		n, err = s.asm.ReadWithin(p, off, end)
	default:
		err = errNoSource
	}
	if err == io.EOF {
		err = nil
	}
	return n, packed, err
}

// lend is a read of n bytes without a copy; nil: they can only be read with one.
func (s *source) lend(n int, off int64) (*assemble.Loan, int, error) {
	s.io.RLock()
	defer s.io.RUnlock()
	if s.raw != nil || s.asm == nil {
		return nil, 0, nil
	}
	return s.asm.Lend(off, int64(n), math.MaxInt64)
}

// errNotPlain: the local copy is not open for writing.
var errNotPlain = errors.New("not plain")

// syncError tells a sync that failed from a write that did.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

// write writes p at off, durably if sync has O_SYNC or O_DSYNC. The error is a *syncError if the disk did not
// take it.
func (s *source) write(p []byte, off int64, sync uint32) (int, error) {
	s.io.RLock()
	defer s.io.RUnlock()
	if !s.rw {
		return 0, errNotPlain
	}
	k, err := pwrite(s.raw, p, off)
	if k > 0 && sync != 0 {
		if err := fsync(int(s.raw.Fd()), sync&unix.O_SYNC != unix.O_SYNC); err != nil {
			return 0, &syncError{err}
		}
	}
	return k, err
}

// pwrite is pwrite(2): unlike WriteAt it tells how much was written before the disk was full.
func pwrite(w *os.File, p []byte, off int64) (int, error) {
	for {
		k, err := unix.Pwrite(int(w.Fd()), p, off)
		if err != unix.EINTR {
			return max(k, 0), err
		}
	}
}

// copyTo is copy_file_range(2) from the local copy; 0 and nil where that cannot be.
func (s *source) copyTo(w *os.File, srcOff, dstOff, n int64) (int64, error) {
	s.io.RLock()
	defer s.io.RUnlock()
	if s.raw == nil {
		return 0, nil
	}
	k, err := unix.CopyFileRange(int(s.raw.Fd()), &srcOff, int(w.Fd()), &dstOff, int(n), 0)
	switch err {
	case nil, unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EIO:
		return int64(max(k, 0)), err
	}
	return 0, nil
}

// UseLocked opens the file for a reader of this process, who may read until DoneLocked.
func (f *File) UseLocked() error {
	if err := f.LoadLocked(); err != nil {
		return err
	}
	if err := f.openSourceLocked(); err != nil {
		f.closeSourceLocked()
		return err
	}
	f.users.inside++
	return nil
}

// DoneLocked ends one UseLocked.
func (f *File) DoneLocked() {
	f.users.inside--
	f.closeSourceLocked()
	if f.users.all() == 0 {
		f.c.events.Idle(f)
	}
}

// openSourceLocked makes the file readable, for a user that is counted next.
func (f *File) openSourceLocked() error {
	f.mu.AssertHeld()
	if f.damaged != nil {
		return f.damaged
	}
	if f.rec.Hollow {
		return openAsmLocked(f)
	}
	had := f.src.raw != nil
	if err := f.openRawLocked(false); err != nil {
		return err
	}
	if !had && f.rec.Packed() && !f.c.readOnly && f.local.after > f.c.syncs.held.Load() {
		if err := f.c.Failed(int(f.src.raw.Fd())); err != nil {
			if (distrust{f}).noteLocked(err); f.rec.Hollow {
				return openAsmLocked(f)
			}
		}
	}
	return nil
}

// closeSourceLocked closes what reads go to, once no handle uses the file.
func (f *File) closeSourceLocked() {
	f.mu.AssertHeld()
	if f.users.all() == 0 {
		f.src.close()
	}
}

// close closes what reads go to.
func (s *source) close() {
	s.setRaw(nil, false)
	s.closeAsm()
}

// CloseAll closes all that is open, for a file whose node left the table.
func (f *File) CloseAll() {
	f.src.close()
	f.local.forget(f.c)
	if f.c.unsynced.release(f) && !f.Dead() {
		f.c.unsynced.miss()
	}
}

// openRawLocked opens the local copy, for writing too if write is set.
func (f *File) openRawLocked(write bool) error {
	f.mu.AssertHeld()
	if f.src.raw != nil && (f.src.rw || !write) {
		return nil
	}
	var raw *os.File
	var err error
	switch {
	case write:
		raw, err = f.node.Open(unix.O_RDWR)
	case f.rec.Emptying: // and the store may not be changed
		raw, err = emptyFile()
	case f.c.readOnly:
		raw, err = f.OpenQuietly()
	default:
		raw, err = f.node.Open(unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	f.src.setRaw(raw, write)
	return nil
}

func emptyFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "empty"), nil
}

var _ io.ReaderAt = (*File)(nil)

// ReadAt makes the file's present bytes an io.ReaderAt for this process.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	return upTo{&f.src, math.MaxInt64}.ReadAt(p, off)
}

// UpTo is the file's present bytes for a reader that reads no further than end.
func (f *File) UpTo(end int64) io.ReaderAt { return upTo{&f.src, end} }

// upTo is a file that is read no further than end.
type upTo struct {
	src *source
	end int64
}

func (u upTo) ReadAt(p []byte, off int64) (int, error) {
	n, _, err := u.src.readWithin(p, off, u.end)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}
