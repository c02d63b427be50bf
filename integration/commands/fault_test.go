package commands

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// mountFails checks that mounting fails, leaves nothing behind, and returns what it said.
func mountFails(m *mounttest.Mount) string {
	m.T.Helper()
	said, _ := m.RunFails(append(append([]string{"mount", "--log-file", m.Log}, m.Flags...),
		m.Store, m.Dir)...)
	return said
}

func TestNewerStore(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	m.Must(m.Stop())
	format := filepath.Join(m.Store, "format")
	b, err := os.ReadFile(format)
	m.Must(err)
	newer := regexp.MustCompile(`\b[0-9]+\b`).ReplaceAll(b[:strings.IndexByte(string(b), '\n')],
		[]byte("999"))
	m.Must(os.WriteFile(format, append(newer, b[strings.IndexByte(string(b), '\n'):]...), 0o600))
	mounttest.WantSaid(t, mountFails(m), m.Store, "newer", "999")
	if m.Mounted() || len(m.PIDs()) > 0 {
		t.Errorf("mounted: %v, processes: %v", m.Mounted(), m.PIDs())
	}
	said, _ := m.RunFails("stats", m.Store)
	mounttest.WantSaid(t, said, "newer")
	m.Must(os.WriteFile(format, []byte("what is this\n"), 0o600))
	mounttest.WantSaid(t, mountFails(m), m.Store)
	m.Must(os.WriteFile(format, b, 0o600))
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, mib))
}

func TestNotAStore(t *testing.T) {
	t.Parallel()
	m := mounttest.Prepare(t, t.TempDir())
	m.Must(os.Mkdir(m.Store, 0o755))
	m.Must(os.WriteFile(filepath.Join(m.Store, "thesis.tex"), []byte("x"), 0o644))
	mounttest.WantSaid(t, mountFails(m), m.Store)
	entries, err := os.ReadDir(m.Store)
	m.Must(err)
	for _, e := range entries {
		if e.Name() == "tree" || e.Name() == "segments" {
			t.Errorf("somebody's folder was turned into a store: it has a %s now", e.Name())
		}
	}
}

func TestStoreIsMountedAlready(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	second := mounttest.Prepare(t, t.TempDir())
	second.Store = m.Store
	mounttest.WantSaid(t, mountFails(second), m.Store, m.Dir, fmt.Sprint(m.Status().PID))
	if second.Mounted() {
		t.Error("the store is mounted twice")
	}
	m.Write("x", []byte("still there"))
	m.Want("x", []byte("still there"))
	second.Store = filepath.Join(t.TempDir(), "none") // else its clean-up finds the first one's daemon
}

func TestMountpointInUse(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", []byte("mine"))
	second := mounttest.Prepare(t, t.TempDir())
	m.Must(os.Remove(second.Dir))
	second.Dir = m.Dir
	mounttest.WantSaid(t, mountFails(second), m.Dir)
	second.Dir = filepath.Join(t.TempDir(), "none")
	m.Want("x", []byte("mine"))
	if len(second.PIDs()) > 0 {
		t.Error("the daemon that could not mount is still there")
	}

	mounttest.WantSaid(t, mountFails(second), second.Dir) // no such folder
	second.Dir = filepath.Join(t.TempDir(), "file")
	m.Must(os.WriteFile(second.Dir, nil, 0o644))
	mounttest.WantSaid(t, mountFails(second), second.Dir)
}

// TestDeadMountpoint: what a killed daemon leaves is cleared by the next mount there, of that or another
// store, and by umount.
func TestDeadMountpoint(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Write("x", mounttest.Noise(1, mib))
		m.Kill()
		if _, err := os.ReadDir(m.Dir); err == nil {
			t.Fatal("the mountpoint of a killed daemon is not dead")
		}
		m.Must(m.Start())
		m.Want("x", mounttest.Noise(1, mib))

		m.Kill()
		said := m.Run("umount", m.Dir)
		mounttest.WantSaid(t, said, "unmounted", "its daemon was gone", "not closed in order")
		if _, err := os.ReadDir(m.Dir); err != nil {
			t.Fatalf("after umount of a dead mountpoint: %v", err)
		}

		m.Must(m.Start())
		m.Kill()
		second := mounttest.Prepare(t, t.TempDir())
		m.Must(os.Remove(second.Dir))
		second.Dir = m.Dir
		m.Must(second.Start())
		second.WantNames("")
		m.Must(second.Stop())
		m.Must(m.Start())
		m.Want("x", mounttest.Noise(1, mib))
	})
}

func TestUmountOfWhatIsNotMounted(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Must(m.Stop())
	said, _ := m.RunFails("umount", m.Dir)
	mounttest.WantSaid(t, said, m.Dir)
	said, _ = m.RunFails("umount", filepath.Join(m.Dir, "none"))
	mounttest.WantSaid(t, said, "none")
}

// TestUmountBusy: a mount in use is not taken away from its users, and lives on.
func TestUmountBusy(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	f, err := os.Open(m.Path("x"))
	m.Must(err)
	defer f.Close()
	said, _ := m.RunFails("umount", m.Dir)
	mounttest.WantSaid(t, said, "busy")
	m.Want("x", mounttest.Noise(1, mib))
	m.Write("y", []byte("y"))
	m.Must(f.Close())
	m.Must(m.Stop())
}

// TestNoFUSE runs mount where /dev has no fuse in it.
func TestNoFUSE(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a mount namespace with another /dev")
	}
	m := mounttest.Prepare(t, t.TempDir())
	script := "set -e\n" + alone + `
mkdir "$1/dev" && mount -t tmpfs -o mode=755 none "$1/dev"
for f in null zero urandom random tty; do touch "$1/dev/$f"; mount --bind /dev/$f "$1/dev/$f"; done
mount --rbind "$1/dev" /dev
exec "$2" mount --log-file "$3" "$4" "$5"`
	out, err := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", t.TempDir(), m.Bin, m.Log,
		m.Store, m.Dir).CombinedOutput()
	if err == nil {
		t.Fatalf("it mounted without /dev/fuse: %s", out)
	}
	mounttest.WantSaid(t, string(out), "/dev/fuse")
	if len(m.PIDs()) > 0 {
		t.Error("the daemon that could not mount is still there")
	}
}
