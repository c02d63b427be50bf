// Package placetest makes what places are found in.
package placetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"ckptfs/fs/tree"
)

// MountTable reads mounts as the kernel would show them; each is "root mountpoint type source".
func MountTable(t testing.TB, lines ...string) []*mountinfo.Info {
	t.Helper()
	var b strings.Builder
	for i, l := range lines {
		f := strings.Fields(l)
		b.WriteString(strings.Join([]string{string(rune('1' + i)), "1", "0:4" + string(rune('0'+i)),
			f[0], f[1], "rw", "-", f[2], f[3], "rw"}, " ") + "\n")
	}
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return mounts
}

// RealDir is a fresh folder whose name holds no symlink.
func RealDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// MakeStore makes an empty store.
func MakeStore(t testing.TB) string {
	t.Helper()
	store := filepath.Join(RealDir(t), "store")
	d, err := tree.OpenOrCreate(store, false, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	return store
}

// MakeFile makes a file, and the folders above it.
func MakeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
