package content

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
	"ckptfs/index/manifest"
)

// minClone is the length from which on a part of a packed file is shared, not copied: a manifest of its own
// costs a sync of the segment. The whole of a file costs none, whatever its length.
const minClone = 16 << 20

// clone is CopyFrom by manifest; 0 when that is not possible.
func (h *Handle) clone(src *Handle, srcOff, dstOff, n int64, thread uint32) (int64, error) {
	c := h.f.c
	if src.f == h.f {
		return 0, nil
	}
	c.Cloning.RLock()
	defer c.Cloning.RUnlock()
	from, ok := src.packedRecord()
	if !ok {
		return 0, nil
	}
	m, err := c.asm.Manifest(from.Manifest)
	if err != nil || srcOff >= m.Size {
		return 0, nil // the copy of bytes meets the damage, if it needs what is damaged
	}
	if h.Mode == Passthrough {
		c.copiers.learn(thread)
		return 0, nil
	}
	part := manifest.Part{From: m, Off: srcOff, Len: min(n, m.Size-srcOff)}
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	k := clone{f: f, from: from, part: part, at: dstOff}
	if !k.fitsLocked() {
		return 0, nil
	}
	if done, err := k.runLocked(); !done || err != nil {
		return 0, err
	}
	return part.Len, nil
}

// packedRecord is the record of a packed file; false for any other.
func (h *Handle) packedRecord() (tree.Record, bool) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.LoadLocked() != nil || f.damaged != nil || !f.rec.Packed() {
		return tree.Record{}, false
	}
	return f.rec, true
}

// clone is the transition of an empty or packed file to a packed one that ends in a part of another, or is
// that part. The mu of the file is held, and no other's.
type clone struct {
	f    *File
	from tree.Record   // the other's
	part manifest.Part // of the other's manifest
	at   int64         // where the part goes: to the file's end
}

// goesOnLocked reports whether the file so far is the beginning of the other one, and the part comes next.
func (k *clone) goesOnLocked() bool {
	return k.f.bytes.copied == k.from.Manifest && k.part.Off == k.at
}

// last reports whether the part ends where the other file does.
func (k *clone) last() bool { return k.part.Off+k.part.Len == k.part.From.Size }

// fitsLocked reports whether the file may become packed, and whether it is worth it. It waits for a
// hydration.
func (k *clone) fitsLocked() bool {
	f := k.f
	for f.local.hydrating {
		f.cond.Wait()
	}
	if f.Dead() || f.users.pass > 0 || f.damaged != nil || f.rec.ViewHidden || NeverPacked(f) {
		return false
	}
	whole := k.part.Off == 0 && k.last()
	if k.part.Len < minClone && !whole && !(k.goesOnLocked() && k.last()) {
		return false
	}
	if k.from.Remote || f.rec.Remote {
		return false // what the remote keeps for one name it need not keep for another
	}
	// Resident bytes serve where the manifest does not: they are not left behind, and not dropped.
	if !k.from.Hollow && !k.goesOnLocked() {
		if f.c.readable(&k.from) != nil {
			return false
		}
	}
	if f.rec.Packed() && !f.rec.Hollow {
		if f.c.readable(&f.rec) != nil {
			return false
		}
	}
	return true
}

// runLocked makes the file packed and hollow. false when the part does not go to the file's end, or a
// process may write it past the daemon.
func (k *clone) runLocked() (bool, error) {
	f := k.f
	f.src.setRaw(nil, false) // from here on every write waits for mu
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return false, k.reopenLocked()
	}
	defer own.Close()
	st, err := own.Stat()
	if err != nil || st.Size() != k.at || k.at > 0 && !f.rec.Packed() || f.c.mayBeWritten(own, true) {
		own.Close() // it would be one reader too many for the next open
		return false, k.reopenLocked()
	}
	b := f.c.store.Begin()
	// The batch names the manifest until the record does: the source may lose its name meanwhile, and a prune
	// begin.
	defer b.Release()
	rec, err := k.recordLocked(b)
	if err != nil {
		return false, k.reopenLocked()
	}
	if err := b.Commit(); err != nil {
		return false, k.reopenLocked()
	}
	if err := f.c.Step("clone: record"); err != nil {
		return false, err
	}
	if err := f.writeRecordLocked(rec); err != nil {
		return false, err
	}
	f.changedLocked()
	f.c.unsynced.release(f)
	f.bytes.dirty, f.moved, f.vetted, f.users.stale = false, true, true, true
	f.c.events.Packed(f)
	if rec.Lost {
		f.c.events.Lost(f, errLost)
	}
	if k.part.Off != k.at || k.at > 0 && f.bytes.copied != k.from.Manifest {
		f.bytes.copied = cas.Hash{} // what lies before the part is not the other's
	} else {
		f.bytes.copied = k.from.Manifest
	}
	f.c.events.Resident(f, 0)
	f.src.closeAsm()
	return k.endLocked(own)
}

// recordLocked puts the manifest into b, and returns the record that names it.
func (k *clone) recordLocked(b *store.Batch) (rec tree.Record, err error) {
	f, m := k.f, k.part.From
	parts := []manifest.Part{k.part}
	if k.at > 0 {
		held, err := f.c.asm.Manifest(f.rec.Manifest)
		if err != nil {
			return rec, err
		}
		if held.Size != k.at {
			return rec, errNotAtEnd
		}
		parts = []manifest.Part{{From: held, Len: k.at}, k.part}
		// A long file is copied in several parts: with the last one it is the other file again.
		if k.goesOnLocked() && k.last() {
			parts = []manifest.Part{{From: m, Len: m.Size}}
		}
	}
	rec = tree.Record{Hollow: true, Mtime: f.c.now().UnixNano()}
	rec.Ctime = rec.Mtime
	rec.Lost = k.from.Lost || k.at > 0 && f.rec.Lost
	if len(parts) == 1 && parts[0].From == m && parts[0].Len == m.Size {
		rec.ViewSize = k.from.ViewSize
		rec.Manifest, err = f.c.pack.Manifest(b, m)
	} else {
		rec.Manifest, rec.ViewSize, err = f.c.splice(b, parts)
	}
	return rec, err
}

// errNotAtEnd: the file's manifest is of another length than the file.
var errNotAtEnd = errors.New("not at the end of the file")

// endLocked gives the inode, which own is open on, its size, and makes the file readable.
func (k *clone) endLocked(own *os.File) (bool, error) {
	f := k.f
	if err := f.c.Step("clone: size"); err != nil {
		return false, err
	}
	size := k.at + k.part.Len
	if err := own.Truncate(size); err != nil {
		return false, err
	}
	f.dropBytesLocked(own, size)
	return true, openAsmLocked(f)
}

// reopenLocked opens what runLocked closed.
func (k *clone) reopenLocked() error {
	if k.f.rec.Hollow {
		return openAsmLocked(k.f)
	}
	return k.f.openRawLocked(true)
}

// splice puts the manifest of a file of parts into b, with what a parser finds in the bytes.
func (c *Files) splice(b *store.Batch, parts []manifest.Part) (h cas.Hash, viewSize int64, err error) {
	m, err := manifest.Splice(parts, nil)
	if err != nil {
		return h, 0, err
	}
	l, err := c.pack.Detector().Detect(c.asm.Of(m), m.Size)
	if err == nil && l.Format != formats.BlobLayout(0).Format {
		if known, err := manifest.Splice(parts, l); err == nil {
			m, viewSize = known, view.SizeOf(l)
		}
	}
	h, err = c.pack.Manifest(b, m)
	return h, viewSize, err
}
