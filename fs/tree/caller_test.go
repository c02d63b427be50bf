package tree

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sleeper is a process of a user that waits until the test ends.
func sleeper(t *testing.T, attr *syscall.SysProcAttr) uint32 {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start processes of other users")
	}
	cmd := exec.Command("sleep", "600")
	cmd.Dir, cmd.SysProcAttr = "/", attr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return uint32(cmd.Process.Pid)
}

// A caller may do what the class of the mode says that is the caller's: the owner's, the group's, or the
// others'. Groups that cannot be read give nothing, and are taken for the worse where they take something.
func TestPasses(t *testing.T) {
	in := sleeper(t, &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 2000, Gid: 2000, Groups: []uint32{70, 80}}})
	out := sleeper(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 2000, Gid: 2000}})
	elsewhere := sleeper(t, &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 2001, Gid: 2000, Groups: []uint32{80}}})
	for _, c := range []struct {
		what string
		who  Caller
		mode uint32
		gid  uint32
		need uint32
		want bool
	}{
		{"root", Caller{}, 0, 80, 7, true},
		{"owner", Caller{UID: 1000}, 0o400, 80, 4, true},
		{"owner, who is denied it", Caller{UID: 1000}, 0o077, 80, 4, false},
		{"group", Caller{UID: 2000, GID: 80}, 0o040, 80, 4, true},
		{"group, which is denied it", Caller{UID: 2000, GID: 80}, 0o004, 80, 4, false},
		{"others", Caller{UID: 2000, GID: 2000, Thread: out}, 0o704, 80, 4, true},
		{"others, of what the group has", Caller{UID: 2000, GID: 2000, Thread: out}, 0o740, 80, 4, false},
		{"supplementary group", Caller{UID: 2000, GID: 2000, Thread: in}, 0o740, 80, 4, true},
		{"supplementary group, half", Caller{UID: 2000, GID: 2000, Thread: in}, 0o740, 80, 5, false},
		{"supplementary group that is denied it", Caller{UID: 2000, GID: 2000, Thread: in}, 0o704, 80, 4, false},
		{"another group", Caller{UID: 2000, GID: 2000, Thread: in}, 0o740, 90, 4, false},
		{"unknown thread", Caller{UID: 2000, GID: 2000}, 0o740, 80, 4, false},
		{"unknown thread, group denied", Caller{UID: 2000, GID: 2000}, 0o704, 80, 4, false},
		{"unknown thread, all alike", Caller{UID: 2000, GID: 2000}, 0o744, 80, 4, true},
		{"thread of another user", Caller{UID: 2000, GID: 2000, Thread: elsewhere}, 0o740, 80, 4, false},
	} {
		a := Asker{Caller: c.who}
		if got := a.Passes(Guard{Mode: c.mode, UID: 1000, GID: c.gid, Need: c.need}); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// CAP_SYS_ADMIN makes an admin, not the number 0, and not in a user namespace of the caller's own.
func TestAdmin(t *testing.T) {
	who := func(uid uint32, attr *syscall.SysProcAttr) Caller {
		return Caller{UID: uid, GID: uid, Thread: sleeper(t, attr)}
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	apart := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	for _, c := range []struct {
		what string
		who  Caller
		want bool
	}{
		{"root", who(0, nil), true},
		{"nobody", who(65534, &syscall.SysProcAttr{Credential: nobody}), false},
		{"nobody with the capability", who(65534, &syscall.SysProcAttr{Credential: nobody,
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN}}), true},
		{"root of its own namespace", who(0, apart), false},
		{"user 0, unknown", Caller{}, true},
		{"another, unknown", Caller{UID: 1}, false},
	} {
		if got := c.who.Admin(); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
