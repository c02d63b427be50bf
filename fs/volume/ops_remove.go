package volume

import (
	"log/slog"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// Link gives a node one more name.
func (v *Volume) Link(n, dir *names.Node, name string) (tree.Attr, error) {
	if v.sharing.leaves(dir, name) {
		defer v.sharing.leaving()()
	}
	if err := keepShared(v, n, dir, name); err != nil {
		return tree.Attr{}, err
	}
	a, err := v.names.Link(n, dir, name)
	if err == nil {
		v.bases.Came(dir.Ino(), name)
		v.sharing.touchIn(dir, name)
	}
	return a, err
}

// Unlink removes a name that is no directory's.
func (v *Volume) Unlink(dir *names.Node, name string) error { return v.remove(dir, name, 0) }

// Rmdir removes an empty directory.
func (v *Volume) Rmdir(dir *names.Node, name string) error {
	return v.remove(dir, name, unix.AT_REMOVEDIR)
}

func (v *Volume) remove(dir *names.Node, name string, flag int) error {
	if v.readOnly {
		return unix.EROFS
	}
	if flag == 0 && dir.Synth() != nil {
		return dir.Synth().Remove(name)
	}
	removed := v.sharing.removing(dir, name)
	t, err := v.names.Remove(dir, name, flag)
	removed(err == nil)
	if err == unix.ENOENT && v.virtual.Reserved(dir, name) {
		err = unix.EROFS
	}
	if err == unix.ENOENT && flag == 0 {
		t.Spare()
		return v.virtual.HideView(dir, name)
	}
	if err != nil {
		t.Spare()
		return err
	}
	v.virtual.Unhide(dir, name)
	if flag != 0 && t.Node != nil {
		v.virtual.Unhide(t.Node, "")
	}
	v.bases.Went(dir.Ino(), name)
	v.bury(&t)
	v.Removed(dir, name)
	return nil
}

// Rename moves a name. flags are renameat2(2)'s.
func (v *Volume) Rename(
	oldDir *names.Node, oldName string, newDir *names.Node, newName string, flags uint32,
) error {
	if v.readOnly {
		return unix.EROFS
	}
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) != 0 {
		return unix.EINVAL
	}
	if v.virtual.Reserved(newDir, newName) {
		return unix.EROFS
	}
	if v.sharing.leaves(newDir, newName) ||
		flags&unix.RENAME_EXCHANGE != 0 && v.sharing.leaves(oldDir, oldName) {
		defer v.sharing.leaving()()
	}
	if err := keepMoved(v, oldDir, oldName, newDir, newName); err != nil {
		return err
	}
	if flags&unix.RENAME_EXCHANGE != 0 {
		if err := keepMoved(v, newDir, newName, oldDir, oldName); err != nil {
			return err
		}
	}
	went := v.sharing.removing(oldDir, oldName)
	v.sharing.replacing(oldName, newDir, newName)
	exchanged := func(bool) {}
	if flags&unix.RENAME_EXCHANGE != 0 {
		exchanged = v.sharing.exchanging(newDir, newName)
	}
	t, moved, err := v.names.Rename(oldDir, oldName, newDir, newName, flags)
	went(t.Moved)
	exchanged(t.Moved)
	if t.Moved {
		v.sharing.touchIn(newDir, newName)
		if flags&(unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) == 0 {
			v.bases.Went(oldDir.Ino(), oldName)
		}
		v.bases.Came(newDir.Ino(), newName)
		judge(v, oldDir, oldName, newDir, newName)
		v.virtual.Unhide(oldDir, oldName)
		v.virtual.Unhide(newDir, newName)
		if t.Went && t.Node != nil && t.Node.IsDir() {
			v.virtual.Unhide(t.Node, "")
		}
		touchMoved(moved)
		if !t.Went {
			touchMoved(t.Node) // exchanged
		}
	}
	if moved != nil {
		moved.Unpin()
	}
	if err == nil && flags&(unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) == 0 {
		v.Removed(oldDir, oldName)
	}
	if err != nil || !t.Went {
		t.Spare()
	} else {
		v.bury(&t)
	}
	if err == unix.ENOENT && v.virtual.Reserved(oldDir, oldName) {
		return unix.EROFS
	}
	if err == unix.ENOENT && v.virtual.IsView(oldDir, oldName) {
		return unix.EXDEV // then mv copies it, which makes a real file
	}
	return err
}

// bury ends the background work on a file that lost its last name. The kernel may keep the node, open or not:
// a program may be between the lookup and the open, and has a right to the old file or the new. No lock is
// held.
func (v *Volume) bury(t *names.Victim) {
	if t.Last {
		v.steps.Gone(t.Ino)
		v.bases.Gone(t.Ino)
		v.usage.Changed(t.Ino) // another file may get the inode
		v.hot.Remove(t.Ino)
		v.keeper.Removed()
	}
	n := t.Node
	if n == nil {
		return
	}
	if f := n.File(); f != nil {
		f.Lock()
		if is := f.StateLocked(); is.Packed() && !is.Record.Remote {
			v.bases.NotePath(t.Path, is.Record.Manifest)
			if t.Last {
				rec := models.Record{Manifest: is.Record.Manifest, Mtime: is.Record.Mtime}
				models.Removed(v.models, t.Path, t.Ino, rec)
			}
		}
		if t.Last {
			f.BuryLocked()
			v.queue.Forget(f)
			v.sums.Forget(f)
			v.ids.Forget(f)
			v.hydrator.Forget(f)
		}
		n.File().TouchedLocked()
		f.Unlock()
	}
	n.Unpin()
}

// touchMoved notes that a node has another name now. No lock is held.
func touchMoved(n *names.Node) {
	if n != nil && n.File() != nil {
		n.File().Lock()
		defer n.File().Unlock()
		n.File().TouchedLocked()
	}
}

// Removed ends the removal of a name, or its move to another place, which an earlier process may have begun:
// it keeps a view from appearing there. A program that removed model.safetensors must not find it there
// again.
func (v *Volume) Removed(dir *names.Node, name string) {
	if dir.Synth() != nil || !strings.HasSuffix(name, view.Suffix) {
		return
	}
	if err := v.virtual.HideView(dir, name); err != nil && err != unix.ENOENT {
		v.report(slog.LevelWarn, "a view stays where a file was removed", "name", name, "reason", err)
	}
}
