package disk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What is no file is refused at once, and a symbolic link is not followed.
func TestOpenFileKinds(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("folder"), 0o700),
		os.WriteFile(at("file"), []byte("x"), 0o600), os.Symlink(at("file"), at("link")))
	if err != nil {
		t.Fatal(err)
	}
	for _, fsys := range []FS{OS{}, ReadOnly{OS{}}} {
		for _, name := range []string{"fifo", "folder", "link"} {
			for _, flag := range []int{os.O_RDONLY, os.O_RDWR} {
				if f, err := fsys.OpenFile(at(name), flag, 0); err == nil {
					f.Close()
					t.Errorf("%T opens a %s, flags %#x", fsys, name, flag)
				}
			}
		}
		f, err := fsys.OpenFile(at("file"), os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}
