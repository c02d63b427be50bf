package disk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	ro := ReadOnly{OS{}}
	f, err := ro.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 5)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	_, werr := f.WriteAt(b, 0)
	_, oerr := ro.OpenFile(path, os.O_RDWR, 0)
	_, cerr := ro.OpenFile(path+"2", os.O_WRONLY|os.O_CREATE, 0o600)
	for what, err := range map[string]error{
		"write": werr, "open to write": oerr, "create": cerr, "truncate": f.Truncate(0),
		"punch":  f.PunchHole(0, 5),
		"rename": ro.Rename(path, path+"2"), "remove": ro.Remove(path), "mkdir": ro.MkdirAll(path+"3", 0o700),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(f.Sync(), ro.SyncDir(dir)); err != nil {
		t.Errorf("there is nothing to sync, and yet: %v", err)
	}
	if names, err := ro.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%q, %v", names, err)
	}
}
