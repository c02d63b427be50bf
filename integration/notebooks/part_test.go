package notebooks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

const mib = 1 << 20

// TestPartOfFile: cat writes each part as a mount shows it: of files with holes, packed or not, of views;
// by the mount, beside the daemon and without it.
func TestPartOfFile(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("runs/a/1/packed.bin", mounttest.Noise(1, 3*mib+5))
	m.Write("small", []byte("small"))
	m.Write("empty", nil)
	m.Sh("truncate -s 4M sparse; printf middle >>sparse; truncate -s 8M sparse")
	m.Must(os.CopyFS(m.Path("runs/f/1"), os.DirFS("../../formats/testdata/torch")))
	m.Write("runs/a/1/large.bin", mounttest.Noise(2, 64*mib))
	m.Evict("runs/a/1/large.bin")
	view := ""
	for _, name := range m.Names("runs/f/1") {
		if strings.HasSuffix(name, ".safetensors") {
			view = filepath.Join("runs/f/1", name)
		}
	}
	if view == "" {
		t.Fatal("there is no view")
	}
	m.Evict("runs/a/1/packed.bin")
	files := map[string][]byte{}
	for _, name := range []string{"runs/a/1/packed.bin", "small", "empty", "sparse", view} {
		b, err := os.ReadFile(m.Path(name))
		m.Must(err)
		files[name] = b
	}
	look := func(how, root string) {
		for name, all := range files {
			n := len(all)
			for _, part := range [][2]int{{0, n}, {1, 0}, {n - 1, 1}, {n / 3, n}, {n + 1, 5}, {262143, 2},
				{mib - 1, mib + 2}, {4*mib - 3, 12}} {
				path := filepath.Join(root, name)
				off, length := max(0, part[0]), part[1]
				want := all[min(off, n):min(off+length, n)]
				got := m.Run("cat", "--offset", strconv.Itoa(off), "--length", strconv.Itoa(length), path)
				if got != string(want) {
					t.Errorf("%s: %s, %d bytes from %d: %s", how, name, length, off,
						mounttest.Difference(want, []byte(got)))
				}
			}
			got := m.Run("cat", "--offset", strconv.Itoa(n/2), filepath.Join(root, name))
			if got != string(all[n/2:]) {
				t.Errorf("%s: %s from %d on: %d bytes", how, name, n/2, len(got))
			}
			huge := strconv.FormatInt(1<<63-1, 10)
			got = m.Run("cat", "--offset", "1", "--length", huge, filepath.Join(root, name))
			if got != string(all[min(1, n):]) {
				t.Errorf("%s: %s: %d bytes", how, name, len(got))
			}
		}
	}
	look("by the mount", m.Dir)
	look("beside the daemon", m.Store)
	m.Must(m.Stop())
	look("unmounted", m.Store)
	// Nothing else is read: what would be is still being read when the store is closed.
	for off := range 32 {
		cmd := exec.Command(m.Bin, "cat", "--offset", strconv.Itoa(off*mib), "--length", "9", m.Store+"/runs/a/1/large.bin")
		if said, err := cmd.CombinedOutput(); err != nil || len(said) != 9 {
			t.Errorf("%v: %d bytes: %s", err, len(said), said)
		}
	}
	m.Must(m.Start())

	for _, args := range [][]string{{"--offset", "-1", "small"}, {"--length", "-1", "small"},
		{"--offset", "x", "small"}, {"--length", "1", "small", "empty"}, {"--if-unchanged", "now", "small"}} {
		args = append([]string{"cat"}, args...)
		for i := range args[1:] {
			if files[args[i+1]] != nil {
				args[i+1] = m.Path(args[i+1])
			}
		}
		if said, code := m.RunFails(args...); code != 2 {
			t.Errorf("%q: exit %d: %s", args, code, said)
		}
	}
}

// ctime is what ls --json says of a path itself.
func ctime(m *mounttest.Mount, path string) string {
	m.T.Helper()
	var out struct {
		Entries []struct {
			Path  string
			Ctime string
			Mode  uint32
		}
	}
	m.JSON(&out, "ls", "-d", "--json", path)
	if len(out.Entries) != 1 {
		m.T.Fatalf("%s: %+v", path, out)
	}
	return out.Entries[0].Ctime
}

// TestPartsOfOneFile: who reads a file part by part can say which file is meant; packing, evicting and
// mounting it again are no changes.
func TestPartsOfOneFile(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	was := mounttest.Noise(1, mib)
	m.Write("f", was)
	changed := ctime(m, m.Path("f"))
	if listed, err := time.Parse(time.RFC3339Nano, changed); err != nil || time.Since(listed) > time.Hour {
		t.Fatal(changed, err)
	}
	read := func(root string) string {
		t.Helper()
		return m.Run("cat", "--offset", "1000", "--length", "1000", "--if-unchanged", changed,
			filepath.Join(root, "f"))
	}
	stop := func() { m.Must(m.Stop()) }
	for _, then := range []func(){func() {}, m.Sync, func() { m.Evict("f") }, m.Remount, stop} {
		then()
		root := m.Dir
		if !slices.ContainsFunc(m.Names("."), func(name string) bool { return name == "f" }) {
			root = m.Store // it is not mounted any more
		}
		if got := read(root); got != string(was[1000:2000]) {
			t.Errorf("%d other bytes", len(got))
		}
	}
	m.Must(m.Start())
	other := bytes.Clone(was)
	m.Write("g", other)
	m.Must(os.Rename(m.Path("g"), m.Path("f")))
	said, code := m.RunFails("cat", "--length", "1", "--if-unchanged", changed, m.Path("f"))
	if code != 14 || !strings.Contains(said, "f was changed meanwhile") {
		t.Errorf("exit %d: %s", code, said)
	}
	if got := ctime(m, m.Dir); got == "" {
		t.Error("the root has no time")
	}
}
