package names

import (
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Of a tree that may not be changed everything can be read, and whatever would change something is EROFS.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	w := openRig(t, dir)
	w.mkdir("d", "empty")
	w.write("d/f", "g")
	f := w.find("d/f")
	w.must("set", f.SetXattr("user.a", []byte("1"), 0))
	f.Unpin()
	w.end()
	r := openRig(t, dir, readOnly)
	t.Cleanup(r.end)

	r.same("d/f", "d/f")
	r.listing("d")
	if met := r.each(); len(met) != 2 {
		t.Errorf("%d files", len(met))
	}
	n, d := r.find("d/f"), r.find("d")
	defer n.Unpin()
	defer d.Unpin()
	if got, err := xattr(n, "user.a"); got != "1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	h, err := n.File().Open(unix.O_RDONLY, 0)
	r.must("open", err)
	h.Release()
	mode, size := uint32(0o600), int64(0)
	for what, do := range map[string]func() error{
		"create":   func() error { _, err := r.make("x"); return err },
		"mkdir":    func() error { return r.tryMkdir("x") },
		"unnamed":  func() error { _, err := r.MakeUnnamed(d, 0o600, unix.O_RDWR, r.me); return err },
		"link":     func() error { return r.link("g", "x") },
		"unlink":   func() error { return r.unlink("g") },
		"rmdir":    func() error { return r.rmdir("empty") },
		"rename":   func() error { return r.rename("g", "x", 0) },
		"exchange": func() error { return r.rename("g", "d/f", unix.RENAME_EXCHANGE) },
		"chmod":    func() error { _, err := n.SetAttr(&tree.SetAttr{Mode: &mode}); return err },
		"truncate": func() error { _, err := n.SetAttr(&tree.SetAttr{Size: &size}); return err },
		"chmod of a directory": func() error {
			_, err := d.SetAttr(&tree.SetAttr{Mode: &mode})
			return err
		},
		"setxattr":    func() error { return n.SetXattr("user.b", nil, 0) },
		"removexattr": func() error { return d.RemoveXattr("user.a") },
		"open":        func() error { _, err := n.File().Open(unix.O_RDWR, 0); return err },
	} {
		r.want(what, do(), unix.EROFS)
	}
	if len(r.changes) > 0 {
		t.Errorf("Changed was told of %v", r.changes)
	}
	r.same("g", "g")
	r.same("d/f", "d/f")
}
