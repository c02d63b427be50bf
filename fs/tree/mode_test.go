package tree

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A file whose mode denies everything to its owner takes records and keeps the mode. Root is denied
// nothing, so root runs this as nobody.
func TestDenyingFile(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t, "^TestDenyingFile$")
		return
	}
	path := stub(t)
	for _, mode := range []os.FileMode{0, 0o444, 0o200, 0o077} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if err := WriteRecord(path, &r.rec); err != nil {
				t.Errorf("%o: %v", mode, err)
			}
			if got, err := ReadRecord(path); err != nil || got != r.rec {
				t.Errorf("%o: %+v, %v", mode, got, err)
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Mode&0o7777 != uint32(mode) {
			t.Errorf("%o: %+v, %v", mode, st, err)
		}
	}
}

// asNobody runs tests of this binary without privileges.
func asNobody(t *testing.T, run string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptfs-nobody") // TempDir's parents are root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "test")
	if err := errors.Join(os.Chmod(dir, 0o777), copyFile(exe, bin)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.run="+run, "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip("root may not become nobody here")
	}
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
