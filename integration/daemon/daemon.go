// Package daemon runs a built ckptfs on one store and one mountpoint, for the integration tests and the
// benchmarks. It knows the command line and the mount, and nothing of what is inside.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Patience bounds everything that is waited for here. It is long since the machines that run this are noisy;
// nothing waits longer than it must.
const Patience = 60 * time.Second

const fuseMagic = 0x65735546

// Daemon is one store and where it is mounted. The fields are set once, before Start.
type Daemon struct {
	Bin   string   // the program; absolute
	Store string   // absolute
	Dir   string   // the mountpoint; absolute
	Log   string   // the daemon's log
	Flags []string // of mount

	// Credential is who runs every command; nil for the user of this process.
	Credential *syscall.Credential
}

// ExitError is a command that failed: how it was called, its exit status and what it said.
type ExitError struct {
	Args   []string
	Code   int // -1 when it was killed, or ran past Patience
	Stderr string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("ckptfs %s: exit status %d: %s", strings.Join(e.Args, " "), e.Code, strings.TrimSpace(e.Stderr))
}

// CLI runs the program and returns its standard output. The error is an *ExitError.
func (d *Daemon) CLI(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.Bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir = filepath.Dir(d.Store)
	cmd.WaitDelay = time.Second // a daemon that kept the pipes open would otherwise keep Wait from returning
	if d.Credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.Credential}
		cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(d.Store))
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), nil
	case errors.As(err, &exit):
		return stdout.String(), &ExitError{args, exit.ExitCode(), stderr.String()}
	default:
		return stdout.String(), &ExitError{args, -1, stderr.String() + err.Error()}
	}
}

// Start mounts, as a user does: the command returns when the mount is there.
func (d *Daemon) Start() error {
	args := append([]string{"mount", "--log-file", d.Log}, d.Flags...)
	if _, err := d.CLI(append(args, d.Store, d.Dir)...); err != nil {
		return err
	}
	if !d.Mounted() {
		return fmt.Errorf("ckptfs mount returned, and nothing is mounted at %s", d.Dir)
	}
	return nil
}

// Foreground starts with -f, its standard error appended to Log, and returns when the mount is there.
func (d *Daemon) Foreground() (*os.Process, error) {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(d.Bin, append(append([]string{"mount", "-f"}, d.Flags...), d.Store, d.Dir)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd.Process, Until("the mount", d.Mounted)
}

// Stop unmounts in order, and returns when the daemon is gone.
func (d *Daemon) Stop() error {
	if _, err := d.CLI("umount", d.Dir); err != nil {
		return err
	}
	return Until("the daemon to end after umount", func() bool { return len(d.PIDs()) == 0 })
}

// Mounted reports whether a live FUSE filesystem is at Dir.
func (d *Daemon) Mounted() bool {
	var st unix.Statfs_t
	err := unix.Statfs(d.Dir, &st)
	return err == nil && st.Type == fuseMagic || errors.Is(err, unix.EACCES) // another user's
}

// PIDs lists the daemon's processes: those that run Bin with Store as an argument.
func (d *Daemon) PIDs() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// fails for a zombie: it counts as gone
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil || strings.TrimSuffix(exe, " (deleted)") != d.Bin {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && slices.Contains(strings.Split(string(cmdline), "\x00"), d.Store) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Kill9 kills the daemon where it stands. The mountpoint stays behind, dead.
func (d *Daemon) Kill9() error {
	if len(d.PIDs()) == 0 {
		return fmt.Errorf("no daemon of %s to kill", d.Store)
	}
	return d.end()
}

// end kills, and returns when the kernel has closed all that the daemon had open: its lock, and the mount.
func (d *Daemon) end() error {
	for _, pid := range d.PIDs() {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("pidfd_open: %w", err)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		err = Until("a killed daemon to end", func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
			return n > 0 && err == nil
		})
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// Dump ends the daemon with the stacks of all its goroutines in the log.
func (d *Daemon) Dump() {
	for _, pid := range d.PIDs() {
		_ = syscall.Kill(pid, syscall.SIGQUIT)
	}
	_ = Within(5*time.Second, "", func() bool { return len(d.PIDs()) == 0 })
}

// Clean ends whatever is left, without asking: the mount, even a dead one, and the daemon.
func (d *Daemon) Clean() error {
	if err := unix.Unmount(d.Dir, unix.MNT_DETACH); errors.Is(err, unix.EPERM) {
		cmd := exec.Command("fusermount3", "-uz", d.Dir)
		if d.Credential != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.Credential}
		}
		_ = cmd.Run()
	}
	return d.end()
}

// Until polls cond until it holds, for as long as Patience.
func Until(what string, cond func() bool) error { return Within(Patience, what, cond) }

// Within is Until with another bound.
func Within(patience time.Duration, what string, cond func() bool) error {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", patience, what)
		}
		time.Sleep(pause)
	}
	return nil
}
