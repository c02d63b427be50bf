package names

import (
	"context"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
)

// movesLog is what got a new name while EachFile walks. Names.ns guards it.
type movesLog struct{ names []Alias }

// noteMoveLocked writes a new name down, if EachFile walks. ns is held exclusively.
func (ns *Names) noteMoveLocked(dir *Node, name string) {
	if ns.moves != nil {
		dir.Pin()
		ns.moves.names = append(ns.moves.names, Alias{dir, name})
	}
}

// startMoves begins to write new names down; false: another walk does.
func (ns *Names) startMoves() bool {
	ns.ns.Lock()
	defer ns.ns.Unlock()
	if ns.moves != nil {
		return false
	}
	ns.moves = &movesLog{}
	return true
}

// takeMoves returns what got a new name since it was called last.
func (ns *Names) takeMoves() []Alias {
	ns.ns.Lock()
	defer ns.ns.Unlock()
	names := ns.moves.names
	ns.moves.names = nil
	return names
}

// stopMoves ends the writing down, and lets go of what was not taken.
func (ns *Names) stopMoves() {
	ns.ns.Lock()
	left := ns.moves.names
	ns.moves = nil
	ns.ns.Unlock()
	for _, a := range left {
		a.Dir.Unpin()
	}
}

// EachFile is a Tour over every regular file, by a path of it: those with a name and those that are open
// without one, some twice. No file is missed, although it may be renamed or linked meanwhile from a directory
// that the walk has not reached to one that it has left: what gets a new name is written down and looked at
// afterwards. What cannot be looked at ends it with an error. One may run at a time; another one is
// EBUSY.
func (ns *Names) EachFile(ctx context.Context, t Tour) error {
	if !ns.startMoves() {
		return unix.EBUSY
	}
	defer ns.stopMoves()
	defer ns.Tours.begin()()
	t.Failed = func(_ *Node, p string, err error) error {
		if err == unix.ENOENT {
			return nil // gone meanwhile
		}
		return &fs.PathError{Op: "look at", Path: p, Err: err}
	}
	t.AfterDir = func(p string) {
		if ns.AfterDir != nil {
			ns.AfterDir(p)
		}
	}
	err := ns.tourBelow(ctx, "", ns.root, t)
	for err == nil {
		names := ns.takeMoves()
		if len(names) == 0 {
			break // all that has a name now has been looked at
		}
		for _, a := range names {
			n, _, cerr := ns.Child(a.Dir, a.Name)
			if cerr == nil {
				if err == nil {
					err = ns.tourBelow(ctx, path.Join(a.Dir.Path(), a.Name), n, t)
				}
				n.Unpin()
			} else if cerr != unix.ENOENT && err == nil {
				err = cerr
			}
			a.Dir.Unpin()
		}
	}
	// Last, since what is looked up and removed while the names are gone through has none to be found by.
	ns.Each(func(n *Node) {
		if n.file != nil && err == nil {
			err = t.File(n.Path(), n, nil)
		}
	})
	return err
}
