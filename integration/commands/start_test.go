package commands

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

// More exit codes, see control_test.go.
const (
	exitDamaged     = 6
	exitMountpoint  = 8
	exitNoFUSE      = 9
	exitRecovery    = 10
	exitInterrupted = 130
)

// alone is shell that, in a new mount namespace, lets go of the mounts of all other tests, which would live
// on in it. $dir is kept.
const alone = `mount --make-rprivate /
sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \([^ ]*\) .* - fuse.ckptfs .*/\1/p' /proc/self/mountinfo | while read -r other; do
    [ "$other" = "${dir:-}" ] || umount -i -l "$(printf %b "$other")" || true
done`

// TestMountHelpers mounts as mount(8), an fstab and mount.fuse3 do, and unmounts as umount(8) does, with the
// files that scripts/install puts where they look; in a mount namespace of its own, where those are the only
// ones to see it.
func TestMountHelpers(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "lays an overlay over /sbin")
	m := mounttest.Prepare(t, t.TempDir())
	script := `set -eu
work=$1 bin=$2 store=$3 dir=$4
` + alone + `
sbin=$(readlink -f /sbin)
mkdir -p /run/mount; mount -t tmpfs none /run/mount
mkdir "$work/ov"; mount -t tmpfs none "$work/ov"; mkdir "$work/ov/up" "$work/ov/work"
mount -t overlay overlay -o "lowerdir=$sbin,upperdir=$work/ov/up,workdir=$work/ov/work" "$sbin" || { echo no overlay here; exit 77; }
CKPTFS="$bin" PREFIX="$work/usr" ../../scripts/install
unmounted() { umount "$@" "$dir"; ! mountpoint -q "$dir"; }
ended() { until "$bin" stats --json "$store" >/dev/null 2>&1; do sleep 0.05; done; }

# With uhelper, umount has waited until the store is free.
mount -t fuse.ckptfs -o hot_size=1G,no_views,noatime,x-systemd.automount,_netdev,uhelper=ckptfs "$store" "$dir"
echo one >"$dir/one"
unmounted; "$bin" stats --json "$store" >/dev/null
echo "$store $dir fuse.ckptfs hot_size=10%,nofail 0 0" >"$work/fstab"
mount -T "$work/fstab" "$dir"
grep -q one "$dir/one"
unmounted; ended
mount -t ckptfs "$store" "$dir"
unmounted -l; ended
PATH="$work/usr/bin:$PATH" mount.fuse3 "ckptfs#$store" "$dir" -o rw,log_level=debug
grep -q one "$dir/one"
unmounted; ended
if mount -t fuse.ckptfs -o speed=11 "$store" "$dir" 2>"$work/err"; then exit 1; fi
grep -q speed=11 "$work/err"
mount -s -t fuse.ckptfs -o speed=11 "$store" "$dir"
rc=0; mount -t fuse.ckptfs "$store" "$dir" 2>"$work/err" || rc=$?
[ $rc = 32 ]; grep -q "already" "$work/err"
unmounted; ended
CKPTFS="$bin" PREFIX="$work/usr" ../../scripts/install --uninstall
[ ! -e "$sbin/mount.fuse.ckptfs" ]; [ -z "$(find "$work/usr" -type f)" ]
echo all is well`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", t.TempDir(), m.Bin, m.Store, m.Dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skipf("overlayfs cannot be mounted here: %s", out)
	}
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "all is well") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze here")
	}
	unit, err := os.ReadFile("../../scripts/ckptfs@.service")
	if err != nil {
		t.Fatal(err)
	}
	unit = bytes.ReplaceAll(unit, []byte("/usr/local/bin/ckptfs"), []byte("/bin/true")) // it has to be there
	path := filepath.Join(t.TempDir(), "ckptfs@data.service")
	if err := os.WriteFile(path, unit, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSystemdUnitKeepsTheMount: a daemon that is killed, which is not the main process, ends no service; what
// the next one says is heard; and the mount is made where everybody sees it.
func TestSystemdUnitKeepsTheMount(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../scripts/ckptfs@.service")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for line := range strings.Lines(string(unit)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			set[name] = value
		}
	}
	for name, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "all", "OOMPolicy": "continue", "Restart": "on-failure",
		// SIGTERM is the holder's, which passes it on.
		"KillMode": "mixed", "TimeoutStartSec": "infinity", "NoNewPrivileges": "yes",
	} {
		if set[name] != want {
			t.Errorf("%s=%s, want %s", name, set[name], want)
		}
	}
	for _, name := range []string{"PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateUsers",
		"ProtectSystem", "ProtectHome", "ProtectProc", "ProtectKernelTunables", "ProtectKernelModules",
		"ProtectKernelLogs", "ProtectControlGroups", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths",
		"BindPaths", "MountFlags", "TemporaryFileSystem", "RootDirectory", "RootImage", "DynamicUser",
		"RestrictSUIDSGID", "DevicePolicy", "DeviceAllow", "ProtectClock"} {
		if value, is := set[name]; is {
			t.Errorf("%s=%s hides the mount from others, or forbids what they do in it", name, value)
		}
	}
	if caps := strings.Count(string(unit), "\nCapabilityBoundingSet=~"); caps == 0 {
		t.Error("no capability is taken away")
	}
	for _, needed := range []string{"CAP_SYS_ADMIN", "CAP_DAC_", "CAP_CHOWN", "CAP_FOWNER",
		"CAP_FSETID", "CAP_MKNOD", "CAP_LEASE", "CAP_SYS_RESOURCE", "CAP_SYS_PTRACE"} {
		if strings.Contains(string(unit), needed) {
			t.Errorf("%s is taken away, which the daemon needs", needed)
		}
	}
}

// TestServiceNotification: the service manager is told when the mount is there, and when it goes.
func TestServiceNotification(t *testing.T) {
	t.Parallel()
	m := mounttest.Prepare(t, t.TempDir())
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	m.Must(err)
	defer c.Close()
	m.Must(c.SetReadDeadline(time.Now().Add(daemon.Patience)))
	p := mounttest.Begin(t, "/", "env", "NOTIFY_SOCKET="+path, m.Bin, "mount", "-f", m.Store, m.Dir)
	next := func(want string) {
		t.Helper()
		b := make([]byte, 1000)
		for {
			n, err := c.Read(b)
			if err != nil {
				t.Fatalf("waiting for %s: %v; the daemon says: %s", want, err, p.Text())
			}
			if strings.HasPrefix(string(b[:n]), want+"\n") {
				return
			}
		}
	}
	next("READY=1")
	if !m.Mounted() {
		t.Error("it says that it is ready, and nothing is mounted")
	}
	m.Run("umount", m.Dir)
	next("STOPPING=1")
	if code := p.Code(); code != 0 {
		t.Errorf("exit status %d: %s", code, p.Text())
	}
}

// TestUmountSaysWho: a refusal names the processes in the way.
func TestUmountSaysWho(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("runs/a/model.pt", mounttest.Noise(1, mib))
	m.Write("lib.bin", mounttest.Noise(2, mib))
	reader := mounttest.Begin(t, "/", "sh", "-c", "exec 3<"+m.Path("runs/a/model.pt")+"; echo there; exec sleep 600")
	reader.Awaits("there")
	inside := mounttest.Begin(t, m.Path("runs"), "sh", "-c", "echo there; exec sleep 600")
	inside.Awaits("there")
	said, code := m.RunFails("umount", m.Dir)
	if code != exitBusy {
		t.Errorf("exit status %d", code)
	}
	mounttest.WantSaid(t, said, m.Dir, "in use",
		fmt.Sprintf("sleep (%d: open runs/a/model.pt)", reader.Process.Pid),
		fmt.Sprintf("sleep (%d: cwd runs)", inside.Process.Pid))
	reader.Kill()
	inside.Kill()

	// A mapping without a descriptor.
	f, err := os.Open(m.Path("lib.bin"))
	m.Must(err)
	mapped, err := syscall.Mmap(int(f.Fd()), 0, mib, syscall.PROT_READ, syscall.MAP_SHARED)
	m.Must(err)
	m.Must(f.Close())
	said, _ = m.RunFails("umount", m.Dir)
	mounttest.WantSaid(t, said, fmt.Sprintf("(%d: mapped lib.bin)", os.Getpid()))
	m.Must(syscall.Munmap(mapped))

	// From within: the command itself is not in the way.
	p := mounttest.Begin(t, m.Dir, m.Bin, "umount", ".")
	if code := p.Code(); code != 0 {
		t.Errorf("umount . from the mount's root: exit status %d: %s", code, p.Text())
	}
}

// TestUmountTimeout: until the time is over a mount in use is tried again, and Ctrl-C leaves it as it is.
func TestUmountTimeout(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	f, err := os.Open(m.Path("x"))
	m.Must(err)
	defer f.Close()
	said, code := m.RunFails("umount", "--timeout", "300ms", m.Dir)
	if code != exitBusy {
		t.Errorf("exit status %d", code)
	}
	mounttest.WantSaid(t, said, "in use", "open x", "the time of --timeout is over")
	if n := strings.Count(said, "open x"); n != 1 {
		t.Errorf("the user is named %d times: %s", n, said)
	}

	p := mounttest.Begin(t, "/", m.Bin, "umount", "--timeout", "10m", m.Dir)
	p.Awaits("trying on")
	m.Must(p.Process.Signal(os.Interrupt))
	if code := p.Code(); code != exitInterrupted {
		t.Errorf("interrupted: exit status %d: %s", code, p.Text())
	}
	m.Want("x", mounttest.Noise(1, mib))
	m.Write("y", []byte("y"))
	m.Sync()

	p = mounttest.Begin(t, "/", m.Bin, "umount", "--timeout", "10m", m.Dir)
	p.Awaits("trying on")
	m.Must(f.Close())
	if code := p.Code(); code != 0 {
		t.Errorf("exit status %d: %s", code, p.Text())
	}
	if m.Mounted() || len(m.PIDs()) > 0 {
		t.Error("still there")
	}
}

// TestUmountForce takes a mount from those who use it, and a daemon that hangs with it.
func TestUmountForce(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	m.Sync()
	f, err := os.Open(m.Path("x"))
	m.Must(err)
	defer f.Close()
	m.Run("umount", "--force", m.Dir)
	if m.Mounted() || len(m.PIDs()) > 0 {
		t.Fatal("still there")
	}
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, mib))

	m.Write("y", mounttest.Noise(2, mib))
	m.Must(syscall.Kill(m.DaemonPID(), syscall.SIGSTOP))
	said, code := m.RunFails("umount", "--force", "--timeout", "1s", m.Dir)
	if code != exitFailure {
		t.Errorf("a daemon that was killed: exit status %d", code)
	}
	mounttest.WantSaid(t, said, "is unmounted", "was killed", "not closed in order", "the next mount looks at every file")
	if m.Mounted() || len(m.PIDs()) > 0 {
		t.Fatal("still there")
	}
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, mib))
	m.Want("y", mounttest.Noise(2, mib))
	if _, code := m.RunFails("umount", "--force", "--lazy", m.Dir); code != exitUsage {
		t.Errorf("--force --lazy: exit status %d", code)
	}
}

// TestUmountLazy: who has a file open keeps it, and the daemon ends with the last one.
func TestUmountLazy(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	m.Evict("x")
	f, err := os.Open(m.Path("x"))
	m.Must(err)
	defer f.Close()
	m.Run("umount", "--lazy", m.Dir)
	if m.Mounted() {
		t.Error("still mounted")
	}
	got := make([]byte, mib)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, mounttest.Noise(1, mib)) {
		t.Errorf("an open file after umount --lazy: %v", err)
	}
	if len(m.PIDs()) != 2 {
		t.Errorf("daemons: %v", m.PIDs())
	}
	m.Must(f.Close())
	m.Must(daemon.Until("the daemon to end with the last file", func() bool { return len(m.PIDs()) == 0 }))
}

// TestNothingInherited: the daemon does not keep what whoever mounts has open, such as a lock of flock(1).
func TestNothingInherited(t *testing.T) {
	t.Parallel()
	m := mounttest.Prepare(t, t.TempDir())
	held := filepath.Join(filepath.Dir(m.Store), "held")
	p := mounttest.Begin(t, "/", "sh", "-c", `exec 9>"$1"; shift; exec "$@"`, "sh", held, m.Bin, "mount", "--log-file", m.Log, m.Store, m.Dir)
	if code := p.Code(); code != 0 {
		t.Fatalf("exit status %d: %s", code, p.Text())
	}
	for _, pid := range m.PIDs() {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		m.Must(err)
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); to == held {
				t.Errorf("the daemon has %s open", to)
			}
		}
	}
	if len(m.PIDs()) != 2 {
		t.Errorf("daemons: %v", m.PIDs())
	}
}

// TestMountedElsewhere: another container keeps its copy of the mount, and umount says so instead of hanging.
func TestMountedElsewhere(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "makes a mount namespace")
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	other := mounttest.Begin(t, "/", "unshare", "--mount", "sh", "-c", "dir=$1\n"+alone+"\necho there; exec sleep 600", "sh", m.Dir)
	other.Awaits("there")
	p := mounttest.Begin(t, "/", m.Bin, "umount", m.Dir)
	p.Awaits("still mounted elsewhere")
	mounttest.WantSaid(t, p.Text(), m.Dir, fmt.Sprintf("sleep (%d)", other.Process.Pid))
	m.Must(p.Process.Signal(os.Interrupt))
	if code := p.Code(); code != exitInterrupted {
		t.Errorf("exit status %d: %s", code, p.Text())
	}
	if m.Mounted() {
		t.Error("still mounted here")
	}
	said, code := m.RunFails("mount", m.Store, m.Dir)
	if code != exitBusy {
		t.Errorf("mounted while the other daemon has the store: exit status %d", code)
	}
	host, _ := os.Hostname()
	mounttest.WantSaid(t, said, m.Store, "in use by process", fmt.Sprint(m.DaemonPID()), host, "since")
	other.Kill()
	m.Must(daemon.Until("the daemon to end with the last mount", func() bool { return len(m.PIDs()) == 0 }))
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, mib))
}

// TestMountBound: a mount that is bound to another place lives on there, and umount says where.
func TestMountBound(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "makes a bind mount")
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	bound := t.TempDir()
	m.Must(unix.Mount(m.Dir, bound, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(bound, unix.MNT_DETACH) })
	said, code := m.RunFails("umount", bound)
	if code != exitUsage {
		t.Errorf("exit status %d", code)
	}
	mounttest.WantSaid(t, said, bound, "bind mount of "+m.Dir)
	m.Want("x", mounttest.Noise(1, mib))

	p := mounttest.Begin(t, "/", m.Bin, "umount", m.Dir)
	p.Awaits("still mounted elsewhere")
	mounttest.WantSaid(t, p.Text(), m.Dir, "on "+bound)
	m.Must(unix.Unmount(bound, 0))
	if code := p.Code(); code != 0 {
		t.Errorf("exit status %d: %s", code, p.Text())
	}
}

// TestNoMountpoint: each reason why a folder cannot be mounted on has its words and its exit code.
func TestNoMountpoint(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	dir := t.TempDir()
	for _, d := range []string{"full/x", "above/store", "empty", "unused"} {
		m.Must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	m.Must(os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	m.Must(os.Symlink("empty", filepath.Join(dir, "link")))
	fresh := filepath.Join(dir, "fresh")
	for _, c := range []struct {
		store, dir string
		code       int
		words      []string
	}{
		{fresh, "full", exitMountpoint, []string{"not empty", `"x"`, "--non-empty"}},
		{fresh, "file", exitMountpoint, []string{"not a directory"}},
		{fresh, "none", exitMountpoint, []string{"does not exist", "mkdir -p"}},
		{m.Store, "unused", exitBusy, []string{m.Dir, "already", fmt.Sprintf("process %d", m.DaemonPID())}},
		{fresh, m.Dir, exitBusy, []string{m.Store, "already", fmt.Sprintf("process %d", m.DaemonPID())}},
		{filepath.Join(dir, "above/store"), "above", exitMountpoint, []string{"would cover"}},
		{filepath.Join(dir, "above/store"), "above/store", exitMountpoint, []string{"which would cover it"}},
		{filepath.Join(dir, "none/store"), "empty", exitNotStore, []string{"there is no folder"}},
		{filepath.Join(dir, "file"), "empty", exitNotStore, []string{"not a directory"}},
	} {
		at := c.dir
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		said, code := m.RunFails("mount", c.store, at)
		if code != c.code {
			t.Errorf("%s on %s: exit status %d, want %d: %s", c.store, c.dir, code, c.code, said)
		}
		mounttest.WantSaid(t, said, c.words...)
	}
	if _, err := os.Stat(fresh); err == nil {
		t.Error("a mount that was refused made a store")
	}
	second := mounttest.Prepare(t, t.TempDir(), "--non-empty")
	m.Must(os.WriteFile(filepath.Join(second.Dir, "covered"), nil, 0o644))
	m.Must(second.Start())
	second.WantNames("")
	m.Must(second.Stop())
	m.Must(os.Remove(second.Dir + "/covered"))
	m.Must(os.Remove(second.Dir))
	m.Must(os.Symlink(filepath.Join(dir, "empty"), second.Dir)) // a mountpoint by a symlink
	m.Must(second.Start())
	if where := second.Status().Mountpoint; where != filepath.Join(dir, "empty") {
		t.Errorf("mounted on %q", where)
	}
	second.Write("x", []byte("x"))
	m.Run("umount", filepath.Join(dir, "empty"))
}
