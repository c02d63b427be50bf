package takeout

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// filled fills a folder with all that may be in one.
func filled(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "from")
	put := func(name, data string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(data), 0o600))
		must(t, os.Chmod(path, mode))
	}
	put("run/model", strings.Repeat("tensor", 1<<19), 0o640)
	put("run/none", "", 0o444)
	put("run/bad\xff\nname", "x", 0o600)
	put("holes", strings.Repeat("\x00", 1<<20)+"data", 0o644)
	must(t, os.Truncate(filepath.Join(dir, "holes"), 1<<20)) // and then a hole before what is written
	f, err := os.OpenFile(filepath.Join(dir, "holes"), os.O_WRONLY, 0)
	must(t, err)
	must(t, f.Truncate(0))
	_, err = f.WriteAt([]byte("data"), 1<<20)
	must(t, err)
	must(t, f.Truncate(3<<20))
	must(t, f.Close())
	must(t, os.Link(filepath.Join(dir, "run/model"), filepath.Join(dir, "again")))
	must(t, os.Symlink("run/model", filepath.Join(dir, "link")))
	must(t, os.MkdirAll(filepath.Join(dir, "empty/below"), 0o750))
	for name, value := range map[string]string{"user.tag": "of the model", "user.own.record": "of a store"} {
		must(t, unix.Setxattr(filepath.Join(dir, "run/model"), name, []byte(value), 0))
	}
	must(t, unix.Setxattr(filepath.Join(dir, "run"), "user.tag", nil, 0))
	if os.Geteuid() == 0 { // no other sees it
		must(t, unix.Setxattr(filepath.Join(dir, "run"), "trusted.tag", []byte("root's"), 0))
	}
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	for i, path := range slices.Backward(all) {
		at := unix.NsecToTimespec(when.Add(time.Duration(i) * time.Hour).UnixNano())
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
	}
	time.Sleep(Unsettled) // what is newer may change again in the same tick
	return dir
}

// described says of each name in a folder all that a copy keeps.
func described(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	d, err := NewFolder(root, "user.own")
	must(t, err)
	defer d.Close()
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		name, err := filepath.Rel(dir, path)
		must(t, err)
		e, err := d.Entry(t.Context(), name)
		must(t, err)
		says := fmt.Sprintf("%o %v %d %d %q", e.Mode, e.Mtime.UTC(), e.UID, e.GID, e.Target)
		if kindOf(e) != unix.S_IFLNK {
			has, err := d.Attributes(t.Context(), name)
			must(t, err)
			says += fmt.Sprintf(" %q", has)
		}
		if kindOf(e) == unix.S_IFREG {
			var st unix.Stat_t
			must(t, unix.Lstat(path, &st))
			b, err := os.ReadFile(path)
			must(t, err)
			sum, err := sumOf(t.Context(), d, name, e.Size, newSummer(), make([]byte, bufferSize), nil)
			must(t, err)
			says += fmt.Sprintf(" %d names, %d bytes, holes: %v, %x, %d", st.Nlink, len(b), st.Blocks*512 < st.Size,
				sum, bytes.Count(b, []byte("t")))
		}
		all[name] = says
		return nil
	}))
	return all
}

// mirrors is a mirror of a folder; each phase calls at.
func mirrors(t *testing.T, from, to string, at func(doing string)) (*Mirrored, error) {
	t.Helper()
	src, err := os.OpenRoot(from)
	must(t, err)
	defer src.Close()
	d, err := NewFolder(src, "user.own")
	must(t, err)
	defer d.Close()
	root, err := os.OpenRoot(to)
	must(t, err)
	defer root.Close()
	return Mirror(t.Context(), d, root, "copy", NewChecked(time.Now), os.Geteuid() == 0,
		func(doing string) (func(control.Progress), func()) {
			at(doing)
			return nil, func() {}
		})
}

func sameFolders(t *testing.T, from, copied string) {
	t.Helper()
	want, got := described(t, from), described(t, copied)
	for name, says := range want {
		if got[name] != says {
			t.Errorf("%q is %s, want %s", name, got[name], says)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
}

// A mirror has all that the folder has, but the attributes of a store that it was in.
func TestMirror(t *testing.T) {
	from, to := filled(t), t.TempDir()
	did, err := mirrors(t, from, to, func(string) {})
	if err != nil || did.Same != 5 || len(did.Skipped)+len(did.Failed) > 0 {
		t.Fatalf("%+v, %v", did, err)
	}
	sameFolders(t, from, filepath.Join(to, "copy"))
	n, err := unix.Getxattr(filepath.Join(to, "copy/run/model"), "user.own.record", nil)
	if err != unix.ENODATA {
		t.Errorf("an attribute of a store was copied: %d bytes, %v", n, err)
	}
}

// What an earlier run left is used as far as it is right: also where a power cut lost what was written.
func TestMirrorGoesOn(t *testing.T) {
	from, to := filled(t), t.TempDir()
	at := filepath.Join(to, "copy")
	if _, err := mirrors(t, from, to, func(string) {}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(at, "run/model"))
	must(t, err)
	var kept unix.Stat_t
	must(t, unix.Stat(filepath.Join(at, "holes"), &kept))
	must(t, os.WriteFile(filepath.Join(at, "run/model"), make([]byte, st.Size()), 0o600)) // both names
	must(t, os.Chtimes(filepath.Join(at, "run/model"), st.ModTime(), st.ModTime()))
	must(t, os.Remove(filepath.Join(at, "run/none")))
	must(t, os.Mkdir(filepath.Join(at, "run/none"), 0o700))
	must(t, os.WriteFile(filepath.Join(at, partOf("holes")), []byte("a part"), 0o600))
	must(t, os.WriteFile(filepath.Join(at, "empty/gone"), nil, 0o600))
	must(t, os.Remove(filepath.Join(at, "link")))
	must(t, os.Symlink("elsewhere", filepath.Join(at, "link")))
	must(t, os.Chmod(filepath.Join(at, "holes"), 0o777))
	must(t, unix.Setxattr(filepath.Join(at, "holes"), "user.stale", []byte("x"), 0))
	did, err := mirrors(t, from, to, func(string) {})
	if err != nil || did.Same != 5 || len(did.Failed) > 0 {
		t.Fatalf("%+v, %v", did, err)
	}
	sameFolders(t, from, at)
	var now unix.Stat_t
	must(t, unix.Stat(filepath.Join(at, "holes"), &now))
	if now.Ino != kept.Ino {
		t.Error("a file that was right was copied again")
	}
}

// A file that changes is copied again, whenever that is; one that changes each time is named, and the copy is
// not said to be whole.
func TestMirrorOfWhatChanges(t *testing.T) {
	from, to := filled(t), t.TempDir()
	path := filepath.Join(from, "run/model")
	st, err := os.Stat(path)
	must(t, err)
	phases := 0
	did, err := mirrors(t, from, to, func(doing string) {
		switch phases++; phases {
		case 2: // copied, and not compared yet: the same size and time
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte("changed"), 1<<20)
			must(t, err)
			must(t, f.Close())
			must(t, os.Chtimes(path, st.ModTime(), st.ModTime()))
			must(t, os.WriteFile(filepath.Join(from, "new"), []byte("new"), 0o600))
			must(t, os.Remove(filepath.Join(from, "run/none")))
		case 4:
			must(t, os.Rename(filepath.Join(from, "new"), filepath.Join(from, "newer")))
		}
	})
	if err != nil || len(did.Failed) > 0 || phases < 6 {
		t.Fatalf("%d phases, %+v, %v", phases, did, err)
	}
	sameFolders(t, from, filepath.Join(to, "copy"))

	did, err = mirrors(t, from, to, func(string) {
		f, err := os.OpenFile(filepath.Join(from, "holes"), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.WriteString("more")
		must(t, err)
		must(t, f.Close())
	})
	if err != nil || len(did.Failed) != 1 || did.Failed[0].Path != "holes" {
		t.Errorf("%+v, %v", did, err)
	}
}

// What cannot be copied is named.
func TestMirrorSkips(t *testing.T) {
	from, to := filled(t), t.TempDir()
	must(t, unix.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	want := []string{"pipe"}
	acl := []byte{2, 0, 0, 0, // version; each entry: tag, permissions, id
		1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 9, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255,
		16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	err := unix.Setxattr(filepath.Join(from, "holes"), "system.posix_acl_access", acl, 0)
	if err == nil {
		want = []string{"holes", "pipe"}
	} else if err != unix.EOPNOTSUPP {
		t.Fatal(err)
	}
	did, err := mirrors(t, from, to, func(string) {})
	var got []string
	for _, s := range did.Skipped {
		got = append(got, s.Path)
	}
	if err != nil || len(did.Failed) > 0 || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", did, err)
	}
}

// A file that nobody can read ends it, and is named.
func TestMirrorUnreadable(t *testing.T) {
	s := sample()
	s.fail["run/1/model.pt"] = unix.EIO
	root, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer root.Close()
	took, err := Copy(context.Background(), s, "run", root, "copy", Options{Checked: NewChecked(time.Now)})
	if err != nil || !took.hopeless || len(took.failures) != 1 {
		t.Errorf("%+v, %v", took, err)
	}
}

// A sum tells files apart, and not holes from zeros.
func TestSum(t *testing.T) {
	sum := func(size int64, parts map[int64]string) string {
		s := newSummer()
		for off := range size { // in order, each as it comes
			if p, ok := parts[off]; ok {
				s.add([]byte(p), off)
			}
		}
		return fmt.Sprintf("%x", s.sum(size))
	}
	long := strings.Repeat("long", summed)
	one := sum(int64(len(long))+7, map[int64]string{7: long})
	for name, parts := range map[string]map[int64]string{
		"in parts": {7: long[:summed+3], summed + 10: long[summed+3 : summed+4],
			summed + 11: long[summed+4:]},
		"zeros, filled": {0: strings.Repeat("\x00", 7), 7: long},
	} {
		if got := sum(int64(len(long))+7, parts); got != one {
			t.Errorf("%s: %s, want %s", name, got, one)
		}
	}
	seen := map[string]string{}
	for name, got := range map[string]string{
		"none": sum(0, nil), "a hole": sum(1<<17, nil), "the file": one,
		"moved":      sum(int64(len(long))+8, map[int64]string{8: long}),
		"longer":     sum(int64(len(long))+8, map[int64]string{7: long}),
		"block":      sum(1<<17, map[int64]string{0: "x"}),
		"next block": sum(1<<17, map[int64]string{1 << 16: "x"}),
	} {
		if other, ok := seen[got]; ok {
			t.Errorf("%s has the sum of %s", name, other)
		}
		seen[got] = name
	}
}
