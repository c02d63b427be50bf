package volume

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/share"
)

// keepMoved refuses to move what a remote alone has to a name that is not shared. The remote keeps bytes for
// names that are published, and the old one goes.
func keepMoved(v *Volume, oldDir *names.Node, oldName string, newDir *names.Node, newName string) error {
	if v.sharing.get() == nil || share.Shares(path.Join(newDir.Path(), newName)) {
		return nil
	}
	n, _, err := v.names.Child(oldDir, oldName)
	if err != nil {
		return nil // Rename says what is wrong
	}
	defer n.Unpin()
	return keepShared(v, n, newDir, newName)
}

// keepShared is EXDEV, after which mv and ln copy, when a remote alone has a file, or one below a folder, and
// its new name would not be shared.
func keepShared(v *Volume, n, dir *names.Node, name string) error {
	if v.sharing.get() == nil || share.Shares(path.Join(dir.Path(), name)) {
		return nil
	}
	remote := func(_ string, n *names.Node) error {
		f := n.File()
		if f == nil {
			return nil
		}
		f.Lock()
		defer f.Unlock()
		if err := f.LoadLocked(); err != nil {
			return err
		}
		if f.StateLocked().Record.Remote {
			return unix.EXDEV
		}
		return nil
	}
	if !n.IsDir() {
		return remote("", n)
	}
	return v.names.WalkBelow(context.Background(), n.Path(), n, remote)
}
