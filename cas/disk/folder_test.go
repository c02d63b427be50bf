package disk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func openFolder(t *testing.T, path string) *Folder {
	t.Helper()
	d, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	conformance(t, openFolder(t, dir), dir)
}

// No call leads through a symbolic link, above the folder, or to what is no file, and none hangs.
func TestFolderBeneath(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(filepath.Join(out, "x"), []byte("x"), 0o600), os.Symlink(out, at("away")),
		os.Mkdir(at("in"), 0o700), os.Symlink("in", at("near")), syscall.Mkfifo(at("fifo"), 0o600),
		os.WriteFile(at("file"), nil, 0o600), os.WriteFile(at("in/x"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	d := openFolder(t, dir)
	outside := []string{"away/x", "near/x", "../x", "in/../../x", filepath.Join(out, "x"), at("away/x")}
	for _, name := range append(outside, "away", "fifo", "in") {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
			if f, err := d.Open(name, flag, 0o600); err == nil {
				f.Close()
				t.Errorf("opens %s, flags %#x", name, flag)
			}
		}
	}
	for _, name := range outside {
		for what, err := range map[string]error{
			"remove": d.Remove(name), "mkdir": d.Mkdir(name, 0o700), "mkdirall": d.MkdirAll(name+"/y", 0o700),
			"rename to": d.Rename("file", name+".new"), "rename from": d.Rename(name, "y"),
			"syncdir": d.SyncDir(name),
		} {
			if err == nil {
				t.Errorf("%s %s", what, name)
			}
		}
		if _, err := d.Lstat(name); err == nil {
			t.Errorf("looks at %s", name)
		}
		if _, err := d.ReadDir(name); err == nil {
			t.Errorf("lists %s", name)
		}
	}
	if _, err := d.ReadDir("away"); err == nil {
		t.Error("lists a link")
	}
	if names, err := os.ReadDir(out); err != nil || len(names) != 1 {
		t.Errorf("outside is %v, %v", names, err)
	}
}

// What is done after the opening is done in the folder that was opened, whatever its path is by then.
func TestFolderStays(t *testing.T) {
	base := t.TempDir()
	store, moved, other := filepath.Join(base, "s"), filepath.Join(base, "moved"), filepath.Join(base, "o")
	if err := errors.Join(os.Mkdir(store, 0o700), os.Mkdir(other, 0o700)); err != nil {
		t.Fatal(err)
	}
	d := openFolder(t, store)
	if err := errors.Join(os.Rename(store, moved), os.Symlink(other, store)); err != nil {
		t.Fatal(err)
	}
	f, err := d.Open(filepath.Join(store, "x"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f.Name() != filepath.Join(store, "x") {
		t.Errorf("the file is called %s", f.Name())
	}
	if _, err := os.Lstat(filepath.Join(moved, "x")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(d.MkdirAll("sub", 0o700), os.Remove(filepath.Join(moved, "sub")),
		os.Symlink(other, filepath.Join(moved, "sub"))); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open("sub/y", os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a folder that became a link: %v", err)
	}
	if names, _ := os.ReadDir(other); len(names) != 0 {
		t.Errorf("the other folder has %v", names)
	}
	if _, err := OpenFolder(store); err == nil {
		t.Error("a link is opened as a folder")
	}
}
