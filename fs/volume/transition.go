package volume

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// Reasons for which evict leaves a file as it is.
const (
	skipNotPacked = "not packed"
	skipOpen      = "open"
	skipInUse     = "in use: open or mapped; it is evicted once it is not"
	skipBusy      = "being hydrated"
)

// evict gives up the bytes in place of a packed file. A reason says why they were kept; "" and nil also when there are
// none.
func (v *Volume) evict(n *Node) (skip string, err error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := v.load(n); err != nil {
		return "", err
	}
	switch {
	case !f.rec.Packed():
		return skipNotPacked, nil
	case f.rec.Hollow || n.isDead():
		return "", nil
	case f.pass > 0:
		return skipOpen, nil
	case f.hydrating:
		return skipBusy, nil
	}
	if f.users() > 0 { // they will go on by the manifest
		if _, err := v.whole(f.rec.Manifest); err != nil {
			return v.keep(n, err)
		}
		if err := v.openAsm(f); err != nil {
			return "", err
		}
	}
	f.setRaw(nil, false)
	size, skip, lost, err := v.evictAlone(n)
	if lost != nil {
		return v.keep(n, lost)
	}
	if skip != "" || err != nil {
		return skip, err
	}
	v.count.evictedFiles.Add(1)
	v.count.evictedBytes.Add(size)
	v.hot.remove(n)
	f.kept = 0
	return "", nil
}

// evictAlone makes a packed file hollow if nobody else has it open. lost says why it cannot be read by its manifest. f.mu is
// held.
func (v *Volume) evictAlone(n *Node) (size int64, skip string, lost, err error) {
	f := n.file
	own, err := n.openInode(unix.O_RDWR)
	if err != nil {
		return 0, "", nil, err
	}
	defer own.Close()
	release, err := tree.Alone(int(own.Fd()))
	switch {
	case err == nil:
		defer release()
	case errors.Is(err, tree.ErrInUse) || v.passthrough.Load():
		// Somebody maps it. Readers here go on by the manifest, until the next open.
		return 0, skipInUse, nil, nil
	}
	if f.users() == 0 { // else that was looked at
		if _, lost := v.whole(f.rec.Manifest); lost != nil {
			return 0, "", lost, nil
		}
	}
	size = v.rawSizeLocked(n)
	return size, "", nil, v.hollow(n, own)
}

// maxKept bounds how often a file is packed again in vain.
const maxKept = 3

// keep has a packed file whose manifest does not serve, as lost says, go on by its bytes in place: they become the file again,
// and it is packed anew, which stores afresh what is lost. f.mu is held.
func (v *Volume) keep(n *Node, lost error) (skip string, err error) {
	f := n.file
	lost = fmt.Errorf("it cannot be read by its manifest: %w", lost)
	if !errors.Is(lost, cas.ErrCorrupt) && !errors.Is(lost, cas.ErrNotFound) || f.pass > 0 || f.kept == maxKept {
		return "", lost
	}
	f.kept++
	v.count.evictErrs.Add(1)
	v.report(slog.LevelError, "the manifest of a packed file is damaged; the file is kept by its bytes in place, and packed again",
		"path", n.Path(), "reason", lost)
	if err := v.unpack(n, false); err != nil {
		return "", fmt.Errorf("%w; its bytes in place could not be made the file again: %w", lost, err)
	}
	if f.users() > 0 {
		if err := v.openRaw(n, false); err != nil {
			return "", err
		}
		f.closeAsm()
	}
	v.packer.add(n)
	return fmt.Sprintf("%v; it is kept by its bytes in place, and packed again", lost), nil
}

// hollow makes a packed file that nobody else has open hollow. own is open for writing. An error says that the record
// stays as it was; if the bytes cannot be given up, that is reported. f.mu is held.
func (v *Volume) hollow(n *Node, own *os.File) error {
	f := n.file
	st, err := own.Stat()
	if err != nil {
		return err
	}
	rec := f.rec
	rec.Hollow = true
	if err := v.step("hollow: record"); err != nil {
		return err
	}
	if err := v.writeRecord(n, rec); err != nil {
		return err
	}
	f.moved = true
	v.giveUp(n, own, st.Size())
	return nil
}

// giveUp makes holes of the bytes of a hollow file. A failure costs only space. f.mu is held.
func (v *Volume) giveUp(n *Node, own *os.File, size int64) {
	f := n.file
	err := v.step("hollow: punch")
	if err == nil {
		err = tree.HollowOut(int(own.Fd()), &tree.Header{Store: v.id, Record: f.rec, Size: size})
	}
	if err == nil {
		err = v.step("hollow: mtime")
	}
	if err == nil {
		err = tree.SetMtime(int(own.Fd()), f.rec.Mtime)
	}
	if err != nil {
		v.report(slog.LevelWarn, "the bytes of a packed file stay in place", "path", n.Path(), "reason", err)
	}
}

// disbelieve makes a packed file hollow whose bytes in place nobody can vouch for, or that was cut off on its way to
// be hollow, and gives it the manifest's size. f.mu is held.
func (v *Volume) disbelieve(n *Node) error {
	f := n.file
	own, err := n.openInode(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	if !f.rec.Hollow {
		rec := f.rec
		rec.Hollow = true
		if err := v.writeRecord(n, rec); err != nil {
			return err
		}
	}
	f.moved = true
	st, err := own.Stat()
	if err != nil {
		return err
	}
	m, err := v.asm.Manifest(f.rec.Manifest)
	if err != nil { // what lies in place may be all there is, for a repair to move aside
		v.report(slog.LevelError, "the manifest of a packed file cannot be read; its bytes stay in place and are not believed", "path", n.Path(), "reason", err)
		return nil
	}
	size := st.Size()
	if m.Size != size {
		if err := own.Truncate(m.Size); err != nil {
			return err
		}
		size = m.Size
	}
	v.giveUp(n, own, size)
	return nil
}

// headed reports whether a hollow file of this size has the header that says so. f.mu is held.
func (v *Volume) headed(n *Node, size int64) bool {
	raw, err := n.openQuietly()
	if err != nil {
		return false
	}
	defer raw.Close()
	head, err := readHead(raw, size)
	if err != nil {
		return false
	}
	h, err := tree.DecodeHeader(head)
	return err == nil && h.Size == size && h.Record.Manifest == n.file.rec.Manifest
}

// finishEmptying ends what empty began. f.mu is held.
func (v *Volume) finishEmptying(n *Node) error {
	own, err := n.openInode(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	if err := v.step("empty: truncate"); err != nil {
		return err
	}
	if err := own.Truncate(0); err != nil {
		return err
	}
	n.file.moved = true
	if err := v.step("empty: record"); err != nil {
		return err
	}
	return v.writeRecord(n, tree.Record{})
}

// unpack makes a file plain: afterwards the bytes in place are the file, and it has no manifest. With empty set, it is
// empty. f.mu is held; it is given up while the file is filled in.
func (v *Volume) unpack(n *Node, empty bool) error {
	f := n.file
	for f.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Packed() {
		return v.unsum(n)
	}
	v.bases.NotePath(n.Path(), f.rec.Manifest)
	if empty {
		if err := v.step("empty: begin"); err != nil {
			return err
		}
		if err := v.writeRecord(n, tree.Record{Emptying: true}); err != nil {
			return err
		}
		if err := v.finishEmptying(n); err != nil {
			f.loaded = false // the next to come tries again
			return err
		}
		return v.unpacked(n)
	}
	if f.rec.Hollow {
		if err := v.hydrateLocked(n); err != nil {
			return err
		}
	}
	own, err := n.openQuietly()
	if err != nil {
		return err
	}
	defer own.Close()
	if err := v.makeWhole(n, own); err != nil {
		return err
	}
	literal, err := v.looksHollow(own)
	if err != nil {
		return err
	}
	if err := v.step("unpack: record"); err != nil {
		return err
	}
	if err := v.writeRecord(n, tree.Record{ViewHidden: f.rec.ViewHidden, Literal: literal}); err != nil {
		return err
	}
	if err := v.unpacked(n); err != nil || n.isDead() {
		return err
	}
	if err := v.step("unpack: sync record"); err != nil {
		return err
	}
	// What a program writes over the bytes and makes durable by fdatasync(2), O_DSYNC or msync(2) would be lost to the
	// manifest by a power cut: of the inode these wait for the size alone.
	return own.Sync()
}

// looksHollow reports whether a file with its bytes in place begins like a hollow one: a part of a packed file that was copied by
// its manifest may.
func (v *Volume) looksHollow(own *os.File) (bool, error) {
	var head [tree.HeaderSize]byte
	k, err := own.ReadAt(head[:], 0)
	if err == io.EOF {
		err = nil
	}
	return tree.LooksHollow(head[:k], v.id), err
}

// makeWhole gives the inode of a packed file that is not hollow, which own is open on, the file's times, and makes its
// bytes durable: the record must not lose the manifest before. f.mu is held.
func (v *Volume) makeWhole(n *Node, own *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(own.Fd()), &st); err != nil {
		return err
	}
	if ns, ok := tree.Nanoseconds(st.Mtim); !ok || ns != n.file.rec.Mtime {
		if err := tree.SetMtime(int(own.Fd()), n.file.rec.Mtime); err != nil {
			return err
		}
	}
	if err := v.step("unpack: sync"); err != nil {
		return err
	}
	if n.isDead() {
		return nil
	}
	return own.Sync()
}

// unpacked ends unpack: readers that are at it read the bytes in place from now on. f.mu is held.
func (v *Volume) unpacked(n *Node) error {
	f := n.file
	f.moved = true
	v.hot.remove(n)
	f.changed()
	if f.asm == nil {
		return nil
	}
	if err := v.openRaw(n, false); err != nil {
		return err
	}
	f.closeAsm()
	return nil
}
