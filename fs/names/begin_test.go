package names

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// A change of the tree is told before anything of it is done, and when it is over, also where it fails.
func TestBeginAndEnd(t *testing.T) {
	var r *rig
	state := func() string {
		s := ""
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(filepath.Walk(r.at(""), func(p string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			value := make([]byte, 16)
			n, _ := unix.Lgetxattr(p, "user.a", value)
			var st unix.Stat_t
			must(unix.Lstat(p, &st))
			s += fmt.Sprintln(p, st.Mode, st.Size, st.Nlink, st.Ino, string(value[:max(n, 0)]))
			return nil
		}))
		return s
	}
	before, told := "", []string{}
	r = newRig(t, func(o *Options) {
		o.Begin = func() {
			if told = append(told, "begin"); state() != before {
				t.Error("begun after something was done")
			}
		}
		o.End = func() { told = append(told, "end") }
	})
	step := func(what string, do func() error) {
		t.Helper()
		before, told = state(), nil
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if fmt.Sprint(told) != "[begin end]" {
			t.Errorf("%s: told %v", what, told)
		}
	}
	mode, size := uint32(0o600), int64(7)
	step("create", func() error {
		n, err := r.make("f")
		n.Unpin()
		return err
	})
	step("mkdir", func() error { return r.tryMkdir("d") })
	step("link", func() error { return r.link("f", "g") })
	step("rename", func() error { return r.rename("g", "h", 0) })
	n := r.find("f")
	defer n.Unpin()
	step("truncate", func() error { _, err := n.SetAttr(&tree.SetAttr{Size: &size}); return err })
	step("chmod", func() error { _, err := n.SetAttr(&tree.SetAttr{Mode: &mode}); return err })
	step("setxattr", func() error { return n.SetXattr("user.a", []byte("1"), 0) })
	step("removexattr", func() error { return n.RemoveXattr("user.a") })
	step("unlink", func() error { return r.unlink("h") })
	step("rmdir", func() error { return r.rmdir("d") })
	step("mkdir that fails", func() error {
		if err := r.tryMkdir("f"); err != unix.EEXIST {
			return fmt.Errorf("%v, want EEXIST", err)
		}
		return nil
	})
}
