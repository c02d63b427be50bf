package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ckptfs/fs/tree"
)

// ownNames are what a store's folder holds besides its format: the daemon opens them by name.
var ownNames = []string{tree.FormatFile, tree.LockFile, tree.TreeDir, tree.SegmentsDir, tree.IndexFile,
	tree.CatalogueFile, tree.LostFound, tree.LogFile, tree.WritingFile}

// checkOwnNames refuses a store of which a part is a symbolic link: a user who may write the folder could
// have the daemon read and write, as the daemon's user, wherever the link leads.
func checkOwnNames(store string) error {
	for _, name := range ownNames {
		path := filepath.Join(store, name)
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		switch mode := st.Mode(); {
		case mode&fs.ModeSymlink != 0:
			return &exitError{exitDamaged, fmt.Errorf("%s is a symbolic link, and nothing of a store may lead out of it: put the folder itself there (`mount --bind` joins one of another disk)", path)}
		case !mode.IsDir() && !mode.IsRegular():
			return &exitError{exitDamaged, fmt.Errorf("%s is neither a folder nor a file: it is not of ckptfs; move it away", path)}
		}
	}
	return nil
}

// closeToOthers makes a store's folder its owner's alone: what other users may do, they may do through the mount, under
// its permissions. It says whether it had to.
func closeToOthers(store string) (changed bool, err error) {
	st, err := os.Stat(store)
	if err != nil || st.Mode().Perm()&0o077 == 0 {
		return false, err
	}
	return true, os.Chmod(store, st.Mode()&^0o077)
}
