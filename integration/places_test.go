package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// disks are the kinds of filesystem that a store may lie on.
var disks = []string{"ext4", "xfs", "tmpfs", "overlay"}

// useStore does with a mount what everybody does, once around: save, pack, evict, read, end badly, read, end well.
func useStore(m *mount) {
	m.t.Helper()
	model, err := os.ReadFile("../formats/testdata/torch/flat.pt")
	m.must(err)
	m.must(m.Start())
	m.write("runs/a/1/model.pt", model)
	m.write("runs/a/1/big.bin", noise(1, 3*mib))
	m.write("notes.txt", []byte("notes"))
	check := func(when string) {
		m.t.Helper()
		m.want("runs/a/1/model.pt", model)
		m.want("runs/a/1/big.bin", noise(1, 3*mib))
		m.want("notes.txt", []byte("notes"))
		m.wantNames("runs/a/1", "big.bin", "model.pt", "model.safetensors")
	}
	check("resident")
	m.evict("runs/a/1/model.pt", "runs/a/1/big.bin")
	check("packed")
	m.hydrate("runs/a/1/big.bin")
	check("hydrated")
	f, err := os.OpenFile(m.path("runs/a/1/big.bin"), os.O_RDWR, 0)
	m.must(err)
	_, err = f.WriteAt(noise(1, 3*mib)[mib:], mib) // the same bytes: it is un-packed all the same
	m.must(err)
	m.must(f.Sync())
	m.must(f.Close())
	m.write("late", noise(2, mib))
	m.kill9()
	m.must(m.Start())
	check("after a kill")
	m.want("late", noise(2, mib))
	m.must(m.Stop())
	m.must(m.Start())
	check("after a clean end")
	m.must(os.RemoveAll(m.path("runs")))
	m.must(m.Stop())
}

// TestDisks: a store works on each of the common kinds of disk.
func TestDisks(t *testing.T) {
	t.Parallel()
	for _, kind := range disks {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			disk := mountDisk(t, kind, 512)
			useStore(prepare(t, disk))
			served := filepath.Join(disk, "served")
			if err := os.Mkdir(served, 0o755); err != nil {
				t.Fatal(err)
			}
			useStore(prepare(t, served, "--no-passthrough"))
		})
	}
}

// oddNames are folders' names that trip programs.
var oddNames = map[string]string{
	"space":     "my run (1)",
	"newline":   "a\nb",
	"tab":       "a\tb\\040c",
	"not utf-8": "\xff\xfe\x80",
	"comma":     "a,b=c:d#e%f",
	"option":    "-o",
	"quotes":    `it's "$HOME" *`,
	"unicode":   "größe 模型",
	"longest":   strings.Repeat("n", 255),
	"deep":      strings.Repeat(strings.Repeat("d", 99)+"/", 20) + "end",
	"deepest":   strings.Repeat(strings.Repeat("d", 99)+"/", 39),
}

// TestOddPaths: store and mountpoint may have any name that the host takes.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	for what, name := range oddNames {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), name)
			if len(dir) > 3950 {
				dir = dir[:3950]
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			m := prepare(t, dir)
			useStore(m)
			m.must(m.Start())
			m.write("x", []byte("x"))
			if where := m.status().Mountpoint; where != m.Dir && utf8.ValidString(name) { // JSON has no other strings
				t.Errorf("mounted on %q, want %q", where, m.Dir)
			}
			m.cli("stats", m.path("x"))
			f, err := os.Open(m.path("x"))
			m.must(err)
			said, code := m.cliFails("umount", m.Dir)
			if code != exitBusy || !strings.Contains(said, "open x") {
				t.Errorf("exit status %d: %s", code, said)
			}
			m.must(f.Close())
		})
	}
}

// TestOddPathsUnprivileged: the same where fusermount3 mounts, which gets the names in a list with commas.
func TestOddPathsUnprivileged(t *testing.T) {
	t.Parallel()
	needRoot(t, "becomes another user")
	const nobody = 65534 // fusermount3 wants a user with a name
	for _, what := range []string{"comma", "space", "newline", "not utf-8"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(openDir(t), oddNames[what])
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			m := prepare(t, dir)
			m.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
			for _, d := range []string{dir, m.Dir} {
				m.must(os.Chown(d, nobody, nobody))
			}
			if st, err := os.Stat("/dev/fuse"); err != nil || st.Mode().Perm()&6 != 6 {
				t.Skip("/dev/fuse is for root alone here")
			}
			m.must(m.Start())
			if out, ok := as(t, nobody, m.Dir, "echo x >y && cat y"); !ok || out != "x" {
				t.Error(out)
			}
			m.cli("stats", m.Dir)
			m.must(m.Stop())
		})
	}
}
