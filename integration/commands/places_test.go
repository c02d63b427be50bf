package commands

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"ckptfs/integration/mounttest"
)

// disks are the kinds of filesystem that a store may lie on.
var disks = []string{"ext4", "xfs", "tmpfs", "overlay"}

// useStore does with a mount what everybody does, once around: save, pack, evict, read, end badly, read, end
// well.
func useStore(m *mounttest.Mount) {
	m.T.Helper()
	model, err := os.ReadFile("../../formats/testdata/torch/flat.pt")
	m.Must(err)
	m.Must(m.Start())
	m.Write("runs/a/1/model.pt", model)
	m.Write("runs/a/1/big.bin", mounttest.Noise(1, 3*mib))
	m.Write("notes.txt", []byte("notes"))
	check := func(when string) {
		m.T.Helper()
		m.Want("runs/a/1/model.pt", model)
		m.Want("runs/a/1/big.bin", mounttest.Noise(1, 3*mib))
		m.Want("notes.txt", []byte("notes"))
		m.WantNames("runs/a/1", "big.bin", "model.pt", "model.safetensors")
	}
	check("resident")
	m.Evict("runs/a/1/model.pt", "runs/a/1/big.bin")
	check("packed")
	m.Hydrate("runs/a/1/big.bin")
	check("hydrated")
	f, err := os.OpenFile(m.Path("runs/a/1/big.bin"), os.O_RDWR, 0)
	m.Must(err)
	_, err = f.WriteAt(mounttest.Noise(1, 3*mib)[mib:], mib) // the same bytes: it is un-packed all the same
	m.Must(err)
	m.Must(f.Sync())
	m.Must(f.Close())
	m.Write("late", mounttest.Noise(2, mib))
	m.Kill()
	m.Must(m.Start())
	check("after a kill")
	m.Want("late", mounttest.Noise(2, mib))
	m.Must(m.Stop())
	m.Must(m.Start())
	check("after a clean end")
	m.Must(os.RemoveAll(m.Path("runs")))
	m.Must(m.Stop())
}

// TestDisks: a store works on each of the common kinds of disk.
func TestDisks(t *testing.T) {
	t.Parallel()
	for _, kind := range disks {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			disk := mounttest.MountDisk(t, kind, 512)
			useStore(mounttest.Prepare(t, disk))
			served := filepath.Join(disk, "served")
			if err := os.Mkdir(served, 0o755); err != nil {
				t.Fatal(err)
			}
			useStore(mounttest.Prepare(t, served, "--no-passthrough"))
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
			m := mounttest.Prepare(t, dir)
			useStore(m)
			m.Must(m.Start())
			m.Write("x", []byte("x"))
			// JSON has no other strings
			if where := m.Status().Mountpoint; where != m.Dir && utf8.ValidString(name) {
				t.Errorf("mounted on %q, want %q", where, m.Dir)
			}
			m.Run("stats", m.Path("x"))
			f, err := os.Open(m.Path("x"))
			m.Must(err)
			said, code := m.RunFails("umount", m.Dir)
			if code != exitBusy || !strings.Contains(said, "open x") {
				t.Errorf("exit status %d: %s", code, said)
			}
			m.Must(f.Close())
		})
	}
}

// TestOddPathsUnprivileged: the same where fusermount3 mounts, which gets the names in a list with commas.
func TestOddPathsUnprivileged(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "becomes another user")
	const nobody = 65534 // fusermount3 wants a user with a name
	for _, what := range []string{"comma", "space", "newline", "not utf-8"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(openDir(t), oddNames[what])
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			m := mounttest.Prepare(t, dir)
			m.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
			for _, d := range []string{dir, m.Dir} {
				m.Must(os.Chown(d, nobody, nobody))
			}
			if st, err := os.Stat("/dev/fuse"); err != nil || st.Mode().Perm()&6 != 6 {
				t.Skip("/dev/fuse is for root alone here")
			}
			m.Must(m.Start())
			if out, ok := as(t, nobody, m.Dir, "echo x >y && cat y"); !ok || out != "x" {
				t.Error(out)
			}
			m.Run("stats", m.Dir)
			m.Must(m.Stop())
		})
	}
}
