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
const Patience = 120 * time.Second

const fuseMagic = 0x65735546

// Build builds the program from the module, with tags.
func Build(bin, tags string) error {
	cmd := exec.Command("go", "build", "-tags", tags, "-o", bin, "ckptfs/cmd/ckptfs")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building ckptfs: %w\n%s", err, out)
	}
	return nil
}

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

// Foreground starts with -f, its standard error appended to Log, and returns the holder when the mount is
// there.
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

// PIDs lists the mount's processes, of which there are two: the holder, then the daemon that it started. They
// are those that run Bin with Store as an argument, a command that was called with Store included.
func (d *Daemon) PIDs() []int {
	holders, daemons := d.processes()
	return append(holders, daemons...)
}

// DaemonPID is the process that serves the mount, 0 if there is none.
func (d *Daemon) DaemonPID() int {
	if _, daemons := d.processes(); len(daemons) > 0 {
		return daemons[0]
	}
	return 0
}

// processes are those of the mount. A holder has told its daemon so in the environment.
func (d *Daemon) processes() (others, daemons []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil
	}
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
		if err != nil || !slices.Contains(strings.Split(string(cmdline), "\x00"), d.Store) {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		switch {
		case err != nil:
		case bytes.Contains(append([]byte{0}, environ...), []byte("\x00CKPTFS_HOLDER_FD=")):
			daemons = append(daemons, pid)
		default:
			others = append(others, pid)
		}
	}
	return others, daemons
}

// Kill9 kills the holder and the daemon where they stand. The mountpoint stays behind, dead.
func (d *Daemon) Kill9() error {
	if len(d.PIDs()) == 0 {
		return fmt.Errorf("no daemon of %s to kill", d.Store)
	}
	return d.End()
}

// End kills what there is, and returns when the kernel has closed all that the daemon had open: its lock, and
// the mount.
func (d *Daemon) End() error {
	// A holder may have started another daemon meanwhile.
	for pids := d.PIDs(); len(pids) > 0; pids = d.PIDs() {
		var fds []int
		for _, pid := range pids { // the holder first
			fd, err := unix.PidfdOpen(pid, 0)
			if errors.Is(err, unix.ESRCH) {
				continue
			}
			if err != nil {
				return fmt.Errorf("pidfd_open: %w", err)
			}
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			fds = append(fds, fd)
		}
		began := time.Now()
		for _, fd := range fds {
			err := Until("a killed process to end", func() bool {
				if time.Since(began) > 5*time.Second { // the kernel may wait for an answer that never comes
					_ = unix.Unmount(d.Dir, unix.MNT_FORCE)
				}
				return ended(fd)
			})
			unix.Close(fd)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ended waits for a moment for the end of a process.
func ended(pidfd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 100)
	return n > 0 && err == nil
}

// KillDaemon kills the daemon alone where it stands, and returns when another one serves the mount.
func (d *Daemon) KillDaemon() error {
	pid, err := d.StrikeDaemon(syscall.SIGKILL)
	if err != nil {
		return err
	}
	return Until("another daemon to serve", func() bool {
		now := d.DaemonPID()
		return now != 0 && now != pid && d.Mounted()
	})
}

// StrikeDaemon sends a signal to the daemon, and returns when it has ended.
func (d *Daemon) StrikeDaemon(s syscall.Signal) (pid int, err error) {
	fd := -1
	err = Until("a daemon to strike", func() bool {
		if pid = d.DaemonPID(); pid == 0 {
			return false
		}
		fd, err = unix.PidfdOpen(pid, 0)
		return err == nil
	})
	if err != nil {
		return pid, err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && err != unix.ESRCH {
		return pid, err
	}
	return pid, Until("a daemon that was struck to end", func() bool { return ended(fd) })
}

// Dump ends the daemon with the stacks of all its goroutines in the log, which is then the log's end: the
// holder does not start another one.
func (d *Daemon) Dump() {
	holders, daemons := d.processes()
	for _, pid := range holders {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, pid := range daemons {
		_ = syscall.Kill(pid, syscall.SIGQUIT)
	}
	_ = Within(5*time.Second, "", func() bool { return d.DaemonPID() == 0 })
	for _, pid := range holders {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
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
	return d.End()
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
