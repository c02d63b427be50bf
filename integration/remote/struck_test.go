package remote

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// struck is a mount whose daemon has just been asked to make a file, and never does, and has the kernel told
// of another name in the same folder. The kernel keeps the folder locked for the program that makes the file,
// and who tells it waits for the lock.
type struck struct {
	*mounttest.Mount
	program *exec.Cmd
	said    bytes.Buffer
}

func newStruck(t *testing.T) *struck {
	mounttest.NeedRoot(t, "a mount that hangs is aborted")
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	fault := filepath.Join(t.TempDir(), "fault")
	t.Setenv("CKPTFS_FAULT", fault)
	b := &struck{Mount: mounttest.Prepare(t, t.TempDir(), "--remote-poll", "24h")}
	b.Bin = mounttest.BuildWith(t, "fault")
	t.Cleanup(func() { // what hangs would hang for ever
		if t.Failed() {
			_ = unix.Unmount(b.Dir, unix.MNT_FORCE|unix.MNT_DETACH)
		}
	})
	b.Run("clone", e.URL("team"), b.Store, "--endpoint", e.Endpoint, "--writer", "b")
	b.Must(b.Start())
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), random(100_000, 1))
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	same(t, b.Path("runs/x/1/model.bin"), random(100_000, 1))
	save(t, filepath.Join(a.Dir, "runs/x/2/model.bin"), random(100_000, 2))
	a.Run("push", a.Dir)

	const create = 35 // FUSE_CREATE
	b.Must(os.WriteFile(fault, fmt.Appendf(nil, "%d read hang", create), 0o600))
	b.program = exec.Command("sh", "-c", `echo new >"$0"`, b.Path("runs/x/new"))
	b.program.Stdout, b.program.Stderr = &b.said, &b.said
	b.Must(b.program.Start())
	b.Must(daemon.Until("the daemon to be asked for a file", func() bool {
		_, err := os.Stat(fault)
		return os.IsNotExist(err)
	}))
	mounttest.Begin(t, "", b.Bin, "fetch", b.Dir) // which waits until the kernel has heard
	b.Must(daemon.Until("the kernel to wait for the folder", func() bool {
		return slices.ContainsFunc(b.PIDs(), waits)
	}))
	return b
}

// waits reports whether a thread of a process waits and cannot be killed.
func waits(pid int) bool {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range all {
		b, _ := os.ReadFile(stat)
		if at := bytes.LastIndexByte(b, ')'); at > 0 && bytes.HasPrefix(b[at:], []byte(") D ")) {
			return true
		}
	}
	return false
}

// A daemon that is killed while it tells the kernel of a name gives way to the next one.
func TestStruckWhileTelling(t *testing.T) {
	b := newStruck(t)
	b.Must(b.KillDaemon())
	if err := b.program.Wait(); err != nil {
		t.Errorf("%v, %s", err, b.said.Bytes())
	}
	same(t, b.Path("runs/x/new"), []byte("new\n"))
	same(t, b.Path("runs/x/2/model.bin"), random(100_000, 2))
}

// What the kernel knows of names is not left to it by the next daemon.
func TestNextDaemonKeepsNames(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	save(t, a.Path("runs/x/1/model.bin"), random(10_000, 1))
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	same(t, b.Path("runs/x/1/model.bin"), random(10_000, 1))
	if _, err := os.Stat(b.Path("runs/x/2")); err == nil {
		t.Fatal("it is there already")
	}
	b.Must(b.KillDaemon())
	save(t, a.Path("runs/x/2/model.bin"), random(10_000, 2))
	a.Must(os.RemoveAll(a.Path("runs/x/1")))
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	same(t, b.Path("runs/x/2/model.bin"), random(10_000, 2))
	if _, err := os.Stat(b.Path("runs/x/1/model.bin")); err == nil {
		t.Error("what was removed is there")
	}
}

// With its holder killed, too, the mount hangs until somebody mounts or unmounts it.
func TestStruckWithHolder(t *testing.T) {
	for what, args := range map[string]func(b *struck) []string{
		"mount":  func(b *struck) []string { return []string{"mount", "--log-file", b.Log, b.Store, b.Dir} },
		"umount": func(b *struck) []string { return []string{"umount", b.Dir} },
		"force":  func(b *struck) []string { return []string{"umount", "--force", b.Dir} },
	} {
		t.Run(what, func(t *testing.T) {
			b := newStruck(t)
			for _, pid := range b.PIDs() {
				b.Must(unix.Kill(pid, unix.SIGKILL))
			}
			b.Run(args(b)...)
			if err := b.program.Wait(); err == nil {
				t.Error("a file was made by nobody")
			}
			if what != "mount" {
				b.Must(b.Start())
			}
			b.Run("fetch", b.Dir)
			same(t, b.Path("runs/x/1/model.bin"), random(100_000, 1))
			same(t, b.Path("runs/x/2/model.bin"), random(100_000, 2))
		})
	}
}
