package inplace

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
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

// BegunOf looks for a move of a folder that an absolute path lies in, in the store beside it.
func BegunOf(path string) *Begun {
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if b := BegunIn(dir + Beside); b != nil && string(b.Dir) == dir {
			return b
		}
	}
	return nil
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
