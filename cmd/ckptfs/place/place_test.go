package place

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place/placetest"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
)

func TestFindInMounts(t *testing.T) {
	dir := placetest.RealDir(t)
	placetest.MakeFile(t, dir+"/mnt/runs/a/model.pt", "")
	placetest.MakeFile(t, dir+"/mnt/other/x", "")
	placetest.MakeFile(t, dir+"/mnt two/f", "")
	placetest.MakeFile(t, dir+"/bind/a/model.pt", "")
	placetest.MakeFile(t, dir+"/twice/f", "")
	placetest.MakeFile(t, dir+"/mntx/f", "")
	for name, to := range map[string]string{"link": "mnt", "inside": "mnt/runs/a", "mnt/latest": "runs/a"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	mounts := placetest.MountTable(t,
		"/ / ext4 /dev/sda",
		"/ "+dir+"/mnt fuse.ckptfs /stores/one",
		"/ "+dir+"/mnt/other tmpfs none",
		"/ "+dir+"/mnt\\040two fuse.ckptfs /stores/with\\040space",
		"/runs "+dir+"/bind fuse.ckptfs /stores/one",
		"/ "+dir+"/twice fuse.ckptfs /stores/old",
		"/ "+dir+"/twice fuse.ckptfs /stores/new",
	)
	for _, tc := range []struct{ path, store, inside string }{
		{"mnt", "/stores/one", ""},
		{"mnt/", "/stores/one", ""},
		{"mnt/runs/a/model.pt", "/stores/one", "runs/a/model.pt"},
		{"mnt/runs/../runs/a", "/stores/one", "runs/a"},
		{"mnt/latest/model.pt", "/stores/one", "runs/a/model.pt"},
		{"mnt/not/there", "/stores/one", "not/there"}, // the daemon's to say
		{"link", "/stores/one", ""},
		{"inside/model.pt", "/stores/one", "runs/a/model.pt"},
		{"mnt two/f", "/stores/with space", "f"},
		{"bind/a/model.pt", "/stores/one", "runs/a/model.pt"},
		{"bind", "/stores/one", "runs"},
		{"twice/f", "/stores/new", "f"},
		{"mnt/other/x", "", ""}, // covered by another mount
		{"mntx/f", "", ""},
	} {
		p, err := FindIn(dir+"/"+tc.path, mounts)
		if tc.store == "" {
			if !errors.Is(err, tree.ErrNotStore) || exit.Code(err) != exit.NotStore {
				t.Errorf("%s: %+v, %v", tc.path, p, err)
			}
			continue
		}
		if err != nil || p.Store != tc.store || p.Path != tc.inside || p.Mount == nil ||
			p.Gone != (tc.inside == "not/there") {
			t.Errorf("%s: %+v, %v; want %s in %s", tc.path, p, err, tc.inside, tc.store)
		}
	}
}

// begun makes a store, and begins a move of a folder into it, or out of it.
func begun(t *testing.T, store, dir, way string) (*disk.Folder, *inplace.Pair) {
	t.Helper()
	d, err := tree.OpenOrCreate(store, false, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	p, err := inplace.NewPair(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if _, err := p.Begin(way); err != nil {
		t.Fatal(err)
	}
	return d, p
}

// A folder that is about to move, or has moved, is in no mount. The error says what ends that.
func TestFindBegun(t *testing.T) {
	dir := placetest.RealDir(t) + "/my models"
	store := dir + ".ckptfs"
	placetest.MakeFile(t, dir+"/x", "")
	d, _ := begun(t, store, dir, inplace.Leave)
	none := placetest.MountTable(t, "/ / ext4 /dev/sda")
	for _, path := range []string{dir, dir + "/x", dir + "/gone"} {
		_, err := FindIn(path, none)
		if exit.Code(err) != exit.NotStore || !strings.Contains(err.Error(), "did not end: `ckptfs leave '"+dir+"'` ends it") {
			t.Errorf("%s: %v", path, err)
		}
	}
	claim, err := inplace.Claim(d)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if _, err := FindIn(dir, none); err == nil || !strings.Contains(err.Error(), "is under way") {
		t.Error(err)
	}
}

// An empty folder is left by a move into a store that is elsewhere: it leads to what ends that.
func TestFindBegunElsewhere(t *testing.T) {
	up := placetest.RealDir(t)
	dir, store := up+"/models", up+"/elsewhere"
	placetest.MakeFile(t, dir+"/x", "")
	_, p := begun(t, store, dir, inplace.Adopt)
	if err := p.Swap(); err != nil {
		t.Fatal(err)
	}
	_, err := FindIn(dir, placetest.MountTable(t, "/ / ext4 /dev/sda"))
	if err == nil || !strings.Contains(err.Error(), "did not end: `ckptfs adopt --store "+store+" "+dir+"` ends it") {
		t.Error(err)
	}
}

func TestFindInRelative(t *testing.T) {
	dir := placetest.RealDir(t)
	placetest.MakeFile(t, dir+"/mnt/f", "")
	t.Chdir(dir + "/mnt")
	mounts := placetest.MountTable(t, "/ / ext4 /dev/sda", "/ "+dir+"/mnt fuse.ckptfs /s")
	for path, inside := range map[string]string{".": "", "f": "f", "../mnt/f": "f"} {
		if p, err := FindIn(path, mounts); err != nil || p.Store != "/s" || p.Path != inside {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
}

func TestFindInStore(t *testing.T) {
	store := placetest.MakeStore(t)
	placetest.MakeFile(t, store+"/tree/runs/a/model.pt", "")
	// A user's files that look like a store: a copy of one, say.
	placetest.MakeFile(t, store+"/tree/fake/format", "ckptfs 4\n")
	placetest.MakeFile(t, store+"/tree/fake/tree/x", "")
	none := placetest.MountTable(t, "/ / ext4 /dev/sda")
	for path, inside := range map[string]string{
		"":                        "",
		"/tree":                   "",
		"/tree/runs/a/model.pt":   "runs/a/model.pt",
		"/tree/runs":              "runs",
		"/tree/fake":              "fake",
		"/tree/fake/tree/x":       "fake/tree/x",
		"/tree/fake/format":       "fake/format",
		"/tree/../tree/runs/../.": "",
	} {
		p, err := FindIn(store+path, none)
		if err != nil || p.Store != store || p.Path != inside || p.Mount != nil {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
	for _, path := range []string{"/content", "/format", "/segments", "/tree/nothing", "/.."} {
		if p, err := FindIn(store+path, none); exit.Code(err) != exit.NotStore {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
}

// Of a path that does not exist the error names the path, and of STORE/PATH where the store's files are.
func TestFindNothing(t *testing.T) {
	store := placetest.MakeStore(t)
	placetest.MakeFile(t, store+"/tree/runs/a/model.pt", "")
	dir := placetest.RealDir(t)
	find, inside := func(path string) error { _, err := Find(path); return err },
		func(path string) error { _, err := FindInside(path); return err }
	for _, tc := range []struct {
		look func(path string) error
		path string
		says string
	}{
		{find, dir + "/gone/x", dir + "/gone/x: no such file or directory; give a path inside a ckptfs mount"},
		{inside, dir + "/gone/x", dir + "/gone/x: no such file or directory; give a path inside a ckptfs mount"},
		{inside, dir, dir + ": in no ckptfs mount"},
		{find, store + "/runs/a/model.pt", "no such file or directory; the store's files are below " + store + "/tree"},
	} {
		err := tc.look(tc.path)
		if exit.Code(err) != exit.NotStore || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.path, err)
		}
	}
}

// A store of a newer version is found, so that opening it can say what it is.
func TestFindInNewerStore(t *testing.T) {
	dir := placetest.RealDir(t)
	placetest.MakeFile(t, dir+"/format", "ckptfs 999\nflavour new\n")
	if p, err := FindIn(dir, nil); err != nil || p.Store != dir {
		t.Errorf("%+v, %v", p, err)
	}
}

// A store that lies in the mount, or the folder, of another is found out, whether it is there yet or not.
func TestNested(t *testing.T) {
	store := placetest.MakeStore(t)
	dir := placetest.RealDir(t)
	mounts := placetest.MountTable(t, "/ / ext4 /dev/sda", "/ "+dir+"/mnt fuse.ckptfs /stores/one",
		"/ "+dir+"/mnt/disk tmpfs none")
	for path, says := range map[string]string{
		dir + "/mnt/new":        dir + "/mnt/new lies in " + dir + "/mnt, where the store /stores/one is mounted",
		dir + "/mnt/runs/new":   "give a folder outside of the mount",
		dir + "/mnt":            "give a folder outside of the mount",
		store + "/new":          "lies in the folder of the store " + store,
		store + "/tree/new":     "lies in the folder of the store " + store,
		store + "/segments/new": "is one of the store's own files",
		dir + "/mntx":           "",
		dir + "/mnt/disk/new":   "",
		store:                   "",
	} {
		err := Nested(path, mounts)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
