// Package linked finds what symbolic links lead to: a snapshot in the cache of huggingface_hub is a folder of
// links to files elsewhere in the mount, and that folder is what a server is given.
package linked

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/fs/control"
)

// Entries is what is asked of a mounted store.
type Entries interface {
	Entry(ctx context.Context, path string) (*control.Entry, error)
	Entries(ctx context.Context, path string, some func([]control.Entry) error) error
}

// mostLinks is how many links are followed to one file, as Linux does.
const mostLinks = 40

// Outside are the files and folders of the mount that symbolic links below a place lead to, and that do not
// lie there themselves; sorted, none within another one. Paths are relative to the mount's root. Links that
// lead nowhere or out of the mount are passed over, and so are those in folders that a link leads to.
func Outside(ctx context.Context, c Entries, at *place.Place) ([]string, error) {
	if at.Path == "" {
		return nil, nil
	}
	e, err := c.Entry(ctx, at.Path)
	if err != nil || e.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, err
	}
	w := walk{Entries: c, at: at, found: map[string]bool{}}
	if err := w.folder(ctx, at.Path); err != nil {
		return nil, err
	}
	var all []string
	for p := range w.found {
		all = append(all, p)
	}
	slices.Sort(all)
	return slices.DeleteFunc(all, func(p string) bool {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if w.found[dir] {
				return true
			}
		}
		return false
	}), nil
}

type walk struct {
	Entries
	at    *place.Place
	found map[string]bool
}

// folder looks at what is below a folder. One that goes meanwhile is passed over.
func (w *walk) folder(ctx context.Context, dir string) error {
	var folders, links []string
	err := w.Entries.Entries(ctx, dir, func(some []control.Entry) error {
		for i := range some {
			p := path.Join(dir, string(some[i].Name))
			switch kind := some[i].Mode & unix.S_IFMT; {
			case some[i].View || p == ".ckptfs":
			case kind == unix.S_IFDIR:
				folders = append(folders, p)
			case kind == unix.S_IFLNK:
				links = append(links, w.target(dir, string(some[i].Target)))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, p := range links {
		if err := w.follow(ctx, p); err != nil {
			return err
		}
	}
	for _, p := range folders {
		if err := w.folder(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// target is where a link in a folder leads to; "": out of the mount.
func (w *walk) target(dir, to string) string {
	if !path.IsAbs(to) {
		to = path.Join(dir, to)
	} else if m := w.at.Mount; m == nil || !within(path.Clean(to), m.Mountpoint) {
		return ""
	} else {
		to = strings.Trim(path.Join(m.Root, strings.TrimPrefix(path.Clean(to), m.Mountpoint)), "/")
	}
	if to == ".." || strings.HasPrefix(to, "../") || to == "." {
		return ""
	}
	return to
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// follow notes what is at a path that a link leads to.
func (w *walk) follow(ctx context.Context, p string) error {
	for range mostLinks {
		if p == "" || within(p, w.at.Path) || within(w.at.Path, p) || within(p, ".ckptfs") {
			return nil
		}
		e, err := w.Entry(ctx, p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err != nil {
			return err
		}
		switch kind := e.Mode & unix.S_IFMT; {
		case e.View || kind != unix.S_IFLNK && kind != unix.S_IFREG && kind != unix.S_IFDIR:
			return nil
		case kind != unix.S_IFLNK:
			w.found[p] = true
			return nil
		}
		p = w.target(path.Dir(p), string(e.Target))
	}
	return nil
}
