package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestUnprivilegedUser: somebody who is not root mounts through fusermount3, and has it all but passthrough.
func TestUnprivilegedUser(t *testing.T) {
	t.Parallel()
	m := mounttest.NewFor(t, mounttest.Nobody)
	as := m.ShAsUser
	s := m.Status()
	if s.Mode != "served" || s.ModeReason == "" {
		t.Errorf("mode %q (%s), want served and why", s.Mode, s.ModeReason)
	}
	want := as(`mkdir -p runs/a/1; dd if=/dev/urandom of=runs/a/1/x bs=100k count=50 status=none
		cp runs/a/1/x y; echo small >z; chmod 600 y; mv y d.bin; sha256sum runs/a/1/x d.bin z | tee sums; id -u`)
	as("test $(stat -c %u d.bin) = 65534")
	m.Sync()
	for _, f := range []string{"runs/a/1/x", "d.bin"} {
		m.Run("evict", m.Path(f))
		m.WantState(f, mounttest.Packed)
	}
	as("sha256sum -c --quiet sums")
	if s := m.Stats(); s.UniqueBytes > 6*mib {
		t.Errorf("a file of 5 MB and its copy are %d unique bytes", s.UniqueBytes)
	}
	m.Kill()
	m.Must(m.Start())
	as("sha256sum -c --quiet sums")
	m.Must(m.Stop())
	m.Must(os.Remove(filepath.Join(m.Store, "index.db")))
	m.Must(m.Start())
	as("sha256sum -c --quiet sums; rm -r runs d.bin")
	// A file whose mode denies its owner is packed as well, or stays as it is; either way it is not lost.
	as("dd if=/dev/urandom of=locked bs=100k count=3 status=none; sha256sum locked >sums; chmod 000 locked")
	_, _ = m.CLI("sync", m.Dir)
	_, _ = m.CLI("evict", m.Path("locked"))
	as("chmod 400 locked; sha256sum -c --quiet sums; rm -f locked")
	if !strings.Contains(want, "65534") {
		t.Errorf("not run as nobody: %s", want)
	}
}

// TestReaderOfAnotherUser: the control socket of somebody's read-only mount is in a folder of theirs alone,
// answers them and root, and nobody else; who is first in a folder for all keeps nobody's place.
func TestReaderOfAnotherUser(t *testing.T) {
	t.Parallel()
	const uid = 2 // whose name every host knows, as fusermount3 wants it, and who mounts nothing else here
	if u, err := user.LookupId("2"); err != nil || u == nil {
		t.Skip("no user 2 here")
	}
	m := mounttest.NewFor(t, uid)
	want := m.ShAsUser("dd if=/dev/urandom of=x bs=100k count=20 status=none; sha256sum x")
	m.Must(m.Stop())
	dir := "/tmp/ckptfs-2"
	if st, err := os.Stat("/run/user/2"); err == nil && st.IsDir() {
		dir = "/run/user/2/ckptfs"
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Skipf("%s is there", dir)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })

	m.Must(os.Mkdir(dir, 0o777))
	m.Must(os.Chmod(dir, 0o777))
	if out, err := m.CLI("mount", "--read-only", m.Store, m.Dir); err == nil {
		t.Errorf("mounted with its socket in a folder for all: %s", out)
	} else if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "user 2 alone") {
		t.Errorf("%v", err)
	}
	m.Must(os.Remove(dir))

	socket := func() string { // of the mount that is there now
		t.Helper()
		dev, err := strconv.ParseUint(m.ShAsUser("stat -c %d ."), 10, 64)
		m.Must(err)
		return filepath.Join(dir, fmt.Sprintf("%d-%d.sock", unix.Major(dev), unix.Minor(dev)))
	}
	m.Flags = append(m.Flags, "--read-only")
	for range 2 { // the second time after a kill, which leaves a socket
		m.Must(startWithoutLog(m))
		st, err := os.Lstat(dir)
		m.Must(err)
		if st.Mode().Perm() != 0o700 || st.Sys().(*syscall.Stat_t).Uid != uid {
			t.Errorf("%s: %+v", dir, st)
		}
		if s, err := os.Lstat(socket()); err != nil || s.Mode().Perm() != 0o600 ||
			s.Sys().(*syscall.Stat_t).Uid != uid {
			t.Errorf("%v, %v", s, err)
		}
		if got := m.ShAsUser("sha256sum x"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if s := m.Status(); s.Mountpoint != m.Dir || s.PID == 0 {
			t.Errorf("status: %+v", s)
		}
		self := m.Credential
		m.Credential = nil // root, by the store: the mount is theirs alone
		if out, err := m.CLI("status", m.Store); err != nil || !strings.Contains(out, m.Dir) {
			t.Errorf("root: %s, %v", out, err)
		}
		m.Credential = &syscall.Credential{Uid: mounttest.Nobody, Gid: mounttest.Nobody}
		if out, err := m.CLI("status", m.Store); err == nil {
			t.Errorf("somebody else is told: %s", out)
		}
		m.Credential = self
		m.Kill()
		m.Run("umount", m.Dir)
	}
	m.Must(startWithoutLog(m))
	left := socket()
	m.Run("umount", m.Dir)
	m.Must(daemon.Until("the socket to go", func() bool {
		_, err := os.Lstat(left)
		return errors.Is(err, fs.ErrNotExist)
	}))
}
