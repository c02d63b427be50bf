package volume

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// TakeIn moves a folder of the same filesystem, whose path is absolute, into the tree, where no such name is
// yet: by one rename, which is durable then. Its files are packed like those that were saved there. Programs
// go on with what they have open.
func (q *Requests) TakeIn(ctx context.Context, from, to string) error {
	v := q.v
	if v.readOnly {
		return unix.EROFS
	}
	above, name := path.Split(to)
	if name == "" {
		return unix.EEXIST
	}
	dir, err := v.resolve(above)
	if err != nil {
		return &os.PathError{Op: "look at", Path: above, Err: err}
	}
	defer dir.Unpin()
	if !dir.IsDir() {
		return unix.ENOTDIR
	}
	if dir.IsVirtual() || dir.Synth() != nil {
		return unix.EPERM
	}
	v.content.Outsiders.Store(true)
	v.steps.Alter()
	defer v.steps.Altered()
	up, err := os.Open(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer up.Close()
	n, err := names.Enter(v.names, dir, name, func(dirfd int) error {
		return unix.Renameat2(int(up.Fd()), filepath.Base(from), dirfd, name, unix.RENAME_NOREPLACE)
	})
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	defer n.Unpin()
	v.steps.Changed(n.Ino())
	v.bases.Came(dir.Ino(), name)
	v.sharing.touchIn(dir, name)
	v.content.Kernel().InvalidateName(dir.ID(), name)
	defer v.queue.Settle()
	return errors.Join(v.folder.SyncDir(path.Join(tree.TreeDir, to)),
		v.folder.SyncDir(path.Join(tree.TreeDir, above)), up.Sync(),
		v.names.WalkBelow(ctx, to, n, func(_ string, n *names.Node) error { return queueFound(v, n) }))
}

// queueFound has a file packed that came into the tree as it is.
func queueFound(v *Volume, n *names.Node) error {
	f := n.File()
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return nil // who opens it is told
	}
	var st unix.Stat_t
	if is := f.StateLocked(); !is.Packed() && is.Writers == 0 && is.Damage == nil && n.Stat(&st) == nil {
		f.SetDirtyLocked()
		v.queue.Found(f, st.Mtim.Nano())
	}
	v.usage.Changed(n.Ino())
	return nil
}
