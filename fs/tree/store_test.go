package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// folder opens a folder for the time of a test.
func folder(t testing.TB, path string) *disk.Folder {
	t.Helper()
	d, err := disk.OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func makeStore(path string) error {
	d, err := OpenOrCreate(path, false, born)
	if err == nil {
		err = d.Close()
	}
	return err
}

// newStore makes a store with all that may be in it.
func newStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	if err := makeStore(dir); err != nil {
		t.Fatal(err)
	}
	for _, own := range ownNames {
		path := filepath.Join(dir, own.name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		put := func() error { return os.WriteFile(path, nil, 0o600) }
		if own.folder {
			put = func() error { return os.Mkdir(path, 0o700) }
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func opens(dir string, foreign bool) error {
	d, err := OpenStore(dir, foreign)
	if err == nil {
		err = d.Close()
	}
	return err
}

// A store that is another user's, or of which a part is, is refused unless told; the tree may be anybody's.
func TestForeignStore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files away")
	}
	dir := newStore(t)
	for _, name := range []string{"", "format", "lock", "tree", "segments", "index.db", "catalogue",
		"lost+found", "log", "writing", "reserve"} {
		path := filepath.Join(dir, name)
		if err := os.Chown(path, 54321, 54321); err != nil {
			t.Fatal(err)
		}
		err := opens(dir, false)
		var foreign *ForeignError
		switch {
		case name == "tree" && err != nil:
			t.Errorf("the tree is another's: %v", err)
		case name != "tree" && (!errors.As(err, &foreign) || foreign.Path != path || foreign.UID != 54321 ||
			!errors.Is(err, os.ErrPermission)):
			t.Errorf("%q is another's: %v", name, err)
		}
		if err := opens(dir, true); err != nil {
			t.Errorf("%q, told: %v", name, err)
		}
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := opens(dir, false); err != nil {
		t.Errorf("our own: %v", err)
	}
}

// The owner of a store, and root's parts of it, are trusted by a user as well.
func TestOwnStoreOfUser(t *testing.T) {
	if os.Geteuid() == 0 {
		dir := newStore(t)
		for p := dir; p != "/tmp" && p != "/"; p = filepath.Dir(p) {
			if err := os.Chmod(p, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("CKPTFS_TEST_ROOTS", dir)
		asNobody(t, "^TestOwnStoreOfUser$")
		return
	}
	if dir := os.Getenv("CKPTFS_TEST_ROOTS"); dir != "" {
		if err := opens(dir, false); err != nil {
			t.Errorf("root's store: %v", err)
		}
	}
	if err := opens(newStore(t), false); err != nil {
		t.Errorf("his own: %v", err)
	}
}

// What is a link, or of another kind, is refused whoever asks for it.
func TestOwnKinds(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		for _, own := range ownNames {
			dir := newStore(t)
			path := filepath.Join(dir, own.name)
			for _, put := range []func() error{
				func() error { return unix.Mkfifo(path, 0o600) },
				func() error { return os.Symlink(t.TempDir(), path) },
				func() error {
					if own.folder {
						return os.WriteFile(path, nil, 0o600)
					}
					return os.Mkdir(path, 0o700)
				},
			} {
				if err := errors.Join(os.RemoveAll(path), put()); err != nil {
					t.Fatal(err)
				}
				if err := opens(dir, foreign); !errors.Is(err, cas.ErrCorrupt) {
					t.Errorf("%s: %v", own.name, err)
				}
			}
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(newStore(t), link); err != nil {
		t.Fatal(err)
	}
	if err := opens(link, true); err == nil {
		t.Error("the store's folder is a link")
	}
}

// Once a store is open, a name that becomes a link leads nowhere.
func TestOwnNamesSwapped(t *testing.T) {
	dir, out := newStore(t), t.TempDir()
	d, err := OpenStore(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, own := range ownNames {
		path := filepath.Join(dir, own.name)
		if err := errors.Join(os.RemoveAll(path), os.Symlink(out, path)); err != nil {
			t.Fatal(err)
		}
		name := own.name
		if own.folder {
			name += "/x"
		}
		if f, err := d.Open(name, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			f.Close()
			t.Errorf("%s leads to %s", name, f.Name())
		}
	}
	if left, _ := os.ReadDir(out); len(left) != 0 {
		t.Errorf("made there: %v", left)
	}
}
