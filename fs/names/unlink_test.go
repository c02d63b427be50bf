package names

import (
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

func TestRemoveDirectory(t *testing.T) {
	r := newRig(t)
	r.mkdir("d/e/g")
	r.write("f")
	r.want("not empty", r.rmdir("d"), unix.ENOTEMPTY)
	r.want("unlink of a directory", r.unlink("d"), unix.EISDIR)
	r.want("rmdir of a file", r.rmdir("f"), unix.ENOTDIR)
	r.want("nothing", r.rmdir("x"), unix.ENOENT)
	r.want("in a file", r.unlink("f/x"), unix.ENOTDIR)
	d := r.find("d")
	if d.Dead() || d.keep >= 0 {
		t.Error("what failed left something behind")
	}
	r.same("f", "f")
	r.must("rmdir", r.rmdir("d/e/g"))
	r.must("rmdir", r.rmdir("d/e"))
	h, err := d.OpenDir()
	r.must("open", err)
	r.must("rmdir", r.rmdir("d"))
	if l, err := h.Entries(r.me, 0, all); err == nil && len(l) > 2 {
		t.Errorf("entries of a removed directory: %v", l)
	}
	r.must("fsync", h.Fsync())
	_, _, err = r.Child(d, "e")
	r.want("a lookup in it", err, unix.ENOENT)
	_, err = r.Remove(d, "e", unix.AT_REMOVEDIR)
	r.want("rmdir in it", err, unix.ENOENT)
	if a, err := d.Attr(); err != nil || a.Nlink != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	h.Release()
	d.Unpin()
	// The name is free again, for anything.
	r.write("d")
	r.same("d", "d")
}

func all(_ *Node, real []tree.DirEntry) []tree.DirEntry { return real }

// A removed directory is used through the descriptor that was taken of it, once the one in the cache is
// closed.
func TestRemovedDirectoryWithoutCache(t *testing.T) {
	r := newRig(t)
	r.KeepOpen(0)
	r.mkdir("d/e")
	d, e := r.find("d"), r.find("d/e")
	r.must("rmdir", r.rmdir("d/e"))
	r.must("rmdir", r.rmdir("d"))
	for range 3 {
		_, _, err := r.Child(e, "x")
		r.want("a lookup in it", err, unix.ENOENT)
		_, err = r.MakeFile(e, "x", 0o600, 0, r.me)
		r.want("create in it", err, unix.ENOENT)
		mode := uint32(0o700)
		if a, err := e.SetAttr(&tree.SetAttr{Mode: &mode}); err != nil || a.Mode != unix.S_IFDIR|mode {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if d.Path() != "(unlinked)" || e.Path() != "(unlinked)" {
		t.Errorf("%s, %s", d.Path(), e.Path())
	}
	d.Unpin()
	e.Unpin()
}

// Remove tells what the name led to, whether anybody knows it or not.
func TestVictim(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("d/f", "d/g")
	d, f := r.find("d"), r.find("d/f")
	v, err := r.Remove(d, "f", 0)
	if err != nil || v.Node != f || v.Ino != f.Ino() || !v.Last || !v.Went || v.Moved || v.Path != "d/f" {
		t.Errorf("%+v, %v", v, err)
	}
	if f.Refs() != 2 || !f.Dead() || f.keep < 0 {
		t.Errorf("%d references", f.Refs())
	}
	v.Spare()
	f.Unpin()
	v, err = r.Remove(d, "g", 0)
	if err != nil || v.Node != nil || v.Ino == 0 || !v.Last || !v.Went || v.Path != "" {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = r.Remove(d, "g", 0)
	if err != unix.ENOENT || v != (Victim{}) {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = r.Remove(r.Root(), "d", 0)
	if err != unix.EISDIR || v.Node != d || v.Went || d.Dead() || d.keep >= 0 {
		t.Errorf("%+v, %v", v, err)
	}
	v.Spare()
	d.Unpin()
}

// A file lives on while it is open, is read and written, and may be opened again.
func TestUnlinkOpen(t *testing.T) {
	r := newRig(t)
	r.write("f")
	n := r.find("f")
	h, err := n.File().Open(unix.O_RDWR, 0)
	r.must("open", err)
	n.Unpin()
	r.must("unlink", r.unlink("f"))
	r.gone("f")
	if _, err := h.Write([]byte("F"), 0); err != nil {
		t.Fatal(err)
	}
	if got := r.read(n); got != "F" {
		t.Errorf("%q", got)
	}
	again, err := n.File().Open(unix.O_RDONLY, 0)
	r.must("open again", err)
	again.Release()
	if a, err := n.Attr(); err != nil || a.Nlink != 0 || a.Size != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	_, err = r.Link(n, r.Root(), "g")
	r.want("link of what lost its last name", err, unix.ENOENT)
	r.write("f") // the name is free
	if r.known("f") == n {
		t.Error("another file is the same node")
	}
	h.Release()
}

// One of two names goes: the node stays, whether the other one is known or not.
func TestUnlinkOneOfTwo(t *testing.T) {
	for _, known := range []bool{true, false} {
		r := newRig(t)
		r.mkdir("d")
		r.write("a")
		r.must("link", r.link("a", "d/b"))
		n := r.find("a")
		if known {
			r.find("d/b").Unpin()
		}
		v, err := r.Remove(r.Root(), "a", 0)
		if err != nil || v.Node != n || v.Last || !v.Went || v.Path != "a" {
			t.Errorf("%+v, %v", v, err)
		}
		v.Spare()
		if n.Dead() || (n.keep >= 0) == known {
			t.Errorf("known %v: dead %v, keep %d", known, n.Dead(), n.keep)
		}
		if a, err := n.Attr(); err != nil || a.Nlink != 1 || r.read(n) != "a" {
			t.Errorf("%+v, %v", a, err)
		}
		want := map[bool]string{true: "d/b", false: "(unlinked)"}[known]
		if got := n.Path(); got != want {
			t.Errorf("path %q, want %q", got, want)
		}
		if r.known("d/b") != n || n.Path() != "d/b" {
			t.Errorf("found again it is another node, or %s", n.Path())
		}
		r.must("rename", r.rename("d/b", "c", 0))
		r.must("unlink", r.unlink("c"))
		if !n.Dead() || r.read(n) != "a" {
			t.Error("it is not kept")
		}
		n.Unpin()
	}
}

// The name that goes is not the one that is known.
func TestUnlinkUnknownOfTwo(t *testing.T) {
	r := newRig(t)
	r.write("a")
	r.must("link", r.link("a", "b"))
	n := r.find("a")
	r.must("unlink", r.unlink("b"))
	if n.Path() != "a" || n.Dead() || r.read(n) != "a" || r.known("a") != n {
		t.Errorf("%s, dead %v", n.Path(), n.Dead())
	}
	r.must("unlink", r.unlink("a"))
	if !n.Dead() || r.read(n) != "a" {
		t.Error("it is not kept")
	}
	n.Unpin()
}

// A name more for a file whose known name went, as linkat(2) of a descriptor makes it.
func TestLinkAfterKnownNameWent(t *testing.T) {
	r := newRig(t)
	r.write("a")
	r.must("link", r.link("a", "b"))
	n := r.find("a")
	r.must("unlink", r.unlink("a"))
	r.must("link", r.linkNode(n, "c"))
	if n.Path() != "c" || r.known("b") != n {
		t.Errorf("%s", n.Path())
	}
	r.same("b", "a")
	r.same("c", "a")
	n.Unpin()
}

// A symbolic link and a fifo without a name are still what they were.
func TestUnlinkedSpecialFiles(t *testing.T) {
	r := newRig(t)
	n := r.symlink("s", "no/where")
	if a, err := n.Attr(); err != nil || a.Mode&unix.S_IFMT != unix.S_IFLNK || a.Size != 8 {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, change := range []func(){
		func() {},
		func() { r.must("rename", r.rename("s", "s2", 0)) },
		func() { r.must("unlink", r.unlink("s2")) },
	} {
		change()
		if got, err := n.Readlink(); err != nil || got != "no/where" {
			t.Errorf("%s: %q, %v", n.Path(), got, err)
		}
	}
	if a, err := n.Attr(); err != nil || a.Mode&unix.S_IFMT != unix.S_IFLNK || a.Nlink != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	mode := uint32(0o600)
	_, err := n.SetAttr(&tree.SetAttr{Mode: &mode})
	r.want("the mode of a link", err, unix.EOPNOTSUPP)
	ts := unix.Timespec{Sec: 5, Nsec: 7}
	if a, err := n.SetAttr(&tree.SetAttr{Mtime: &ts}); err != nil || a.Mtime != ts {
		t.Errorf("%+v, %v", a, err)
	}
	n.Unpin()

	n, a, err := r.Make(r.Root(), "fifo", r.me, &mode, func(fd int) error {
		return unix.Mknodat(fd, "fifo", unix.S_IFIFO|0o644, 0)
	})
	if err != nil || a.Mode != unix.S_IFIFO|mode || n.File() != nil || n.IsDir() || n.Type() != unix.S_IFIFO {
		t.Fatalf("%+v, %v", a, err)
	}
	_, err = n.Readlink()
	r.want("readlink", err, unix.EINVAL)
	r.must("unlink", r.unlink("fifo"))
	mode = 0o640
	if a, err := n.SetAttr(&tree.SetAttr{Mode: &mode}); err != nil || a.Mode != unix.S_IFIFO|mode {
		t.Errorf("%+v, %v", a, err)
	}
	size := int64(0)
	_, err = n.SetAttr(&tree.SetAttr{Size: &size})
	r.want("truncate", err, unix.EINVAL)
	n.Unpin()
}
