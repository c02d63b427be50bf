package commands

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// shown is a file as a mount shows it, or as it was copied.
type shown struct {
	mode  uint32
	mtime int64 // of what is no link
	bytes string
}

// tree describes what is in a folder, by paths: but what skip says.
func treeOf(t *testing.T, dir string, skip map[string]bool) map[string]shown {
	t.Helper()
	all := map[string]shown{}
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(dir, name)
		if err != nil || rerr != nil || skip[rel] {
			return errors.Join(err, rerr)
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		s := shown{mode: st.Mode, mtime: unix.TimespecToNsec(st.Mtim)}
		var b []byte
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err = os.ReadFile(name)
		case unix.S_IFLNK:
			s.mtime = 0
			s.bytes, err = os.Readlink(name)
		}
		if b != nil {
			s.bytes = string(b)
		}
		all[rel] = s
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantTree(t *testing.T, how string, got, want map[string]shown) {
	t.Helper()
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			t.Errorf("%s: %q: there is %v: mode %o, time %d, %d bytes; want mode %o, time %d, %d bytes", how, name, ok,
				g.mode, g.mtime, len(g.bytes), w.mode, w.mtime, len(w.bytes))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: nothing has the name %q", how, name)
		}
	}
}

// untar is what is in a tar, as treeOf has it, without the folder that it all lies in.
func untar(t *testing.T, archive []byte) map[string]shown {
	t.Helper()
	all := map[string]shown{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		s := shown{mode: uint32(h.Mode), mtime: h.ModTime.UnixNano()}
		switch h.Typeflag {
		case tar.TypeDir:
			s.mode |= unix.S_IFDIR
		case tar.TypeSymlink:
			s.mode, s.mtime, s.bytes = s.mode|unix.S_IFLNK, 0, h.Linkname
		case tar.TypeLink:
			_, first, _ := strings.Cut(h.Linkname, "/")
			s = all[first]
		default:
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			s.mode, s.bytes = s.mode|unix.S_IFREG, string(b)
		}
		_, name, _ := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
		all[filepath.Clean("./"+name)] = s
	}
}

// withFormats mounts a store with files of all formats, of which half are packed only.
func withFormats(t *testing.T) *mounttest.Mount {
	m := mounttest.New(t)
	m.Must(os.CopyFS(m.Path("runs/all/1"), os.DirFS("../../formats/testdata")))
	m.Write("runs/noise/1/model.bin", mounttest.Noise(1, 3*mib))
	m.Write("runs/noise/1/other.bin", mounttest.Noise(2, mib))
	m.Must(os.Link(m.Path("runs/noise/1/model.bin"), m.Path("runs/noise/1/again.bin")))
	m.Must(os.Symlink("../1/model.bin", m.Path("runs/noise/1/link")))
	m.Must(os.WriteFile(m.Path("bad\xff\nname"), []byte("x"), 0o400))
	m.Sh("truncate -s 64M " + m.Path("sparse") + "; printf end >>" + m.Path("sparse"))
	m.Must(os.Mkdir(m.Path("empty"), 0o700))
	m.Must(os.Chtimes(m.Path("empty"), time.Time{}, time.Unix(1, 2)))
	m.Evict("runs/all/1/same/model.pt", "runs/noise/1/model.bin")
	m.Run("evict", m.Path("runs/all/1/torch"))
	return m
}

// listing is what `ls -R --json` prints, by paths.
func listing(m *mounttest.Mount, path string) (views, states map[string]bool) {
	m.T.Helper()
	var out struct {
		Entries []struct {
			Path  json.RawMessage
			State string
			View  bool
		}
	}
	m.JSON(&out, "ls", "-R", "--json", path)
	views, states = map[string]bool{}, map[string]bool{}
	for _, e := range out.Entries {
		var path string
		if json.Unmarshal(e.Path, &path) == nil && e.View {
			views[path] = true
		}
		states[e.State] = true
	}
	return views, states
}

// TestWithoutMount: ls, cat, cp and export give what a mount shows, of all formats; beside the daemon, and
// without it.
func TestWithoutMount(t *testing.T) {
	t.Parallel()
	m := withFormats(t)
	views, states := listing(m, m.Store)
	if len(views) < 10 || !states["packed"] || !states["resident"] || !states["plain"] {
		t.Fatalf("the test sees little: %d views, states %v", len(views), states)
	}
	want := treeOf(t, m.Dir, views)
	named := slices.Sorted(maps.Keys(views))
	var shownViews strings.Builder
	for _, v := range named {
		b, err := os.ReadFile(m.Path(v))
		m.Must(err)
		shownViews.Write(b)
	}

	look := func(how, from string) {
		t.Helper()
		to := t.TempDir()
		m.Run("cp", "-r", from, filepath.Join(to, "out"))
		wantTree(t, how+", cp", treeOf(t, filepath.Join(to, "out"), nil), want)
		var st unix.Stat_t
		m.Must(unix.Stat(filepath.Join(to, "out/sparse"), &st))
		if st.Blocks*512 > mib {
			t.Errorf("%s: a file with a hole takes %d blocks", how, st.Blocks)
		}
		m.Run("export", filepath.Join(from, "runs"), "-o", filepath.Join(to, "tar"))
		archive, err := os.ReadFile(filepath.Join(to, "tar"))
		m.Must(err)
		below := map[string]shown{}
		for name, s := range want {
			if rel, err := filepath.Rel("runs", name); err == nil && !strings.HasPrefix(rel, "..") {
				below[rel] = s
			}
		}
		wantTree(t, how+", export", untar(t, archive), below)
		if said := m.Run("export", filepath.Join(from, "runs")); said != string(archive) {
			t.Errorf("%s: another tar on standard output", how)
		}
		paths := []string{"cat"}
		for _, v := range named {
			paths = append(paths, filepath.Join(from, v))
		}
		if said := m.Run(paths...); said != shownViews.String() {
			t.Errorf("%s: views have %d other bytes, of %d", how, len(said), shownViews.Len())
		}
		if again, _ := listing(m, from); !maps.Equal(again, views) {
			t.Errorf("%s: other views are listed", how)
		}
	}
	look("by the mount", m.Dir)
	look("beside the daemon", m.Store)
	m.Must(m.Stop())
	before := snapshot(t, m.Store)
	look("unmounted", m.Store)
	look("unmounted, by the tree", filepath.Join(m.Store, "tree"))
	if after := snapshot(t, m.Store); !maps.Equal(before, after) {
		t.Error("the store was changed")
	}

	if said, code := m.RunFails("cp", "-r", m.Store+"/runs", m.Store+"/runs2"); code != 1 ||
		!strings.Contains(said, "is in the folder of the store") {
		t.Errorf("exit %d: %s", code, said)
	}
	if said, _ := m.RunFails("cp", "-r", m.Store+"/runs", "/proc/gone"); !strings.Contains(said, "copy to /proc/gone: ") {
		t.Error(said)
	}
	said, code := m.RunFails("cat", m.Store+"/runs/gone")
	if code != 1 || !strings.Contains(said, "no such file") {
		t.Errorf("exit %d: %s", code, said)
	}
	said, code = m.RunFails("cp", m.Store+"/runs", t.TempDir())
	if code != 2 || !strings.Contains(said, "-r") {
		t.Errorf("exit %d: %s", code, said)
	}
	m.Must(m.Start())
}

// TestWithoutMountAsUser: a user who can mount nothing reads a store.
func TestWithoutMountAsUser(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "to become another user")
	m := mounttest.NewFor(t, mounttest.Nobody)
	m.ShAsUser("mkdir -p " + m.Path("runs/a/1") + " && head -c 1000000 /dev/urandom >" + m.Path("runs/a/1/model.bin"))
	m.Evict("runs/a/1/model.bin")
	want := m.ShAsUser("sha256sum <runs/a/1/model.bin")
	m.Must(m.Stop())
	if got := m.ShAsUser("PATH=/nonexistent " + m.Bin + " cat " + m.Store + "/runs/a/1/model.bin | sha256sum"); got != want {
		t.Errorf("sum %s, want %s", got, want)
	}
}

// TestWithoutMountAfterKill: a store that was not closed in order is repaired first, which is said, and then
// read.
func TestWithoutMountAfterKill(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	want := mounttest.Noise(1, 2*mib)
	m.Write("f", want)
	m.Sync()
	m.Kill()
	m.Run("umount", m.Dir)
	cmd := exec.Command(m.Bin, "cat", m.Store+"/f")
	var said bytes.Buffer
	cmd.Stderr = &said
	got, err := cmd.Output()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v: %s", len(got), err, &said)
	}
	mounttest.WantSaid(t, said.String(), "repairing", "not closed in order")
	if said := m.Run("ls", "-l", m.Store); strings.Contains(said, "repairing") ||
		!strings.Contains(said, " f\n") {
		t.Errorf("then: %s", said)
	}
	m.Must(m.Start())
}

// TestWithoutMountDamaged: what cannot be read is named, and the rest is copied.
func TestWithoutMountDamaged(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	bad, good := mounttest.Noise(1, 2*mib), mounttest.Noise(2, 2*mib)
	m.Write("runs/a/1/bad.bin", bad)
	m.Write("runs/a/1/good.bin", good)
	m.Evict("runs/a/1/bad.bin", "runs/a/1/good.bin")
	m.Must(m.Stop())
	m.Damage(bad[mib+100 : mib+200])
	out := filepath.Join(t.TempDir(), "out")
	said, code := m.RunFails("cp", "-r", m.Store+"/runs/a", out)
	if code != 6 || !strings.Contains(said, "runs/a/1/bad.bin") {
		t.Errorf("exit %d: %s", code, said)
	}
	if got, err := os.ReadFile(filepath.Join(out, "1/good.bin")); err != nil || !bytes.Equal(got, good) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	names, err := filepath.Glob(filepath.Join(out, "1", "*"))
	hidden, _ := filepath.Glob(filepath.Join(out, "1", ".*"))
	if names = append(names, hidden...); err != nil || len(names) != 1 {
		t.Errorf("copied: %q, %v", names, err)
	}
	tarball := filepath.Join(t.TempDir(), "tar")
	if said, code := m.RunFails("export", m.Store+"/runs/a", "-o", tarball); code != 6 {
		t.Errorf("exit %d: %s", code, said)
	}
	if _, err := os.Stat(tarball); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a part of a tar has its name: %v", err)
	}
	m.Must(m.Start())
}
