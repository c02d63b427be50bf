package tree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReserve(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	reserve := filepath.Join(dir, ReserveFile)
	kept := func(full bool, bytes int64) {
		t.Helper()
		got, err := Reserve(folder(t, dir))
		if err != nil || got != full {
			t.Fatalf("full: %v, %v", got, err)
		}
		var st unix.Stat_t
		_ = unix.Stat(reserve, &st)
		if st.Blocks*512 != bytes {
			t.Errorf("%d bytes are kept, want %d", st.Blocks*512, bytes)
		}
	}
	kept(false, 1<<20)
	kept(false, 1<<20)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, int64(st.Bfree)*st.Bsize), 0o600); err != nil {
		t.Fatal(err)
	}
	kept(true, 0)
	if err := os.WriteFile(filepath.Join(dir, "a little"), make([]byte, 1<<20), 0o600); err != nil {
		t.Errorf("there is no room: %v", err)
	}
	kept(true, 0)
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	kept(false, 1<<20)
}
