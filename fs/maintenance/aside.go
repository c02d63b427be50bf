package maintenance

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// moveAside moves a file of the tree to the same path below lost+found/tree of the store in dir, or to the
// first free name beside that, and returns its new path. It follows no symbolic link: who may write the
// store's folder could have root move a file of his anywhere.
func moveAside(dir, treeDir, path string) (string, error) {
	failed := func(err error) error {
		return &fs.PathError{Op: "move to " + tree.LostFound, Path: path, Err: err}
	}
	root, err := unix.Open(treeDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", failed(err)
	}
	defer unix.Close(root)
	fromFd, err := tree.OpenBelow(root, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return "", failed(err)
	}
	defer unix.Close(fromFd)
	below := filepath.Join(tree.LostFound, tree.TreeDir, filepath.Dir(path))
	toFd, err := makeFolders(dir, below)
	if err != nil {
		return "", failed(err)
	}
	defer unix.Close(toFd)
	base := filepath.Base(path)
	to := base
	for i := 1; ; i++ {
		err := unix.Renameat2(fromFd, base, toFd, to, unix.RENAME_NOREPLACE)
		if err == nil {
			return filepath.Join(dir, below, to), nil
		}
		if err != unix.EEXIST {
			return "", failed(err)
		}
		to = fmt.Sprintf("%s.%d", base, i)
	}
}

// makeFolders opens a folder below dir, and makes what of it is not there.
func makeFolders(dir, below string) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	at := dir
	for name := range strings.SplitSeq(filepath.Clean(below), "/") {
		at = filepath.Join(at, name)
		if err := unix.Mkdirat(fd, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			unix.Close(fd)
			return -1, fmt.Errorf("make %s: %w", at, err)
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err != nil {
			return -1, fmt.Errorf("%s is no folder, and a file is to be moved there: move it away: %w", at, err)
		}
		fd = next
	}
	return fd, nil
}
