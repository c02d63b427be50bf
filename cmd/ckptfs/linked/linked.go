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

// mostLinks is how many links one path may lead over, as Linux has it.
const mostLinks = 40

// Outside are the files and folders of the mount that symbolic links below a place lead to, also those in a
// folder that a link leads to, and that do not lie there themselves; sorted, none within another one. Paths
// are relative to the mount's root. Links that lead nowhere, out of the mount or to a folder above them are
// passed over.
func Outside(ctx context.Context, c Entries, at *place.Place) ([]string, error) {
	if at.Path == "" {
		return nil, nil
	}
	e, err := c.Entry(ctx, at.Path)
	if err != nil || e.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, err
	}
	w := walk{Entries: c, at: at, found: map[string]bool{}, known: map[string]*control.Entry{}}
	for w.todo = []string{at.Path}; len(w.todo) > 0; {
		dir := w.todo[0]
		w.todo = w.todo[1:]
		if err := w.folder(ctx, dir); err != nil {
			return nil, err
		}
	}
	var all []string
	for p := range w.found {
		if !w.covered(path.Dir(p)) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all, nil
}

type walk struct {
	Entries
	at    *place.Place
	todo  []string                  // folders
	found map[string]bool           // what links lead to
	known map[string]*control.Entry // what is at the paths that links lead over; nil: nothing
}

// covered reports whether a folder is found, or lies in one that is.
func (w *walk) covered(dir string) bool {
	for ; dir != "." && dir != "/"; dir = path.Dir(dir) {
		if w.found[dir] {
			return true
		}
	}
	return false
}

// folder looks at what is in a folder. One that goes meanwhile is passed over.
func (w *walk) folder(ctx context.Context, dir string) error {
	var links []string
	err := w.Entries.Entries(ctx, dir, func(some []control.Entry) error {
		for i := range some {
			e, p := &some[i], path.Join(dir, string(some[i].Name))
			switch kind := e.Mode & unix.S_IFMT; {
			case e.View || p == ".ckptfs":
			case kind == unix.S_IFDIR:
				w.todo = append(w.todo, p)
			case kind == unix.S_IFLNK:
				links = append(links, string(e.Target))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, to := range links {
		p, e, err := w.resolve(ctx, dir, to)
		if err != nil {
			return err
		}
		inside, above := within(p, w.at.Path), within(w.at.Path, p) || within(dir, p)
		if e == nil || inside || above || within(p, ".ckptfs") || w.found[p] {
			continue
		}
		switch kind := e.Mode & unix.S_IFMT; {
		case e.View || kind != unix.S_IFREG && kind != unix.S_IFDIR:
		case kind == unix.S_IFDIR && !w.covered(path.Dir(p)):
			w.todo = append(w.todo, p)
			fallthrough
		default:
			w.found[p] = true
		}
	}
	return nil
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// resolve goes where a link in a folder leads, name by name; no entry: nowhere, or out of the mount.
func (w *walk) resolve(ctx context.Context, dir, to string) (string, *control.Entry, error) {
	todo := to
	at, e, followed := dir, (*control.Entry)(nil), 0
	for todo != "" {
		if todo[0] == '/' {
			m := w.at.Mount
			rest := path.Clean(todo)
			if m == nil || !within(rest, m.Mountpoint) {
				return "", nil, nil
			}
			at = strings.Trim(m.Root, "/")
			todo = strings.TrimPrefix(strings.TrimPrefix(rest, strings.TrimSuffix(m.Mountpoint, "/")), "/")
		}
		var name string
		name, todo, _ = strings.Cut(todo, "/")
		todo = strings.TrimLeft(todo, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return "", nil, nil
			}
			if at = path.Dir(at); at == "." {
				at = ""
			}
			e = nil
			continue
		}
		next := path.Join(at, name)
		var err error
		if e, err = w.entry(ctx, next); e == nil {
			return "", nil, err
		}
		if e.Mode&unix.S_IFMT != unix.S_IFLNK {
			at = next
			continue
		}
		if followed++; followed > mostLinks {
			return "", nil, nil
		}
		todo = strings.TrimSuffix(string(e.Target)+"/"+todo, "/")
	}
	if e == nil && at != "" { // it ended with ".."
		var err error
		if e, err = w.entry(ctx, at); err != nil {
			return "", nil, err
		}
	}
	return at, e, nil
}

// entry is what is at a path, nil if nothing is.
func (w *walk) entry(ctx context.Context, p string) (*control.Entry, error) {
	if e, ok := w.known[p]; ok {
		return e, nil
	}
	e, err := w.Entry(ctx, p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		e, err = nil, nil
	}
	if err == nil {
		w.known[p] = e
	}
	return e, err
}
