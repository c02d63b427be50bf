package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// readyEnv tells the second process that it is to be the daemon, and on which descriptor its parent waits.
const readyEnv = "CKPTFS_READY_FD"

// outcome is the one JSON object that goes through the pipe: the mount, or why there is none.
type outcome struct {
	Mounted *mounted       `json:"mounted,omitempty"`
	Error   *control.Error `json:"error,omitempty"`
	Exit    int            `json:"exit,omitempty"`
}

// spawn starts the same command line as a daemon in a session of its own, and waits until it has mounted.
func (a *app) spawn(ctx context.Context) (*mounted, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// What a shell or a scheduler left open is not the daemon's to keep: a lock on a descriptor would be
	// held, and a filesystem busy, as long as the mount is there. Our own descriptors are marked already, and
	// the pipe is passed by a copy.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	cmd := exec.Command("/proc/self/exe", a.args...)
	cmd.Args[0] = "ckptfs" // not the name of a helper: a.args are our own words
	cmd.Env = append(os.Environ(), readyEnv+"=3")
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = os.Stderr // until it is mounted: what fusermount3 says, or a crash
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	var out outcome
	if err := json.NewDecoder(r).Decode(&out); err != nil {
		if werr := cmd.Wait(); werr != nil {
			err = werr
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the daemon ended before it had mounted: %w", err)
	}
	if out.Error != nil {
		_ = cmd.Wait()
		return nil, &exitError{out.Exit, out.Error}
	}
	return out.Mounted, cmd.Process.Release()
}

// readyPipe is the pipe to the parent if this process is to be the daemon, else nil.
func readyPipe() *os.File {
	fd, err := strconv.Atoi(os.Getenv(readyEnv))
	if err != nil {
		return nil
	}
	os.Unsetenv(readyEnv)
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "ready")
}

// daemon serves the mount and tells the parent how it went. What happens later goes to the log.
func (a *app) daemon(ctx context.Context, c *mountConfig, pipe *os.File) error {
	tell := func(o outcome) error {
		err := json.NewEncoder(pipe).Encode(o)
		return errors.Join(err, pipe.Close())
	}
	told := false
	err := a.serve(ctx, c, func(m *mounted) error {
		if err := os.Chdir("/"); err != nil {
			return err
		}
		told = true
		return tell(outcome{Mounted: m})
	})
	if err != nil && !told {
		_ = tell(outcome{Error: control.AsError(err), Exit: exitCode(err)})
		a.err = io.Discard // the parent prints it
	}
	return err
}
