package names

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRenameFlags(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("a", "d/b")
	a, b := r.find("a"), r.find("d/b")
	defer a.Unpin()
	defer b.Unpin()
	r.want("NOREPLACE onto a name", r.rename("a", "d/b", unix.RENAME_NOREPLACE), unix.EEXIST)
	r.want("NOREPLACE onto itself", r.rename("a", "a", unix.RENAME_NOREPLACE), unix.EEXIST)
	for _, flag := range []uint32{unix.RENAME_NOREPLACE, unix.RENAME_WHITEOUT} {
		r.want("EXCHANGE and another", r.rename("a", "d/b", unix.RENAME_EXCHANGE|flag), unix.EINVAL)
	}
	r.want("unknown", r.rename("a", "c", 1<<10), unix.EINVAL)
	r.want("EXCHANGE with nothing", r.rename("a", "c", unix.RENAME_EXCHANGE), unix.ENOENT)
	r.want("of nothing", r.rename("c", "a", 0), unix.ENOENT)
	r.want("of nothing to nothing", r.rename("c", "e", unix.RENAME_NOREPLACE), unix.ENOENT)
	r.same("a", "a")
	r.same("d/b", "d/b")
	if a.Dead() || b.Dead() || a.keep >= 0 || b.keep >= 0 {
		t.Error("a rename that failed left something behind")
	}

	r.must("EXCHANGE", r.rename("a", "d/b", unix.RENAME_EXCHANGE))
	r.same("a", "d/b")
	r.same("d/b", "a")
	if a.Path() != "d/b" || b.Path() != "a" || a.Dead() || b.Dead() || a.keep >= 0 || b.keep >= 0 {
		t.Errorf("%s and %s", a.Path(), b.Path())
	}
	r.must("NOREPLACE", r.rename("a", "d/c", unix.RENAME_NOREPLACE))
	r.same("d/c", "d/b")
	r.gone("a")
	// A file and a directory that is not empty change places.
	r.write("f")
	r.must("EXCHANGE", r.rename("f", "d", unix.RENAME_EXCHANGE))
	r.same("d", "f")
	r.same("f/b", "a")
	if a.Path() != "f/b" {
		t.Errorf("%s", a.Path())
	}
}

// What is exchanged need not be known.
func TestExchangeUnknown(t *testing.T) {
	for _, known := range []string{"", "a", "b"} {
		r := newRig(t)
		r.write("a", "b")
		var n *Node
		if known != "" {
			n = r.find(known)
		}
		r.must("EXCHANGE", r.rename("a", "b", unix.RENAME_EXCHANGE))
		if n != nil {
			if p := n.Path(); p == known || p != "a" && p != "b" {
				t.Errorf("%s is at %s", known, p)
			}
			n.Unpin()
		}
		r.same("a", "b")
		r.same("b", "a")
	}
}

func TestWhiteout(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a device")
	}
	r := newRig(t)
	r.write("a")
	n := r.find("a")
	defer n.Unpin()
	r.must("WHITEOUT", r.rename("a", "b", unix.RENAME_WHITEOUT))
	r.same("b", "a")
	left := r.find("a")
	defer left.Unpin()
	a, err := left.Attr()
	if err != nil || a.Mode&unix.S_IFMT != unix.S_IFCHR || a.Rdev != 0 {
		t.Errorf("what is left is %o %x, %v", a.Mode, a.Rdev, err)
	}
	if n.Path() != "b" || left == n || left.File() != nil {
		t.Errorf("the file is %s", n.Path())
	}
	r.write("c")
	r.must("WHITEOUT over a name", r.rename("b", "c", unix.RENAME_WHITEOUT))
	r.same("c", "a")
}

// Two names of one file: rename(2) does nothing and leaves both.
func TestRenameOntoItself(t *testing.T) {
	r := newRig(t)
	r.write("a")
	r.must("link", r.link("a", "b"))
	r.must("link", r.link("a", "c"))
	n := r.find("a")
	defer n.Unpin()
	for _, to := range []string{"b", "a"} { // b is not known at first
		r.must("rename", r.rename("a", to, 0))
		r.must("EXCHANGE", r.rename("a", to, unix.RENAME_EXCHANGE))
		r.same("a", "a")
		r.same("b", "a")
	}
	if n.Dead() || n.keep >= 0 || r.known("b") != n {
		t.Error("the node is another one")
	}
}

// Open files and known children stay what they are when a directory above them moves or is replaced.
func TestRenameDirectory(t *testing.T) {
	for _, keepOpen := range []int{openDirs, 0} {
		r := newRig(t)
		r.KeepOpen(keepOpen)
		r.mkdir("a/b/c", "z", "full/x")
		r.write("a/b/c/f", "file")
		f, c, z := r.find("a/b/c/f"), r.find("a/b/c"), r.find("z")

		r.must("rename", r.rename("a/b", "z", 0)) // over an empty directory that is known
		r.same("z/c/f", "a/b/c/f")
		if got := f.Path(); got != "z/c/f" {
			t.Errorf("the file is %s", got)
		}
		n, _, err := r.Child(c, "f")
		if err != nil || n != f {
			t.Fatalf("another node, or %v", err)
		}
		n.Unpin()
		_, _, err = r.Child(z, "c")
		r.want("a lookup in a removed directory", err, unix.ENOENT)
		if a, err := z.Attr(); err != nil || a.Nlink != 0 || !z.Dead() {
			t.Errorf("%+v, %v", a, err)
		}
		_, err = r.MakeFile(z, "f", 0o644, unix.O_RDWR, r.me)
		r.want("create in a removed directory", err, unix.ENOENT)
		if l, err := z.List(); err == nil && len(l) > 2 {
			t.Errorf("names in a removed directory: %v", l)
		}

		r.want("over a directory that is not empty", r.rename("a", "full", 0), unix.ENOTEMPTY)
		r.want("into itself", r.rename("z", "z/c/z", 0), unix.EINVAL)
		r.want("a directory over a file", r.rename("a", "file", 0), unix.ENOTDIR)
		r.want("a file over a directory", r.rename("file", "a", 0), unix.EISDIR)
		r.same("z/c/f", "a/b/c/f")
		for _, n := range []*Node{f, c, z} {
			n.Unpin()
		}
		r.onlyRoot()
	}
}

// Rename tells what lost its name and what moved.
func TestRenameVictim(t *testing.T) {
	r := newRig(t)
	r.write("a", "b", "e")
	a, b := r.find("a"), r.find("b")
	v, moved, err := r.Rename(r.Root(), "a", r.Root(), "b", 0)
	r.must("rename", err)
	if v.Node != b || v.Ino != b.Ino() || !v.Last || !v.Went || !v.Moved || v.Path != "b" || moved != a {
		t.Errorf("%+v", v)
	}
	v.Spare()
	moved.Unpin()
	v, moved, err = r.Rename(r.Root(), "b", r.Root(), "new", 0)
	if err != nil || v.Node != nil || v.Ino != 0 || v.Last || !v.Moved || moved != a {
		t.Errorf("%+v, %v", v, err)
	}
	moved.Unpin()
	v, moved, err = r.Rename(r.Root(), "new", r.Root(), "e", unix.RENAME_EXCHANGE)
	if err != nil || v.Node != nil || v.Went || !v.Moved || moved != a {
		t.Errorf("%+v, %v", v, err)
	}
	moved.Unpin()
	v, moved, err = r.Rename(r.Root(), "e", r.Root(), "e", 0)
	if err != nil || v.Node != a || v.Went || v.Moved || moved != a {
		t.Errorf("%+v, %v", v, err)
	}
	v.Spare()
	moved.Unpin()
	if r.read(b) != "b" || !b.Dead() || b.keep < 0 {
		t.Error("what was replaced is not kept")
	}
	a.Unpin()
	b.Unpin()
}
