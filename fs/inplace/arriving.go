package inplace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/fs/tree"
)

// Arriving is a folder on another disk of which a copy is made in a store's folder. No journal is kept: what
// is where says what was done.
//
//	STORE/arriving/NAME                 the place in the tree     state
//	missing, or some of the files       empty                     DIR is the folder, and is copied
//	all of them, compared and durable   empty                     the same; the next run compares again
//	gone                                the copy                  in the store; DIR is as it was
//
// From one to the next is a single rename, of a folder that is durable. DIR itself is only read, and stays
// until its owner removes it. With --replace it changes places with an empty folder DIR.original (Aside), once
// the copy is in the tree and durable; then STORE is mounted on the empty one:
//
//	DIR      DIR.original    state
//	full     missing, empty  the original is in its place
//	empty    full            the store is about to be mounted there
type Arriving struct {
	store *disk.Folder
	root  *os.Root
	Name  string // in the folder Root; the same for the same folder each time
}

// NewArriving makes the place for the copy of a folder.
func NewArriving(store *disk.Folder, dir string) (*Arriving, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := store.Mkdir(tree.ArrivingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	d, err := store.Sub(tree.ArrivingDir) // not what a link leads to
	if err != nil {
		return nil, err
	}
	defer d.Close()
	root, err := os.OpenRoot(d.Here())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Append(nil, st.Dev, " ", st.Ino, " ", dir))
	return &Arriving{store: store, root: root, Name: fmt.Sprintf("%x", sum[:8])}, nil
}

// Root is the folder that the copy is made in.
func (a *Arriving) Root() *os.Root { return a.root }

// Path is where the copy is until it has its place.
func (a *Arriving) Path() string { return a.store.Join(path.Join(tree.ArrivingDir, a.Name)) }

// Close gives the place back, and removes it if it is empty.
func (a *Arriving) Close() error {
	_ = a.store.Remove(tree.ArrivingDir)
	return a.root.Close()
}

// Others are copies of other folders, which were cut short or are being made.
func (a *Arriving) Others() (paths []string, err error) {
	names, err := a.store.ReadDir(tree.ArrivingDir)
	for _, name := range names {
		if name != a.Name {
			paths = append(paths, a.store.Join(path.Join(tree.ArrivingDir, name)))
		}
	}
	return paths, err
}

// Room is what the copy takes as far as it was made.
func (a *Arriving) Room() (bytes int64, err error) {
	top := path.Join(tree.ArrivingDir, a.Name)
	err = a.store.Walk(top, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		st, err := a.store.Lstat(path.Join(top, p))
		if err == nil && st.Nlink > 0 {
			bytes += st.Blocks * 512 / int64(st.Nlink)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return bytes, err
}

// Enter makes the copy, which is durable, the store's tree, which is empty and which nobody has open.
func (a *Arriving) Enter() error {
	if err := a.store.Rename(path.Join(tree.ArrivingDir, a.Name), tree.TreeDir); err != nil {
		return err
	}
	return errors.Join(a.store.SyncDir("."), a.store.SyncDir(tree.ArrivingDir), a.store.SyncDir(tree.TreeDir))
}

// Original is what a folder is called once a mount has its path.
const Original = ".original"

// Aside has a folder and DIR.original change places, durably: once more, and each is where it was. One of them
// is empty, and is made if it is not there.
func Aside(dir string) error {
	up, err := os.OpenFile(filepath.Dir(dir), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer up.Close()
	base := filepath.Base(dir)
	if err := unix.Mkdirat(int(up.Fd()), base+Original, 0o755); err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "mkdir", Path: dir + Original, Err: err}
	}
	err = unix.Renameat2(int(up.Fd()), base, int(up.Fd()), base+Original, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL {
		err = fmt.Errorf("this filesystem cannot have two folders change places: %w", err)
	}
	if err != nil {
		_ = unix.Unlinkat(int(up.Fd()), base+Original, unix.AT_REMOVEDIR)
		return &os.LinkError{Op: "exchange", Old: dir, New: dir + Original, Err: err}
	}
	return up.Sync()
}
