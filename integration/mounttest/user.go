package mounttest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Nobody is the user that tests become to be without rights.
const Nobody = 65534

// NewFor is New as a user who is not root.
func NewFor(t *testing.T, uid uint32) *Mount {
	t.Helper()
	NeedFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become somebody else (without root every test here runs unprivileged)")
	}
	if st, err := os.Stat("/dev/fuse"); err != nil || st.Mode().Perm()&6 != 6 {
		Missing(t, "/dev/fuse is for root alone here (chmod 666 /dev/fuse, as fuse3's udev rule does)")
	}
	dir, err := os.MkdirTemp("", "ckptfs-nobody-") // t.TempDir lies below a folder that is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := Prepare(t, dir)
	m.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	for _, d := range []string{dir, m.Dir} {
		m.Must(os.Chmod(d, 0o755))
		m.Must(os.Chown(d, int(uid), int(uid)))
	}
	m.Must(m.Start())
	return m
}

// ShAsUser runs a command in the mount as the user who mounted it.
func (m *Mount) ShAsUser(command string) string {
	m.T.Helper()
	cmd := exec.Command("sh", "-ec", "cd \"$1\"; "+command, "sh", m.Dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.Credential}
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.T.Fatalf("as user %d: %s: %v\n%s", m.Credential.Uid, command, err, out)
	}
	return strings.TrimSpace(string(out))
}
