package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"ckptfs/fs/tree"
)

// mountTable reads mounts as the kernel would show them; each is "root mountpoint type source".
func mountTable(t *testing.T, lines ...string) []*mountinfo.Info {
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

// realDir is a fresh folder whose name holds no symlink.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func makeStore(t *testing.T) string {
	t.Helper()
	store := filepath.Join(realDir(t), "store")
	d, err := tree.OpenOrCreate(store, false, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	return store
}

func makeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFindInMounts(t *testing.T) {
	dir := realDir(t)
	makeFile(t, dir+"/mnt/runs/a/model.pt", "")
	makeFile(t, dir+"/mnt/other/x", "")
	makeFile(t, dir+"/mnt two/f", "")
	makeFile(t, dir+"/bind/a/model.pt", "")
	makeFile(t, dir+"/twice/f", "")
	makeFile(t, dir+"/mntx/f", "")
	for name, to := range map[string]string{"link": "mnt", "inside": "mnt/runs/a", "mnt/latest": "runs/a"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	mounts := mountTable(t,
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
		p, err := findIn(dir+"/"+tc.path, mounts)
		if tc.store == "" {
			if !errors.Is(err, tree.ErrNotStore) || exitCode(err) != exitNotStore {
				t.Errorf("%s: %+v, %v", tc.path, p, err)
			}
			continue
		}
		if err != nil || p.store != tc.store || p.path != tc.inside || p.mount == nil ||
			p.gone != (tc.inside == "not/there") {
			t.Errorf("%s: %+v, %v; want %s in %s", tc.path, p, err, tc.inside, tc.store)
		}
	}
}

func TestFindInRelative(t *testing.T) {
	dir := realDir(t)
	makeFile(t, dir+"/mnt/f", "")
	t.Chdir(dir + "/mnt")
	mounts := mountTable(t, "/ / ext4 /dev/sda", "/ "+dir+"/mnt fuse.ckptfs /s")
	for path, inside := range map[string]string{".": "", "f": "f", "../mnt/f": "f"} {
		if p, err := findIn(path, mounts); err != nil || p.store != "/s" || p.path != inside {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
}

func TestFindInStore(t *testing.T) {
	store := makeStore(t)
	makeFile(t, store+"/tree/runs/a/model.pt", "")
	// A user's files that look like a store: a copy of one, say.
	makeFile(t, store+"/tree/fake/format", "ckptfs 4\n")
	makeFile(t, store+"/tree/fake/tree/x", "")
	none := mountTable(t, "/ / ext4 /dev/sda")
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
		p, err := findIn(store+path, none)
		if err != nil || p.store != store || p.path != inside || p.mount != nil {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
	for _, path := range []string{"/content", "/format", "/segments", "/tree/nothing", "/.."} {
		if p, err := findIn(store+path, none); exitCode(err) != exitNotStore {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
}

// A store of a newer version is found, so that opening it can say what it is.
func TestFindInNewerStore(t *testing.T) {
	dir := realDir(t)
	makeFile(t, dir+"/format", "ckptfs 999\nflavour new\n")
	if p, err := findIn(dir, nil); err != nil || p.store != dir {
		t.Errorf("%+v, %v", p, err)
	}
}
