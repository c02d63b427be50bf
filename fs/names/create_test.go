package names

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

func TestMakeFile(t *testing.T) {
	r := newRig(t)
	m, err := r.MakeFile(r.Root(), "f", unix.S_IFREG|0o4751, unix.O_RDWR, r.me)
	r.must("make", err)
	a := m.Attr
	if a.Mode != unix.S_IFREG|0o4751 || a.Nlink != 1 || a.Ino != m.Node.Ino() || a.UID != r.me.UID {
		t.Errorf("%+v", a)
	}
	h, err := m.Open(unix.O_RDWR, 0)
	r.must("open", err)
	if m.Attr.Settled || m.Node.Refs() != 2 {
		t.Errorf("settled %v, %d references", m.Attr.Settled, m.Node.Refs())
	}
	if _, err := h.Write([]byte("x"), 0); err != nil {
		t.Error(err)
	}
	h.Release()
	m.Node.Unpin()
	r.same("f", "x")
	if r.changes[r.Root().Ino()] != 1 {
		t.Errorf("Changed was told of %d", r.changes[r.Root().Ino()])
	}

	_, err = r.MakeFile(r.Root(), "f", 0o644, unix.O_RDWR, r.me)
	r.want("a taken name", err, unix.EEXIST)
	_, err = r.MakeFile(r.Root(), strings.Repeat("n", 256), 0o644, unix.O_RDWR, r.me)
	r.want("a name of 256 bytes", err, unix.ENAMETOOLONG)
	f := r.find("f")
	defer f.Unpin()
	_, _, err = r.Child(f, "x")
	r.want("a lookup in a file", err, unix.ENOTDIR)
	_, err = f.OpenDir()
	r.want("a file as a directory", err, unix.ENOTDIR)
	_, err = r.MakeFile(f, "x", 0o644, unix.O_RDWR, r.me)
	r.want("create in a file", err, unix.ENOTDIR)
}

// A name that leads to something without an inode is not made, by any operation but rename, whose caller
// sees to it.
func TestReserved(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("f")
	_, err := r.make("reserved")
	r.want("create", err, unix.EEXIST)
	r.want("mkdir", r.tryMkdir("reserved"), unix.EEXIST)
	r.want("link", r.link("f", "reserved"), unix.EEXIST)
	r.gone("reserved")
	r.write("d/reserved")
	r.must("link", r.link("f", "d/x"))
}

// What could not be finished leaves no name behind, and no reference.
func TestMakeFails(t *testing.T) {
	r := newRig(t)
	_, _, err := r.Make(r.Root(), "d", r.me, nil, func(int) error { return unix.ENOSPC })
	r.want("make", err, unix.ENOSPC)
	r.want("what is there", r.tryMkdir(""), unix.ENOENT)
	// do makes another name than it should: what comes afterwards fails.
	mode := uint32(0o700)
	_, _, err = r.Make(r.Root(), "d", r.me, &mode, func(fd int) error {
		return unix.Mkdirat(fd, "other", 0o700)
	})
	r.want("make of another", err, unix.ENOENT)
	r.gone("d")
	if names := r.listing(""); len(names) != 1 {
		t.Errorf("%q", names)
	}
}

// The reference of a file that cannot be opened is taken back.
func TestMadeOpenFails(t *testing.T) {
	r := newRig(t)
	m, err := r.MakeFile(r.Root(), "f", 0o600, unix.O_RDONLY, r.me)
	r.must("make", err)
	r.must("remove", os.Remove(r.at("f"))) // behind its back
	if h, err := m.Open(unix.O_RDWR, 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v, %v", h, err)
	}
}

// A directory with the set-group-id bit gives its group on, and directories the bit as well.
func TestSetGroupID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	r := newRig(t)
	r.mkdir("d")
	gid, mode := uint32(4321), uint32(0o2775)
	d := r.find("d")
	defer d.Unpin()
	_, err := d.SetAttr(&tree.SetAttr{GID: &gid, Mode: &mode})
	r.must("chown", err)
	r.me = tree.Caller{UID: 1234, GID: 1235}
	r.write("d/f", "g")
	r.mkdir("d/e")
	s := r.symlink("d/s", "f")
	s.Unpin()
	m, err := r.MakeUnnamed(d, 0o640, unix.O_RDWR, r.me)
	r.must("make", err)
	m.Close()
	m.Node.Unpin()
	for p, want := range map[string]uint32{"d/f": gid, "d/e": gid, "d/s": gid, "g": r.me.GID} {
		if a := r.attr(p); a.UID != 1234 || a.GID != want {
			t.Errorf("%s: %+v", p, a)
		}
	}
	if a := r.attr("d/e"); a.Mode != unix.S_IFDIR|0o2755 {
		t.Errorf("%o", a.Mode)
	}
	if a := m.Attr; a.UID != 1234 || a.GID != gid || a.Mode != unix.S_IFREG|0o640 {
		t.Errorf("without a name: %+v", a)
	}
}

func (r *rig) attr(p string) tree.Attr {
	r.t.Helper()
	n := r.find(p)
	defer n.Unpin()
	a, err := n.Attr()
	r.must("attr of "+p, err)
	return a
}

// A file without a name is not listed. It may get one, and several; or it goes with its last reference.
func TestMakeUnnamed(t *testing.T) {
	for _, linked := range []bool{true, false} {
		for _, flags := range []uint32{unix.O_RDWR, unix.O_WRONLY, unix.O_RDONLY} {
			r := newRig(t)
			r.mkdir("d")
			dir := r.find("d")
			m, err := r.MakeUnnamed(dir, 0o640, flags, r.me)
			r.must("make", err)
			n := m.Node
			unnamed := m.Attr.Nlink == 0 && n.Dead() && n.Path() == "(unlinked)"
			if !unnamed || m.Attr.Mode != unix.S_IFREG|0o640 {
				t.Errorf("%s: %+v", n.Path(), m.Attr)
			}
			h, err := m.Open(flags, 0)
			r.must("open", err)
			if flags != unix.O_RDONLY {
				if _, err := h.Write([]byte("x"), 0); err != nil {
					t.Error(err)
				}
			}
			if l := r.listing("d"); len(l) != 0 {
				t.Errorf("names: %v", l)
			}
			if linked {
				r.must("link", r.linkNode(n, "d/f"))
				r.must("link", r.linkNode(n, "g"))
				a := r.attr("d/f")
				if a.Nlink != 2 || a.Ino != n.Ino() || n.Dead() || r.known("g") != n || n.Path() != "d/f" {
					t.Errorf("%s: %+v", n.Path(), a)
				}
				r.must("unlink", r.unlink("d/f"))
				r.must("unlink", r.unlink("g"))
				if !n.Dead() {
					t.Error("it lives without a name")
				}
			}
			h.Release()
			dir.Unpin()
			n.Unpin()
			r.onlyRoot()
		}
	}
}

// The reference that Link took is taken back when the new name cannot be described.
func TestLinkFails(t *testing.T) {
	r := newRig(t)
	r.write("f")
	n := r.find("f")
	r.onChange = func() { // behind its back
		os.Remove(r.at("f"))
		os.Remove(r.at("g"))
	}
	if _, err := r.Link(n, r.Root(), "g"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v", err)
	}
	if n.Refs() != 1 {
		t.Errorf("%d references", n.Refs())
	}
	r.Forget(n.ID(), uint64(n.Refs()))
}

func TestLink(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("f", "g")
	r.want("onto a name", r.link("f", "g"), unix.EEXIST)
	r.want("of a directory", r.link("d", "e"), unix.EPERM)
	r.want("below a file", r.link("f", "g/x"), unix.ENOTDIR)
	n := r.find("f")
	a, err := r.Link(n, r.Root(), "h")
	if err != nil || a.Nlink != 2 || a.Ino != n.Ino() || n.Refs() != 2 {
		t.Errorf("%+v, %d references, %v", a, n.Refs(), err)
	}
	n.unref(2)
	s := r.symlink("s", "f")
	r.must("link of a link", r.linkNode(s, "s2"))
	r.must("unlink", r.unlink("s"))
	if r.known("s2") != s || s.Path() != "s2" {
		t.Errorf("%s", s.Path())
	}
	s.Unpin()
}
