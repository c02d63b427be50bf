package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mountFails checks that mounting fails, leaves nothing behind, and returns what it said.
func (m *mount) mountFails() string {
	m.t.Helper()
	said, _ := m.cliFails(append(append([]string{"mount", "--log-file", m.Log}, m.Flags...), m.Store, m.Dir)...)
	return said
}

func TestNewerStore(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	m.write("x", noise(1, mib))
	m.must(m.Stop())
	format := filepath.Join(m.Store, "format")
	b, err := os.ReadFile(format)
	m.must(err)
	newer := regexp.MustCompile(`\b[0-9]+\b`).ReplaceAll(b[:strings.IndexByte(string(b), '\n')], []byte("999"))
	m.must(os.WriteFile(format, append(newer, b[strings.IndexByte(string(b), '\n'):]...), 0o600))
	wantSaid(t, m.mountFails(), m.Store, "newer", "999")
	if m.Mounted() || len(m.PIDs()) > 0 {
		t.Errorf("mounted: %v, processes: %v", m.Mounted(), m.PIDs())
	}
	said, _ := m.cliFails("stats", m.Store)
	wantSaid(t, said, "newer")
	m.must(os.WriteFile(format, []byte("what is this\n"), 0o600))
	wantSaid(t, m.mountFails(), m.Store)
	m.must(os.WriteFile(format, b, 0o600))
	m.must(m.Start())
	m.want("x", noise(1, mib))
}

func TestNotAStore(t *testing.T) {
	t.Parallel()
	m := prepare(t, t.TempDir())
	m.must(os.Mkdir(m.Store, 0o755))
	m.must(os.WriteFile(filepath.Join(m.Store, "thesis.tex"), []byte("x"), 0o644))
	wantSaid(t, m.mountFails(), m.Store)
	entries, err := os.ReadDir(m.Store)
	m.must(err)
	for _, e := range entries {
		if e.Name() == "tree" || e.Name() == "segments" {
			t.Errorf("somebody's folder was turned into a store: it has a %s now", e.Name())
		}
	}
}

func TestStoreIsMountedAlready(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	second := prepare(t, t.TempDir())
	second.Store = m.Store
	wantSaid(t, second.mountFails(), m.Store, m.Dir, fmt.Sprint(m.status().PID))
	if second.Mounted() {
		t.Error("the store is mounted twice")
	}
	m.write("x", []byte("still there"))
	m.want("x", []byte("still there"))
	second.Store = filepath.Join(t.TempDir(), "none") // else its clean-up finds the first one's daemon
}

func TestMountpointInUse(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	m.write("x", []byte("mine"))
	second := prepare(t, t.TempDir())
	m.must(os.Remove(second.Dir))
	second.Dir = m.Dir
	wantSaid(t, second.mountFails(), m.Dir)
	second.Dir = filepath.Join(t.TempDir(), "none")
	m.want("x", []byte("mine"))
	if len(second.PIDs()) > 0 {
		t.Error("the daemon that could not mount is still there")
	}

	wantSaid(t, second.mountFails(), second.Dir) // no such folder
	second.Dir = filepath.Join(t.TempDir(), "file")
	m.must(os.WriteFile(second.Dir, nil, 0o644))
	wantSaid(t, second.mountFails(), second.Dir)
}

// TestDeadMountpoint: what a killed daemon leaves is cleared by the next mount there, of that or another store, and
// by umount.
func TestDeadMountpoint(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		m.write("x", noise(1, mib))
		m.kill9()
		if _, err := os.ReadDir(m.Dir); err == nil {
			t.Fatal("the mountpoint of a killed daemon is not dead")
		}
		m.must(m.Start())
		m.want("x", noise(1, mib))

		m.kill9()
		m.cli("umount", m.Dir)
		if _, err := os.ReadDir(m.Dir); err != nil {
			t.Fatalf("after umount of a dead mountpoint: %v", err)
		}

		m.must(m.Start())
		m.kill9()
		second := prepare(t, t.TempDir())
		m.must(os.Remove(second.Dir))
		second.Dir = m.Dir
		m.must(second.Start())
		second.wantNames("")
		m.must(second.Stop())
		m.must(m.Start())
		m.want("x", noise(1, mib))
	})
}

func TestUmountOfWhatIsNotMounted(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	m.must(m.Stop())
	said, _ := m.cliFails("umount", m.Dir)
	wantSaid(t, said, m.Dir)
	said, _ = m.cliFails("umount", filepath.Join(m.Dir, "none"))
	wantSaid(t, said, "none")
}

// TestUmountBusy: a mount in use is not taken away from its users, and lives on.
func TestUmountBusy(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	m.write("x", noise(1, mib))
	f, err := os.Open(m.path("x"))
	m.must(err)
	defer f.Close()
	said, _ := m.cliFails("umount", m.Dir)
	wantSaid(t, said, "busy")
	m.want("x", noise(1, mib))
	m.write("y", []byte("y"))
	m.must(f.Close())
	m.must(m.Stop())
}

// TestNoFUSE runs mount where /dev has no fuse in it.
func TestNoFUSE(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a mount namespace with another /dev")
	}
	m := prepare(t, t.TempDir())
	script := "set -e\n" + alone + `
mkdir "$1/dev" && mount -t tmpfs -o mode=755 none "$1/dev"
for f in null zero urandom random tty; do touch "$1/dev/$f"; mount --bind /dev/$f "$1/dev/$f"; done
mount --rbind "$1/dev" /dev
exec "$2" mount --log-file "$3" "$4" "$5"`
	out, err := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", t.TempDir(), m.Bin, m.Log, m.Store, m.Dir).CombinedOutput()
	if err == nil {
		t.Fatalf("it mounted without /dev/fuse: %s", out)
	}
	wantSaid(t, string(out), "/dev/fuse")
	if len(m.PIDs()) > 0 {
		t.Error("the daemon that could not mount is still there")
	}
}
