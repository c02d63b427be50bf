package inplace

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/fs/tree"
)

// Beside is what the folder of a store is called beside the folder that it was made of.
const Beside = ".ckptfs"

// Begun is a move that was begun and did not end, which a store's journal tells of.
type Begun struct {
	Store string
	Move
	Moving bool // a process is at it
}

// BegunIn looks for a move in the folder of a store; nil: there is none, or none that this user may know of.
func BegunIn(store string) *Begun {
	d, err := disk.OpenFolder(store)
	if err != nil {
		return nil
	}
	defer d.Close()
	st, err := d.Lstat(JournalFile)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG { // it may be another user's, and any kind of file
		return nil
	}
	m, err := Read(d)
	if err != nil || m == nil {
		return nil
	}
	looks, err := claim(d, unix.LOCK_SH) // beside others that look
	if err == nil {
		looks.Close()
	}
	return &Begun{Store: store, Move: *m, Moving: errors.Is(err, unix.EBUSY)}
}

// BegunOf looks for a move of a folder that an absolute path lies in, in the store beside it, and in the one
// that an empty folder was left by which a folder had changed places with.
func BegunOf(path string) *Begun {
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		for _, store := range []string{dir + Beside, leftBy(dir)} {
			if store == "" {
				continue
			}
			if b := BegunIn(store); b != nil && string(b.Dir) == dir {
				return b
			}
		}
	}
	return nil
}

// storeXattr is an attribute of the empty folder that a store not beside it leaves behind: the store's path.
const storeXattr = "user.ckptfs.store"

// mark has the store's tree, which is empty, name the store, if that is not beside the folder. Where it cannot,
// less is told if the move is cut short.
func (p *Pair) mark() {
	if p.store.Path() == p.dir+Beside {
		return
	}
	if f, err := p.store.OpenDir(tree.TreeDir); err == nil {
		_ = unix.Fsetxattr(int(f.Fd()), storeXattr, []byte(p.store.Path()), 0)
		f.Close()
	}
}

// leftBy is the store that a folder names, "" if it names none.
func leftBy(dir string) string {
	path := make([]byte, unix.PathMax)
	n, err := unix.Lgetxattr(dir, storeXattr, path)
	if err != nil || !filepath.IsAbs(string(path[:n])) {
		return ""
	}
	return string(path[:n])
}

// Words are the command line that ends a move.
func (b *Begun) Words() []string {
	dir := string(b.Dir)
	switch {
	case b.Store == dir+Beside:
		return []string{"ckptfs", b.Way, dir}
	case b.Way == Adopt:
		return []string{"ckptfs", b.Way, "--store", b.Store, dir}
	}
	return []string{"ckptfs", b.Way, b.Store, dir}
}
