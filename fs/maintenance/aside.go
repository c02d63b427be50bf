package maintenance

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/fs/tree"
)

// moveAside moves a file of the tree root to the same path below lost+found/tree of the store, or to the
// first free name beside that, and returns its new path. It follows no symbolic link: who may write the
// store's folder could have root move a file of his anywhere.
func moveAside(d *disk.Folder, root int, path string) (string, error) {
	failed := func(err error) error {
		return &fs.PathError{Op: "move to " + tree.LostFound, Path: path, Err: err}
	}
	fromFd, err := tree.OpenBelow(root, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return "", failed(err)
	}
	defer unix.Close(fromFd)
	below := filepath.Join(tree.LostFound, tree.TreeDir, filepath.Dir(path))
	if err := d.MkdirAll(below, 0o700); err != nil {
		return "", failed(fmt.Errorf("%w (move what is there away, if it is no folder)", err))
	}
	aside, err := d.OpenDir(below)
	if err != nil {
		return "", failed(err)
	}
	defer aside.Close()
	base := filepath.Base(path)
	to := base
	for i := 1; ; i++ {
		err := unix.Renameat2(fromFd, base, int(aside.Fd()), to, unix.RENAME_NOREPLACE)
		if err == nil {
			return d.Join(filepath.Join(below, to)), nil
		}
		if err != unix.EEXIST {
			return "", failed(err)
		}
		to = fmt.Sprintf("%s.%d", base, i)
	}
}
