package volume

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// victim is a name that is about to go. It holds a reference to its node until bury.
type victim struct {
	node *Node // nil when nobody knows it
	st   unix.Stat_t
	rec  tree.Record // of a regular file's last name
	last bool
	goes bool // the name went
}

// prepare looks at dir/name before it goes and, if it is the last name of a node that somebody knows, takes hold of the
// stub, so that open files and directories stay what they are. v.ns is held exclusively.
func (v *Volume) prepare(dirfd int, name string) (victim, error) {
	var t victim
	if err := unix.Fstatat(dirfd, name, &t.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return t, err
	}
	t.node = v.tab.findIno(t.st.Ino)
	isDir := t.st.Mode&unix.S_IFMT == unix.S_IFDIR
	t.last = isDir || t.st.Nlink <= 1
	if !t.last {
		if n := t.node; n != nil && len(n.names) == 1 {
			// Another name exists that nobody has looked up: the node lives on by its descriptor.
			return t, v.keepOpen(n, dirfd, name)
		}
		return t, nil
	}
	if t.st.Mode&unix.S_IFMT == unix.S_IFREG {
		rec, err := tree.ReadRecord(procPath(dirfd, name))
		if err == nil {
			t.rec = rec
		}
	}
	if t.node != nil {
		return t, v.keepOpen(t.node, dirfd, name)
	}
	return t, nil
}

func (v *Volume) keepOpen(n *Node, dirfd int, name string) error {
	if n.keep >= 0 {
		return nil
	}
	fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		n.keep = fd
	}
	return err
}

// gone updates the table after dir/name went. v.ns is held exclusively.
func (v *Volume) gone(t *victim, dir *Node, name string) {
	t.goes = true
	n := t.node
	if n == nil {
		return
	}
	v.dropAlias(n, dir, name)
	v.tab.mu.Lock()
	defer v.tab.mu.Unlock()
	if t.last {
		n.dead = true
		delete(v.tab.byIno, inoKey(n.ino))
	}
}

// bury removes the raw copy of a file that lost its last name. Who knows the file keeps it, open or not: a program may
// be between looking the name up and opening it, and has a right to the old file or the new, never to an empty one. No
// lock is held.
func (v *Volume) bury(t *victim) {
	n := t.node
	if n == nil {
		if t.last && !t.rec.ID.IsZero() {
			v.content.Remove(t.rec.ID)
		}
		return
	}
	if f := n.file; f != nil && t.last {
		f.mu.Lock()
		v.hot.remove(n)
		f.stopPacking()
		if v.load(n) == nil {
			t.rec = f.rec
		}
		if f.resident {
			v.openRaw(f)
		}
		if !t.rec.ID.IsZero() {
			v.content.Remove(t.rec.ID)
		}
		if f.raw == nil {
			f.resident = false
		}
		f.mu.Unlock()
	}
	v.unref(n, 1)
}

// Unlink removes a name that is no directory's.
func (v *Volume) Unlink(dir *Node, name string) error { return v.remove(dir, name, 0) }

// Rmdir removes an empty directory.
func (v *Volume) Rmdir(dir *Node, name string) error { return v.remove(dir, name, unix.AT_REMOVEDIR) }

func (v *Volume) remove(dir *Node, name string, flag int) error {
	if v.readOnly {
		return unix.EROFS
	}
	t, err := v.removeName(dir, name, flag)
	if err == unix.ENOENT && flag == 0 {
		v.spare(&t)
		return v.hideView(dir, name)
	}
	if err != nil {
		v.spare(&t)
		return err
	}
	v.bury(&t)
	return nil
}

// spare ends what prepare began for a name that stays.
func (v *Volume) spare(t *victim) {
	if t.node != nil {
		v.unref(t.node, 1)
	}
}

func (v *Volume) removeName(dir *Node, name string, flag int) (victim, error) {
	v.ns.Lock()
	defer v.ns.Unlock()
	dirfd, err := v.dirFd(dir)
	if err != nil {
		return victim{}, err
	}
	defer v.releaseDir(dir)
	t, err := v.prepare(dirfd, name)
	if err != nil {
		return t, err
	}
	if err := unix.Unlinkat(dirfd, name, flag); err != nil {
		v.unkeep(&t)
		return t, err
	}
	v.gone(&t, dir, name)
	return t, nil
}

// unkeep undoes keepOpen for a name that stayed.
func (v *Volume) unkeep(t *victim) {
	if n := t.node; n != nil && n.keep >= 0 && len(n.names) > 0 {
		unix.Close(n.keep)
		n.keep = -1
	}
}

// Rename moves a name. flags are renameat2(2)'s.
func (v *Volume) Rename(oldDir *Node, oldName string, newDir *Node, newName string, flags uint32) error {
	if v.readOnly {
		return unix.EROFS
	}
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return unix.EINVAL
	}
	if flags == 0 {
		v.flushBeforeReplace(oldDir, oldName, newDir, newName)
	}
	t, err := v.rename(oldDir, oldName, newDir, newName, flags)
	if err != nil || !t.goes {
		v.spare(&t)
	} else {
		v.bury(&t)
	}
	if err == unix.ENOENT && v.isView(oldDir, oldName) {
		return unix.EXDEV // mv copies it then, which makes a real file of it
	}
	return err
}

// flushBeforeReplace begins to write the bytes of a file that is about to take another's name. Programs that replace a
// file without fsync rely on ext4 doing so: after a power cut the name leads to the old bytes or the new, not to none.
func (v *Volume) flushBeforeReplace(oldDir *Node, oldName string, newDir *Node, newName string) {
	n, _, err := v.child(newDir, newName)
	if err != nil {
		return
	}
	v.unref(n, 1)
	if n, _, err = v.child(oldDir, oldName); err != nil {
		return
	}
	defer v.unref(n, 1)
	f := n.file
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.load(n) != nil || !f.resident || f.rec.Packed() {
		return
	}
	if raw, err := v.content.OpenQuietly(f.rec.ID); err == nil {
		unix.SyncFileRange(int(raw.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		raw.Close()
	}
}

func (v *Volume) rename(oldDir *Node, oldName string, newDir *Node, newName string, flags uint32) (victim, error) {
	var t victim
	var moved *Node
	defer func() {
		if moved != nil {
			v.unref(moved, 1)
		}
	}()
	v.ns.Lock()
	defer v.ns.Unlock()
	oldFd, err := v.dirFd(oldDir)
	if err != nil {
		return t, err
	}
	defer v.releaseDir(oldDir)
	newFd, err := v.dirFd(newDir)
	if err != nil {
		return t, err
	}
	defer v.releaseDir(newDir)

	var st unix.Stat_t
	if err := unix.Fstatat(oldFd, oldName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return t, err
	}
	moved = v.tab.findIno(st.Ino)
	if flags&unix.RENAME_NOREPLACE == 0 {
		t, err = v.prepare(newFd, newName)
		if err != nil && err != unix.ENOENT {
			return t, err
		}
	}
	if t.st.Ino == st.Ino && t.st.Ino != 0 { // two names of one file: rename(2) does nothing
		v.unkeep(&t)
		return t, unix.Renameat2(oldFd, oldName, newFd, newName, uint(flags))
	}
	if err := unix.Renameat2(oldFd, oldName, newFd, newName, uint(flags)); err != nil {
		v.unkeep(&t)
		return t, err
	}
	if flags&unix.RENAME_EXCHANGE != 0 {
		v.unkeep(&t)
		v.moveAlias(moved, oldDir, oldName, newDir, newName)
		v.moveAlias(t.node, newDir, newName, oldDir, oldName)
		return t, nil
	}
	v.gone(&t, newDir, newName)
	v.moveAlias(moved, oldDir, oldName, newDir, newName)
	return t, nil
}

// moveAlias renames a node in the table. v.ns is held exclusively.
func (v *Volume) moveAlias(n, oldDir *Node, oldName string, newDir *Node, newName string) {
	if n == nil {
		return
	}
	v.tab.mu.Lock()
	defer v.tab.mu.Unlock()
	for i, a := range n.names {
		if a.dir == oldDir && a.name == oldName {
			newDir.refs++
			n.names[i] = alias{newDir, newName}
			v.tab.unref(oldDir, 1)
			return
		}
	}
}
