package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// nobodys are setpriv's words for a user with a name who is not root.
var nobodys = []string{"--reuid", "65534", "--clear-groups"}

// ofNobody is a mount that this user may make, and that nobody has made.
func ofNobody(t *testing.T) *mounttest.Mount {
	t.Helper()
	mounttest.NeedRoot(t, "becomes another user")
	if st, err := os.Stat("/dev/fuse"); err != nil || st.Mode().Perm()&6 != 6 {
		t.Skip("/dev/fuse is for root alone here")
	}
	dir := openDir(t)
	m := mounttest.Prepare(t, dir)
	for _, d := range []string{dir, m.Dir} {
		m.Must(os.Chown(d, 65534, 65534))
	}
	return m
}

// TestCannotMount makes what keeps a mount from being made, each for real, and reads which of them is named.
func TestCannotMount(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "takes rights away")
	helper, err := exec.LookPath("fusermount3")
	if err != nil {
		t.Skip(err)
	}
	user := func(more ...string) []string { return slices.Concat([]string{"setpriv"}, nobodys, more) }
	for _, c := range []struct {
		what  string
		owner int      // of the folder
		by    []string // what runs the command
		wants []string
	}{
		{"no right for anybody", 0, []string{"setpriv", "--bounding-set", "-sys_admin"},
			[]string{"CAP_SYS_ADMIN", "SYS_ADMIN"}},
		{"no fusermount3", 65534, user("env", "PATH=/nonexistent"), []string{"there is no fusermount3", "install fuse3"}},
		{"no new rights", 65534, user("--no-new-privs"), []string{"cannot become root", "no-new-privileges",
			"allowPrivilegeEscalation: true"}},
		{"no rights by files", 65534, []string{"unshare", "--mount", "sh", "-ec", alone + `
mkdir -p /run/ckptfs-nosuid
mount -t tmpfs -o nosuid none /run/ckptfs-nosuid
cp -p ` + helper + ` /run/ckptfs-nosuid/fusermount3
exec setpriv ` + strings.Join(nobodys, " ") + ` env PATH=/run/ckptfs-nosuid "$0" "$@"`},
			[]string{"cannot become root", "nosuid"}},
		{"a user namespace with the machine's mounts", 0, []string{"unshare", "--user", "--map-root-user"},
			[]string{"operation not permitted", "a mount namespace of its own", "--map-root-user --mount"}},
		{"a user namespace without users", 65534, user("unshare", "--user"),
			[]string{"no user 0", "--map-root-user --mount"}},
		{"a user without a name", 65533, []string{"setpriv", "--reuid", "65533", "--clear-groups"},
			[]string{"user 65533 has none in /etc/passwd"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := ofNobody(t)
			for _, d := range []string{filepath.Dir(m.Dir), m.Dir} {
				m.Must(os.Chown(d, c.owner, c.owner))
			}
			if c.by[0] == "unshare" && exec.Command("unshare", "--user", "true").Run() != nil {
				t.Skip("no namespaces of users here")
			}
			cmd := exec.Command(c.by[0], append(c.by[1:], m.Bin, "mount", m.Store, m.Dir)...)
			cmd.Dir = "/"
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != exitNoFUSE {
				t.Fatalf("exit status %d, %v: %s", code, err, out)
			}
			mounttest.WantSaid(t, string(out), c.wants...)
			if len(m.PIDs()) > 0 {
				t.Error("the daemon that could not mount is still there")
			}
		})
	}
}

// TestMountsWithLess: a mount in a user namespace is made, and says that the daemon serves it, and why.
func TestMountsWithLess(t *testing.T) {
	t.Parallel()
	if exec.Command("unshare", "--user", "--map-root-user", "--mount", "true").Run() != nil {
		t.Skip("no namespaces of users here")
	}
	m := mounttest.Prepare(t, t.TempDir())
	out, err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec",
		`"$0" mount "$1" "$2"; echo x >"$2/f"; cat "$2/f"; "$0" umount "$2"`, m.Bin, m.Store, m.Dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mounttest.WantSaid(t, string(out), "served (", "note: reads and writes go through the daemon",
		"outside of the user namespace", "\nx\n")
}
