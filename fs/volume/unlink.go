package volume

import (
	"log/slog"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/view"
)

// victim is a name that is about to go. It holds a reference to its node until bury.
type victim struct {
	node *Node // nil when nobody knows it
	st   unix.Stat_t
	last bool
	goes bool // the name went
	done bool // a rename changed something
	path string
}

// prepare looks at dir/name before it goes and, if it is the last name of a node that somebody knows, takes hold of the
// inode, so that open files and directories stay what they are. v.ns is held exclusively.
func (ns *Names) prepare(dirfd int, name string) (victim, error) {
	var t victim
	if err := unix.Fstatat(dirfd, name, &t.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return t, err
	}
	t.node = ns.tab.findIno(t.st.Ino)
	isDir := t.st.Mode&unix.S_IFMT == unix.S_IFDIR
	t.last = isDir || t.st.Nlink <= 1
	if !t.last {
		if n := t.node; n != nil && len(n.names) == 1 {
			// Another name exists that nobody has looked up: the node lives on by its descriptor.
			return t, n.keepOpen(dirfd, name)
		}
		return t, nil
	}
	if t.node != nil {
		return t, t.node.keepOpen(dirfd, name)
	}
	return t, nil
}

func (n *Node) keepOpen(dirfd int, name string) error {
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
func (ns *Names) gone(t *victim, dir *Node, name string) {
	t.goes = true
	n := t.node
	if n == nil {
		return
	}
	ns.dropAlias(n, dir, name)
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	t.path = path.Join(dir.path(), name)
	if t.last {
		n.dead = true
		delete(ns.tab.byIno, inoKey(n.ino))
	}
}

// bury ends the background work on a file that lost its last name. Who knows the file keeps it, open or not: a program
// may be between looking the name up and opening it, and has a right to the old file or the new. No lock is held.
func (v *Volume) bury(t *victim) {
	if t.last {
		v.steps.Gone(t.st.Ino)
	}
	n := t.node
	if n == nil {
		return
	}
	if f := n.file; f != nil {
		f.Lock()
		if is := f.StateLocked(); is.Packed() {
			v.bases.NotePath(t.path, is.Record.Manifest)
		}
		if t.last {
			v.hot.Remove(f)
			f.StopPackingLocked()
			v.queue.Forget(f)
			v.sums.Forget(f)
			v.ids.Forget(f)
			v.hydrator.Forget(f)
		}
		n.file.TouchedLocked()
		f.Unlock()
	}
	n.unref(1)
}

// touchMoved is touched of a node that has another name now. No lock is held.
func (v *Volume) touchMoved(n *Node) {
	if n != nil && n.file != nil {
		n.file.Lock()
		defer n.file.Unlock()
		n.file.TouchedLocked()
	}
}

// Unlink removes a name that is no directory's.
func (v *Volume) Unlink(dir *Node, name string) error { return v.remove(dir, name, 0) }

// Rmdir removes an empty directory.
func (v *Volume) Rmdir(dir *Node, name string) error { return v.remove(dir, name, unix.AT_REMOVEDIR) }

func (v *Volume) remove(dir *Node, name string, flag int) error {
	if v.readOnly {
		return unix.EROFS
	}
	if flag == 0 && dir.synth != nil {
		return dir.synth.Remove(name)
	}
	t, err := v.names.removeName(dir, name, flag)
	if err == unix.ENOENT && v.isVirtualRoot(dir, name) {
		err = unix.EROFS
	}
	if err == unix.ENOENT && flag == 0 {
		v.names.spare(&t)
		return v.hideView(dir, name)
	}
	if err != nil {
		v.names.spare(&t)
		return err
	}
	v.unhide(dir, name)
	if flag != 0 && t.node != nil {
		v.unhide(t.node, "")
	}
	v.bury(&t)
	v.leaveNoView(dir, name)
	return nil
}

// leaveNoView keeps a view from appearing where a name was taken away: who removed model.safetensors wants it gone.
func (v *Volume) leaveNoView(dir *Node, name string) {
	if !strings.HasSuffix(name, view.Suffix) {
		return
	}
	if err := v.hideView(dir, name); err != nil && err != unix.ENOENT {
		v.report(slog.LevelWarn, "a view stays where a file was removed", "name", name, "reason", err)
	}
}

// spare ends what prepare began for a name that stays.
func (ns *Names) spare(t *victim) {
	if t.node != nil {
		t.node.unref(1)
	}
}

func (ns *Names) removeName(dir *Node, name string, flag int) (victim, error) {
	ns.ns.Lock()
	defer ns.ns.Unlock()
	dirfd, err := dir.dirFd()
	if err != nil {
		return victim{}, err
	}
	defer dir.releaseDir()
	t, err := ns.prepare(dirfd, name)
	if err != nil {
		return t, err
	}
	if err := unix.Unlinkat(dirfd, name, flag); err != nil {
		ns.unkeep(&t)
		return t, err
	}
	ns.v.steps.Changed(dir.ino)
	ns.gone(&t, dir, name)
	return t, nil
}

// unkeep undoes keepOpen for a name that stayed.
func (ns *Names) unkeep(t *victim) {
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
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) != 0 {
		return unix.EINVAL
	}
	if v.isVirtualRoot(newDir, newName) {
		return unix.EROFS
	}
	t, moved, err := v.names.rename(oldDir, oldName, newDir, newName, flags)
	if t.done {
		v.unhide(oldDir, oldName)
		v.unhide(newDir, newName)
		if t.goes && t.node != nil && t.node.IsDir() {
			v.unhide(t.node, "")
		}
		v.touchMoved(moved)
		if !t.goes {
			v.touchMoved(t.node) // exchanged
		}
	}
	if moved != nil {
		moved.unref(1)
	}
	if err == nil && flags&(unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) == 0 {
		v.leaveNoView(oldDir, oldName)
	}
	if err != nil || !t.goes {
		v.names.spare(&t)
	} else {
		v.bury(&t)
	}
	if err == unix.ENOENT && v.isVirtualRoot(oldDir, oldName) {
		return unix.EROFS
	}
	if err == unix.ENOENT && v.isView(oldDir, oldName) {
		return unix.EXDEV // mv copies it then, which makes a real file of it
	}
	return err
}

// rename returns what lost its name to the moved one, or was exchanged with it, and the moved node with a reference if
// anybody knows it.
func (ns *Names) rename(oldDir *Node, oldName string, newDir *Node, newName string, flags uint32) (t victim, moved *Node, err error) {
	ns.ns.Lock()
	defer ns.ns.Unlock()
	oldFd, err := oldDir.dirFd()
	if err != nil {
		return t, moved, err
	}
	defer oldDir.releaseDir()
	newFd, err := newDir.dirFd()
	if err != nil {
		return t, moved, err
	}
	defer newDir.releaseDir()

	var st unix.Stat_t
	if err := unix.Fstatat(oldFd, oldName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return t, moved, err
	}
	moved = ns.tab.findIno(st.Ino)
	if flags&unix.RENAME_NOREPLACE == 0 {
		t, err = ns.prepare(newFd, newName)
		if err != nil && err != unix.ENOENT {
			return t, moved, err
		}
	}
	if t.st.Ino == st.Ino && t.st.Ino != 0 { // two names of one file: rename(2) does nothing
		ns.unkeep(&t)
		return t, moved, unix.Renameat2(oldFd, oldName, newFd, newName, uint(flags))
	}
	if err := unix.Renameat2(oldFd, oldName, newFd, newName, uint(flags)); err != nil {
		ns.unkeep(&t)
		return t, moved, err
	}
	t.done = true
	ns.v.steps.Changed(oldDir.ino)
	ns.v.steps.Changed(newDir.ino)
	ns.noteMove(newDir, newName)
	if flags&unix.RENAME_EXCHANGE != 0 {
		ns.noteMove(oldDir, oldName)
		ns.unkeep(&t)
		ns.moveAlias(moved, oldDir, oldName, newDir, newName)
		ns.moveAlias(t.node, newDir, newName, oldDir, oldName)
		return t, moved, nil
	}
	ns.gone(&t, newDir, newName)
	ns.moveAlias(moved, oldDir, oldName, newDir, newName)
	return t, moved, nil
}

// moveAlias renames a node in the table. v.ns is held exclusively.
func (ns *Names) moveAlias(n, oldDir *Node, oldName string, newDir *Node, newName string) {
	if n == nil {
		return
	}
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	for i, a := range n.names {
		if a.dir == oldDir && a.name == oldName {
			newDir.refs++
			n.names[i] = alias{newDir, newName}
			ns.tab.unref(oldDir, 1)
			return
		}
	}
}
