package names

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

func (r *rig) setattr(p string, s *tree.SetAttr) tree.Attr {
	r.t.Helper()
	n := r.find(p)
	defer n.Unpin()
	a, err := n.SetAttr(s)
	r.must("setattr of "+p, err)
	return a
}

func TestKillSUID(t *testing.T) {
	r := newRig(t)
	r.write("f")
	for _, c := range []struct{ mode, want uint32 }{{0o6755, 0o755}, {0o6644, 0o2644}, {0o755, 0o755}} {
		r.setattr("f", &tree.SetAttr{Mode: &c.mode})
		if a := r.setattr("f", &tree.SetAttr{KillSUID: true}); a.Mode&0o7777 != c.want {
			t.Errorf("%o becomes %o, want %o", c.mode, a.Mode&0o7777, c.want)
		}
	}
}

func TestAttributesOfDirectories(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	mode := uint32(0o1777)
	ts := unix.Timespec{Sec: 5, Nsec: 7}
	for _, p := range []string{"d", ""} {
		a := r.setattr(p, &tree.SetAttr{Mode: &mode, Mtime: &ts})
		if a.Mode != unix.S_IFDIR|mode || a.Mtime != ts || !a.Settled {
			t.Errorf("%q: %+v", p, a)
		}
	}
	size := int64(0)
	n := r.find("d")
	defer n.Unpin()
	_, err := n.SetAttr(&tree.SetAttr{Size: &size})
	r.want("truncate", err, unix.EINVAL)
	if st, err := r.StatFS(); err != nil || st.Blocks == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	r.must("sync", r.Sync(r.SyncTree))
	r.must("sync", r.SyncTree())
	dir := r.o.Dir
	r.o.Dir = "/nowhere"
	r.want("sync where no file can be made", r.Sync(func() error { return unix.EIO }), unix.EIO)
	r.o.Dir = dir
}

// xattr is the value of an attribute, or an error.
func xattr(n *Node, name string) (string, error) {
	var b [100]byte
	k, err := n.GetXattr(name, b[:])
	return string(b[:max(k, 0)]), err
}

// The attributes of a file are reached by its name and, once it has none, by its descriptor.
func TestXattrs(t *testing.T) {
	for _, unlinked := range []bool{false, true} {
		r := newRig(t)
		r.write("f")
		r.mkdir("d")
		f, d := r.find("f"), r.find("d")
		if unlinked {
			r.must("unlink", r.unlink("f"))
			r.must("rmdir", r.rmdir("d"))
		}
		for _, n := range []*Node{f, d} {
			r.must("set", n.SetXattr("user.a", []byte("0.31"), 0))
			if got, err := xattr(n, "user.a"); got != "0.31" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if k, err := n.GetXattr("user.a", nil); k != 4 || err != nil {
				t.Errorf("length: %d, %v", k, err)
			}
			_, err := n.GetXattr("user.a", make([]byte, 1))
			r.want("too little room", err, unix.ERANGE)
			r.want("XATTR_CREATE", n.SetXattr("user.a", nil, unix.XATTR_CREATE), unix.EEXIST)
			r.want("XATTR_REPLACE", n.SetXattr("user.b", nil, unix.XATTR_REPLACE), unix.ENODATA)
			var list [1000]byte
			k, err := n.ListXattr(list[:])
			if err != nil || !strings.Contains(string(list[:max(k, 0)]), "user.a\x00") {
				t.Errorf("%q, %v", list[:max(k, 0)], err)
			}
			r.must("remove", n.RemoveXattr("user.a"))
			_, err = xattr(n, "user.a")
			r.want("removed", err, unix.ENODATA)
			r.want("removed twice", n.RemoveXattr("user.a"), unix.ENODATA)
			if r.changes[n.Ino()] == 0 {
				t.Error("Changed was not told")
			}
			n.Unpin()
		}
	}
}

// The attributes of a symbolic link are its own, never those of what it leads to.
func TestXattrsOfSymlink(t *testing.T) {
	r := newRig(t)
	r.write("f")
	f := r.find("f")
	defer f.Unpin()
	r.must("set", f.SetXattr("user.a", []byte("file"), 0))
	s := r.symlink("s", r.at("f"))
	defer s.Unpin()
	for _, unlinked := range []bool{false, true} {
		if unlinked {
			r.must("unlink", r.unlink("s"))
		}
		// Linux has no user's attributes of links: it does not look at what the link leads to.
		if got, err := xattr(s, "user.a"); err != unix.EPERM && err != unix.ENODATA {
			t.Errorf("%q, %v", got, err)
		}
		r.want("set", s.SetXattr("user.a", []byte("link"), 0), unix.EPERM)
		if err := s.RemoveXattr("user.a"); err != unix.EPERM && err != unix.ENODATA {
			t.Errorf("remove: %v", err)
		}
		if k, err := s.ListXattr(nil); err != nil || k != 0 && os.Geteuid() == 0 {
			t.Errorf("%d bytes of names, %v", k, err)
		}
		if os.Geteuid() != 0 {
			continue
		}
		if err := s.SetXattr("trusted.a", []byte("link"), 0); err != nil {
			t.Logf("trusted attributes: %v", err)
			continue
		}
		if got, err := xattr(s, "trusted.a"); got != "link" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		r.must("remove", s.RemoveXattr("trusted.a"))
	}
	if got, err := xattr(f, "user.a"); got != "file" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_, err := xattr(f, "trusted.a")
	r.want("the file's", err, unix.ENODATA)
}
