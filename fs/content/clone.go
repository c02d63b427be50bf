package content

import (
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
	"ckptfs/index/manifest"
)

const (
	// minClone is the length from which on a part of a packed file is shared, not copied: a manifest of its own costs a sync
	// of the segment. The whole of a file costs none, whatever its length.
	MinClone = 16 << 20
	// maxCopy is an answer's worth of bytes, within a fraction of a second; the kernel asks again.
	maxCopy = 64 << 20
)

// Source is what is copied from: a handle, or bytes that are synthesised.
type Source interface {
	Read(p []byte, off int64) (int, error)
	Size() (int64, error)
}

// CopyFrom copies up to n bytes of src to this file and returns how many it did; fewer than n is no error. thread is who asks, as the
// kernel tells it, or 0.
//
// Of a packed file the bytes are not copied but the manifest, or its part: the target is packed at once, and hollow. That
// needs a target that is empty or packed, to whose end the bytes go, and whose writers this process serves: a later write
// makes it a plain file first.
func (h *Handle) CopyFrom(src Source, srcOff, dstOff, n int64, thread uint32) (int64, error) {
	if srcOff < 0 || dstOff < 0 || n < 0 {
		return 0, unix.EINVAL
	}
	if from, ok := src.(*Handle); ok {
		if done, err := h.clone(from.f, srcOff, dstOff, n, thread); done > 0 || err != nil {
			return done, err
		}
	}
	return h.copyBytes(src, srcOff, dstOff, min(n, maxCopy))
}

// clone is CopyFrom by manifest; 0 when that is not possible.
func (h *Handle) clone(src *File, srcOff, dstOff, n int64, thread uint32) (int64, error) {
	c := src.c
	if src == h.f {
		return 0, nil
	}
	c.Cloning.RLock()
	defer c.Cloning.RUnlock()
	from := src.packedAs()
	if !from.Packed() {
		return 0, nil
	}
	m, err := c.asm.Manifest(from.Manifest)
	if err != nil || srcOff >= m.Size {
		return 0, nil // the copy of bytes meets the damage, if it needs what is damaged
	}
	n = min(n, m.Size-srcOff)
	if h.Mode == Passthrough {
		c.Copiers.learn(thread)
		return 0, nil
	}
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.hydrating {
		f.cond.Wait()
	}
	if f.Dead() || f.pass > 0 || f.damaged != nil || f.rec.ViewHidden {
		return 0, nil
	}
	first, last := srcOff == 0, srcOff+n == m.Size
	goesOn := f.copied == from.Manifest && srcOff == dstOff
	if n < MinClone && !(first && last) && !(goesOn && last) {
		return 0, nil
	}
	// Resident bytes serve where the manifest does not: they are not left behind, and not dropped.
	if !from.Hollow && !goesOn {
		if _, err := c.Complete(from.Manifest); err != nil {
			return 0, nil
		}
	}
	if f.rec.Packed() && !f.rec.Hollow {
		if _, err := c.Complete(f.rec.Manifest); err != nil {
			return 0, nil
		}
	}
	ok, err := f.share(dstOff, from, m, manifest.Part{From: m, Off: srcOff, Len: n})
	if !ok || err != nil {
		return 0, err
	}
	return n, nil
}

// packedAs is the record of a packed file, zero for any other.
func (f *File) packedAs() tree.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.LoadLocked() != nil || f.damaged != nil || !f.rec.Packed() {
		return tree.Record{}
	}
	return f.rec
}

// share appends a part of a packed file, whose record is from, to a file of at bytes. false when that is not the file's
// length or somebody may write it past this process. f.mu is held.
func (f *File) share(at int64, from tree.Record, m *manifest.Manifest, part manifest.Part) (bool, error) {
	f.setRaw(nil, false) // from here on every write waits for f.mu
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return false, f.writableAgain()
	}
	defer own.Close()
	st, err := own.Stat()
	if err != nil || st.Size() != at || at > 0 && !f.rec.Packed() || f.c.mayBeWritten(own, true) {
		own.Close() // it would be one reader too many for the next open
		return false, f.writableAgain()
	}
	parts := []manifest.Part{part}
	if at > 0 {
		held, err := f.c.asm.Manifest(f.rec.Manifest)
		if err != nil || held.Size != at {
			return false, f.writableAgain()
		}
		parts = []manifest.Part{{From: held, Len: at}, part}
		// A long file is copied in several parts: with the last one it is the source again.
		if f.copied == from.Manifest && part.Off == at && part.Off+part.Len == m.Size {
			parts = []manifest.Part{{From: m, Len: m.Size}}
		}
	}
	rec := tree.Record{Hollow: true, Mtime: f.c.now().UnixNano()}
	rec.Ctime = rec.Mtime
	size := at + part.Len
	b := f.c.store.Begin()
	defer b.Release()
	// The batch names the manifest until the target does: the source may lose its name meanwhile, and a prune begin.
	if len(parts) == 1 && parts[0].From == m && parts[0].Len == m.Size {
		rec.ViewSize = from.ViewSize
		rec.Manifest, err = f.c.pack.Manifest(b, m)
	} else {
		rec.Manifest, rec.ViewSize, err = f.c.splice(b, parts)
	}
	if err != nil {
		return false, f.writableAgain()
	}
	if err := b.Commit(); err != nil {
		return false, f.writableAgain()
	}
	if err := f.c.Step("clone: record"); err != nil {
		return false, err
	}
	if err := f.WriteRecordLocked(rec); err != nil {
		return false, err
	}
	f.changed()
	f.dirty, f.moved, f.vetted, f.stale = false, true, true, true
	f.c.events.Packed(f)
	if part.Off != at || at > 0 && f.copied != from.Manifest { // what lies before is not the source's
		f.copied = cas.Hash{}
	} else {
		f.copied = from.Manifest
	}
	f.c.events.Resident(f, 0)
	f.closeAsm()
	if err := f.c.Step("clone: size"); err != nil {
		return false, err
	}
	if err := own.Truncate(size); err != nil {
		return false, err
	}
	f.giveUp(own, size)
	return true, f.openAsm()
}

// writableAgain opens what share closed. f.mu is held.
func (f *File) writableAgain() error {
	if f.rec.Hollow {
		return f.openAsm()
	}
	return f.openRaw(true)
}

// splice puts the manifest of a file of parts into b, with what a parser finds in the bytes.
func (c *Files) splice(b *store.Batch, parts []manifest.Part) (h cas.Hash, viewSize int64, err error) {
	m, err := manifest.Splice(parts, nil)
	if err != nil {
		return h, 0, err
	}
	if l, err := detect.Detect(c.asm.Of(m), m.Size); err == nil && l.Format != formats.BlobLayout(0).Format {
		if known, err := manifest.Splice(parts, l); err == nil {
			m, viewSize = known, view.SizeOf(l)
		}
	}
	h, err = c.pack.Manifest(b, m)
	return h, viewSize, err
}

// copyBytes copies bytes, in the kernel where both files are plain.
func (h *Handle) copyBytes(src Source, srcOff, dstOff, n int64) (int64, error) {
	if size, err := src.Size(); err != nil || srcOff >= size {
		return 0, err
	}
	f := h.f
	f.mu.Lock()
	if err := f.beginWrite(); err != nil {
		f.mu.Unlock()
		return 0, err
	}
	// Of its own: f.raw may be closed once f.mu is free.
	w, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		f.mu.Unlock()
		return 0, err
	}
	defer w.Close()
	if f.cached > 0 || f.direct > 0 {
		f.stale = true
	}
	f.mu.Unlock()
	var copied int64
	if from, ok := src.(*Handle); ok {
		copied, err = from.f.hostCopy(srcOff, w, dstOff, n)
	}
	if copied == 0 && err == nil {
		copied, err = readAndWrite(src, srcOff, w, dstOff, n)
	}
	if copied > 0 && f.cachedNow() {
		f.c.Kernel.InvalidateData(f.node.ID(), dstOff, copied)
	}
	return copied, err
}

// Size is the present length of the file.
func (h *Handle) Size() (int64, error) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.raw == nil {
		if err := f.OpenSourceLocked(); err != nil {
			return 0, f.OpenFailed(err)
		}
	}
	if f.raw == nil {
		return f.asm.Size(), nil
	}
	st, err := f.raw.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// hostCopy is copy_file_range(2) on the host; 0 and nil where that cannot be.
func (f *File) hostCopy(srcOff int64, w *os.File, dstOff, n int64) (int64, error) {
	f.io.RLock()
	defer f.io.RUnlock()
	if f.raw == nil {
		return 0, nil
	}
	k, err := unix.CopyFileRange(int(f.raw.Fd()), &srcOff, int(w.Fd()), &dstOff, int(n), 0)
	switch err {
	case nil, unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EIO:
		return int64(max(k, 0)), err
	}
	return 0, nil
}

func readAndWrite(src Source, srcOff int64, w *os.File, dstOff, n int64) (copied int64, err error) {
	buf := make([]byte, min(n, 1<<20))
	for copied < n {
		k, err := src.Read(buf[:min(int64(len(buf)), n-copied)], srcOff+copied)
		if err != nil && copied == 0 {
			return 0, err
		}
		if k == 0 || err != nil {
			break
		}
		want := k
		k, err = pwrite(w, buf[:k], dstOff+copied)
		copied += int64(k)
		if err != nil || k < want {
			if copied == 0 {
				return 0, err
			}
			break
		}
	}
	return copied, nil
}

func (f *File) cachedNow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cached > 0
}

// beginWrite makes a file plain that became packed by a copy while its writers had it open. f.mu is held.
func (f *File) beginWrite() error {
	if !f.rec.Packed() {
		return nil
	}
	if err := f.UnpackLocked(false); err != nil {
		return err
	}
	return f.openRaw(true)
}
