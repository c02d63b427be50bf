package inplace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

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

	dir  string
	held *os.File // the folder Root, locked: somebody copies
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
	a := &Arriving{store: store, root: root, Name: fmt.Sprintf("%x", sum[:8]), dir: dir}
	if a.held, err = root.Open("."); err == nil {
		err = unix.Flock(int(a.held.Fd()), unix.LOCK_SH) // who looks for copies holds it for a moment
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Note has the store tell of the copy while it is not in its place: to is that in a mount, "" the whole tree.
func (a *Arriving) Note(to string) {
	_ = unix.Fsetxattr(int(a.held.Fd()), ofXattr+a.Name, []byte(a.dir+"\x00"+to), 0) // it is told without, too
}

// ofXattr is the beginning of the names of attributes of STORE/arriving: of each copy the folder, a zero byte,
// and where the copy is to be.
const ofXattr = "user.ckptfs.of."

// Copy is one that was begun and did not end.
type Copy struct {
	Path   string // where it lies
	Dir    string // what it is of; "": that is not known
	To     string // where it is to be in a mount; "": it is to be the store's tree
	Moving bool   // a process may be at it
}

// Copies are those in the folder of a store, as far as this user may know of them.
func Copies(store string) (all []Copy) {
	d, err := disk.OpenFolder(store)
	if err != nil {
		return nil
	}
	defer d.Close()
	in, err := d.OpenDir(tree.ArrivingDir)
	if err != nil {
		return nil
	}
	defer in.Close()
	names, err := in.Readdirnames(-1)
	if err != nil {
		return nil
	}
	moving := unix.Flock(int(in.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
	for _, name := range names {
		c := Copy{Path: d.Join(path.Join(tree.ArrivingDir, name)), Moving: moving}
		of := make([]byte, 2*unix.PathMax)
		if n, err := unix.Fgetxattr(int(in.Fd()), ofXattr+name, of); err == nil {
			c.Dir, c.To, _ = strings.Cut(string(of[:n]), "\x00")
		}
		all = append(all, c)
	}
	return all
}

// Words are the command line that goes on with a copy of a folder that is known.
func (c *Copy) Words(store string) []string {
	if c.To != "" {
		return []string{"ckptfs", Adopt, "--into", c.To, c.Dir}
	}
	return []string{"ckptfs", Adopt, "--store", store, c.Dir}
}

// Root is the folder that the copy is made in.
func (a *Arriving) Root() *os.Root { return a.root }

// Path is where the copy is until it has its place.
func (a *Arriving) Path() string { return a.store.Join(path.Join(tree.ArrivingDir, a.Name)) }

// Close gives the place back, and removes it if it is empty.
func (a *Arriving) Close() error {
	_ = a.store.Remove(tree.ArrivingDir)
	if a.held == nil {
		return a.root.Close()
	}
	return errors.Join(a.held.Close(), a.root.Close())
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
