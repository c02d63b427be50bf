package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func writeFile(path string, data []byte) error { return os.WriteFile(path, data, 0o644) }

// newUserMount is newMount of somebody who is not root.
func newUserMount(t *testing.T) *mount {
	t.Helper()
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become somebody else (without root every test here runs unprivileged)")
	}
	if st, err := os.Stat("/dev/fuse"); err != nil || st.Mode().Perm()&6 != 6 {
		missing(t, "/dev/fuse is for root alone here (chmod 666 /dev/fuse, as fuse3's udev rule does)")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "ckptfs-nobody-") // t.TempDir lies below a folder that is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := prepare(t, dir)
	m.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	for _, d := range []string{dir, m.Dir} {
		m.must(os.Chmod(d, 0o755))
		m.must(os.Chown(d, nobody, nobody))
	}
	m.must(m.Start())
	return m
}

// TestUnprivilegedUser: somebody who is not root mounts through fusermount3, and has it all but passthrough.
func TestUnprivilegedUser(t *testing.T) {
	t.Parallel()
	m := newUserMount(t)
	as := func(command string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", "cd \"$1\"; "+command, "sh", m.Dir)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.Credential}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("as nobody: %s: %v\n%s", command, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	s := m.status()
	if s.Mode != "served" || s.ModeReason == "" {
		t.Errorf("mode %q (%s), want served and why", s.Mode, s.ModeReason)
	}
	want := as(`mkdir -p runs/a/1; dd if=/dev/urandom of=runs/a/1/x bs=100k count=50 status=none
		cp runs/a/1/x y; echo small >z; chmod 600 y; mv y d.bin; sha256sum runs/a/1/x d.bin z | tee sums; id -u`)
	as("test $(stat -c %u d.bin) = 65534")
	m.sync()
	for _, f := range []string{"runs/a/1/x", "d.bin"} {
		m.cli("evict", m.path(f))
		m.wantState(f, packed)
	}
	as("sha256sum -c --quiet sums")
	if s := m.stats(); s.UniqueBytes > 6*mib {
		t.Errorf("a file of 5 MB and its copy are %d unique bytes", s.UniqueBytes)
	}
	m.kill9()
	m.must(m.Start())
	as("sha256sum -c --quiet sums")
	m.must(m.Stop())
	m.must(os.Remove(filepath.Join(m.Store, "index.db")))
	m.must(m.Start())
	as("sha256sum -c --quiet sums; rm -r runs d.bin")
	// A file whose mode denies its owner is packed as well, or stays as it is; either way it is not lost.
	as("dd if=/dev/urandom of=locked bs=100k count=3 status=none; sha256sum locked >sums; chmod 000 locked")
	_, _ = m.CLI("sync", m.Dir)
	_, _ = m.CLI("evict", m.path("locked"))
	as("chmod 400 locked; sha256sum -c --quiet sums; rm -f locked")
	if !strings.Contains(want, "65534") {
		t.Errorf("not run as nobody: %s", want)
	}
}
