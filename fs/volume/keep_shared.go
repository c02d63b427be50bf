package volume

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/share"
	"ckptfs/fs/steps"
)

// keepMoved refuses to move what a remote alone has to a name that is not shared. The remote keeps bytes for
// names that are published, and the old one goes.
func keepMoved(v *Volume, oldDir *names.Node, oldName string, newDir *names.Node, newName string) error {
	if !v.sharing.leaves(newDir, newName) {
		return nil
	}
	n, _, err := v.names.Child(oldDir, oldName)
	if err != nil {
		return nil // Rename says what is wrong
	}
	defer n.Unpin()
	return keepStubs(v, n)
}

// keepShared is EXDEV, after which mv and ln copy, when a remote alone has a file, or one below a folder, and
// its new name would not be shared.
func keepShared(v *Volume, n, dir *names.Node, name string) error {
	if !v.sharing.leaves(dir, name) {
		return nil
	}
	return keepStubs(v, n)
}

// leaves reports whether what gets a name is shared no more.
func (s *sharing) leaves(dir *names.Node, name string) bool {
	return s.get() != nil && !share.Shares(path.Join(dir.Path(), name))
}

// leaving keeps files from becoming stubs until done is called.
func (s *sharing) leaving() (done func()) {
	if one := s.get(); one != nil {
		return share.Leaving(one)
	}
	return func() {}
}

// keepStubs is EXDEV when a remote alone has a file, or one below a folder. Where nothing is shared there are
// none, and a folder need not be walked.
func keepStubs(v *Volume, n *names.Node) error {
	if !record.Below(n.Path(), steps.Dir) {
		return nil
	}
	remote := func(_ string, n *names.Node) error {
		is, err := content.IsRemote(n.File())
		if is {
			err = unix.EXDEV
		}
		return err
	}
	if !n.IsDir() {
		return remote("", n)
	}
	return v.names.WalkBelow(context.Background(), n.Path(), n, remote)
}
