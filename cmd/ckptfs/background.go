package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/holder"
	"ckptfs/cmd/ckptfs/logs"
	"ckptfs/cmd/ckptfs/unmount"
	"ckptfs/fs/control"
)

const (
	// readyEnv tells a process that it is not the one that was called, and by which descriptor to
	// tell that one how it went.
	readyEnv = "CKPTFS_READY_FD"
	// claimEnv names the descriptor of what the first daemon is to hold until it has mounted.
	claimEnv = "CKPTFS_CLAIM_FD"
	// folderEnv is the folder that relative paths start from, for a daemon.
	folderEnv = "CKPTFS_FOLDER"
)

// outcome is the one JSON object that goes through the pipe: the mount, or why there is none.
type outcome struct {
	Mounted *mounted       `json:"mounted,omitempty"`
	Error   *control.Error `json:"error,omitempty"`
	Exit    int            `json:"exit,omitempty"`
}

// spawned is how a holder is started. The zero value is usual.
type spawned struct {
	folder string   // that relative paths start from; "": this process's
	claim  *os.File // open in the first daemon, too, until it has mounted; may be nil
}

// spawn starts the same command line as a holder in a session of its own, and waits until its daemon has
// mounted.
func (a *app) spawn(ctx context.Context, s spawned) (*mounted, error) {
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
	cmd.Dir = s.folder
	if s.claim != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.claim)
		cmd.Env = append(cmd.Env, claimEnv+"=4")
	}
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
		return nil, exit.With(out.Exit, out.Error)
	}
	if !stop() { // the signal came when it had mounted: it unmounts
		_ = cmd.Wait()
		return nil, ctx.Err()
	}
	return out.Mounted, cmd.Process.Release()
}

// hold starts the daemon, and starts it again when it ends while the mount is there. It does not return. With
// a pipe, which the first daemon gets, it is in the background.
func (a *app) hold(c *mountConfig, pipe *os.File) {
	folder, _ := os.Getwd() // "": all paths have to be absolute, and one that is not is an error
	o := holder.Options{
		Args: a.args, Env: []string{folderEnv + "=" + folder}, Quiet: pipe != nil,
		GiveUp: func() { _ = unmount.Detach(c.mountpoint, true) },
		Log: func(msg string, args ...any) {
			var line bytes.Buffer
			logs.New(&line, c.logFormat, c.logLevel).Error(msg, args...)
			c.logPlace(a.foreign).Append(line.Bytes(), a.err)
		},
	}
	if pipe != nil {
		o.Pass, o.First = []*os.File{pipe}, []string{readyEnv + "=4"}
	}
	if claim := passed(claimEnv); claim != nil {
		o.Pass, o.First = append(o.Pass, claim), append(o.First, claimEnv+"=5")
	}
	code, err := holder.Run(o)
	if err != nil {
		a.complain(err)
	}
	os.Exit(code)
}

// absolute is filepath.Abs from the folder that the command was called in.
func absolute(path string) (string, error) {
	if folder := os.Getenv(folderEnv); folder != "" && !filepath.IsAbs(path) {
		return filepath.Join(folder, path), nil
	}
	return filepath.Abs(path)
}

// readyPipe is the pipe to the process that was called, or nil.
func readyPipe() *os.File { return passed(readyEnv) }

// passed is a descriptor that the environment names, once, or nil.
func passed(env string) *os.File {
	fd, err := strconv.Atoi(os.Getenv(env))
	if err != nil {
		return nil
	}
	os.Unsetenv(env)
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), env)
}

// daemon serves the mount. A first one tells the process that was called how it went; what happens later goes
// to the log.
func (a *app) daemon(ctx context.Context, c *mountConfig, link *holder.Link) error {
	pipe := readyPipe()
	tell := func(o outcome) error {
		if pipe == nil {
			return nil
		}
		err := json.NewEncoder(pipe).Encode(o)
		err = errors.Join(err, pipe.Close())
		pipe = nil
		return err
	}
	claim := passed(claimEnv)
	first := link.Taken() == nil
	if first {
		c.mountpoint = resolve(c.mountpoint) // it is no dead mount any more
	}
	err := a.serve(ctx, c, link, func(m *mounted) error {
		if first && pipe == nil {
			if err := a.sayMounted(m); err != nil {
				return err
			}
		}
		err := tell(outcome{Mounted: m})
		if c.adopt { // who was called may be gone: its folder is in the store, and seen in the mount alone
			err = nil
		}
		if claim != nil {
			err = errors.Join(err, claim.Close())
		}
		return errors.Join(err, link.Ready())
	})
	if err != nil && pipe != nil {
		_ = tell(outcome{Error: control.AsError(err), Exit: exit.Code(err)})
		a.err = io.Discard // the process that was called prints it
	}
	return err
}
