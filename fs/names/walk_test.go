package names

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// walk is the paths that Walk comes to.
func (r *rig) walk(ctx context.Context) (paths []string, err error) {
	err = r.Walk(ctx, func(p string, n *Node) error {
		if n.File() == nil || n.Refs() < 1 {
			r.t.Errorf("%s: no file, or %d references", p, n.Refs())
		}
		paths = append(paths, p)
		return nil
	})
	slices.Sort(paths)
	return paths, err
}

func TestWalk(t *testing.T) {
	r := newRig(t)
	r.mkdir("a/b", "empty")
	r.write("f", "a/g", "a/b/h")
	r.symlink("s", "f").Unpin()
	paths, err := r.walk(t.Context())
	if want := []string{"a/b/h", "a/g", "f"}; err != nil || !slices.Equal(paths, want) {
		t.Errorf("%q, %v", paths, err)
	}
	a := r.find("a")
	defer a.Unpin()
	paths = nil
	err = r.WalkBelow(t.Context(), "a", a, func(p string, n *Node) error {
		if paths = append(paths, p); n.Path() != p {
			t.Errorf("%s is %s", p, n.Path())
		}
		return nil
	})
	if len(paths) != 2 || err != nil {
		t.Errorf("%q, %v", paths, err)
	}
	wrong := errors.New("wrong")
	if err := r.Walk(t.Context(), func(string, *Node) error { return wrong }); err != wrong {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if paths, err := r.walk(ctx); len(paths) > 0 || err != context.Canceled {
		t.Errorf("%q, %v", paths, err)
	}
	v := r.Synthesise(r.Root(), "v", 1, unix.S_IFREG, &fake{key: 1, traits: Traits{Virtual: true}})
	defer v.Unpin()
	r.must("walk below .ckptfs", r.WalkBelow(t.Context(), "v", v, func(string, *Node) error { return wrong }))
}

// eachErr is a context that does something each time that it is asked.
type eachErr struct {
	context.Context
	do func()
}

func (c eachErr) Err() error {
	c.do()
	return nil
}

// A directory that goes just before it is listed is passed over.
func TestWalkMeetsRemoved(t *testing.T) {
	for _, keepOpen := range []int{openDirs, 0} {
		r := newRig(t)
		r.KeepOpen(keepOpen)
		r.mkdir("a", "b", "c")
		r.write("f", "g")
		asked := 0
		paths, err := r.walk(eachErr{t.Context(), func() {
			if asked++; asked == 1 {
				return // for the root
			}
			for _, p := range []string{"a", "b", "c"} {
				r.rmdir(p)
			}
		}})
		if err != nil || !slices.Equal(paths, []string{"f", "g"}) {
			t.Errorf("%q, %v", paths, err)
		}
	}
}

// Without privileges, what a folder's owner has locked is left out and reported; with them it is an error.
func TestWalkLocked(t *testing.T) {
	r := newRig(t)
	r.mkdir("d/locked", "e")
	r.write("d/f", "d/locked/g", "e/h")
	for _, p := range []string{"", "d", "e"} {
		r.must("chmod", os.Chmod(r.at(p), 0o755))
	}
	r.must("chmod", os.Chmod(r.at("d/locked"), 0))
	unprivileged(t, func() {
		r.privileged = true
		_, err := r.walk(t.Context())
		r.want("with privileges", err, unix.EACCES)
		r.privileged = false
		paths, err := r.walk(t.Context())
		if err != nil || !slices.Equal(paths, []string{"d/f", "e/h"}) || len(r.lines) != 1 {
			t.Errorf("%q, %v, reported %q", paths, err, r.lines)
		}
	})
	r.must("chmod", os.Chmod(r.at("d/locked"), 0o755))
}

// The daemon's own looking around leaves directories' access times alone; a program's does not.
func TestListQuietly(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	old := unix.Timespec{Sec: 1_000_000_000}
	n := r.find("d")
	defer n.Unpin()
	r.must("utimes", unix.UtimesNano(r.at("d"), []unix.Timespec{old, {Sec: 1_100_000_000}}))
	if _, err := r.walk(t.Context()); err != nil || r.attr("d").Atime != old {
		t.Errorf("it moved to %v, %v", r.attr("d").Atime, err)
	}
	if _, err := n.ListQuietly(); err != nil || r.attr("d").Atime != old {
		t.Errorf("it moved to %v, %v", r.attr("d").Atime, err)
	}
}

func TestResolve(t *testing.T) {
	r := newRig(t)
	r.mkdir("a/b")
	r.write("a/b/f")
	r.symlink("s", "a").Unpin()
	for _, p := range []string{"a/b/f", "/a/b/f", "a//b/./f", "a/x/../b/f/"} {
		if n := r.find(p); n.Path() != "a/b/f" {
			t.Errorf("%s leads to %s", p, n.Path())
		} else {
			n.Unpin()
		}
	}
	for _, p := range []string{"", "/", "..", "a/.."} {
		if n := r.find(p); n != r.Root() || n.Path() != "" {
			t.Errorf("%s leads to %s", p, n.Path())
		} else {
			n.Unpin()
		}
	}
	for p, want := range map[string]error{"x/y": unix.ENOENT, "a/b/f/g": unix.ENOTDIR, "s/b": unix.ENOTDIR} {
		_, err := r.Resolve(p)
		r.want(p, err, want)
	}
}
