package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/engine"
)

// commandTime bounds a command.
const commandTime = 3 * time.Minute

// machine is a store, its mount, and who works there.
type machine struct {
	*daemon.Daemon
	r      *run
	number int
	lives  int      // how many stores it has had
	step   int      // number of the last one
	kept   []string // steps, the oldest first
}

// outcome is what a command said.
type outcome struct {
	out, err string
	code     int // -1: it was killed
}

// command runs a command of the program, which is killed after some time.
func (r *run) command(after time.Duration, args ...string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Bin, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &out, &errs, r.Dir, time.Second
	err := cmd.Run()
	o := outcome{out: out.String(), err: errs.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
	case err != nil:
		o.code, o.err = -1, o.err+err.Error()
	}
	r.say("ckptfs %s: %d %s", strings.Join(args, " "), o.code, strings.TrimSpace(o.err))
	r.secret(strings.Join(args, " "), o.out+o.err)
	return o
}

// secret looks for credentials in what somebody said.
func (r *run) secret(who, said string) {
	for _, s := range []string{engine.Secret, engine.User} {
		if strings.Contains(said, s) {
			r.lose("%s says the credentials", who)
		}
	}
}

// newMachine makes a store that is joined to the remote, and mounts it.
func (r *run) newMachine(number int) (*machine, error) {
	m := &machine{r: r, number: number}
	return m, m.begin()
}

// begin makes the next store of a machine.
func (m *machine) begin() error {
	m.lives++
	name := fmt.Sprintf("machine-%d", m.number)
	m.Daemon = &daemon.Daemon{Bin: m.r.Bin,
		Store: filepath.Join(m.r.Dir, fmt.Sprintf("%s.store-%d", name, m.lives)),
		Dir:   filepath.Join(m.r.Dir, name), Log: filepath.Join(m.r.Dir, name+".log")}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	if err := m.r.clone(m.Store, name); err != nil {
		return err
	}
	if err := m.mount(); err != nil {
		return err
	}
	if err := os.Mkdir(m.at("runs"), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// clone makes a store that is joined to the remote.
func (r *run) clone(store, writer string) error {
	e := r.engine
	return r.patiently(func() error {
		if _, err := os.Stat(filepath.Join(store, "remote")); err == nil {
			return nil
		}
		os.RemoveAll(store)
		o := r.command(commandTime, "clone", e.URL("team"), store, "--endpoint", e.Endpoint,
			"--writer", writer)
		if o.code != 0 {
			return fmt.Errorf("clone: exit status %d: %s", o.code, o.err)
		}
		return nil
	})
}

// patiently tries something until it succeeds: the engine is killed now and then.
func (r *run) patiently(do func() error) (err error) {
	for range 20 {
		if err = do(); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return err
}

// mount mounts, in one of the ways there are.
func (m *machine) mount() error {
	// What others publish is looked for by commands alone, and so the ledger knows who may have seen what.
	m.Flags = []string{"--no-views", "--remote-poll", "24h",
		"--hot-size", []string{"0", "4MiB", "1GiB"}[m.r.intN(3)]}
	if m.r.intN(2) == 0 {
		m.Flags = append(m.Flags, "--no-passthrough")
	}
	m.r.ledger.mounting(m.number)
	return m.Start()
}

// at is a path in the mount.
func (m *machine) at(p string) string { return filepath.Join(m.Dir, p) }

// sync publishes, and says what was acknowledged.
func (m *machine) sync(args ...string) (acked bool) {
	saved := m.r.ledger.saved(m.number)
	o := m.r.command(commandTime, append([]string{"sync", "--remote", "--json", m.Dir}, args...)...)
	m.judge("sync --remote", o)
	if o.code != 0 && o.code != exitPartial {
		return false
	}
	left, err := skipped(o)
	if err != nil {
		m.r.lose("sync --remote: %v: %s", err, o.out)
		return false
	}
	for p := range saved {
		for _, l := range left {
			if p == l || strings.HasPrefix(p, l+"/") {
				delete(saved, p)
			}
		}
	}
	m.r.ledger.ack(saved)
	return len(left) == 0
}

// closeAgain opens and closes the files of steps that a kill has torn. It came when their savers had closed
// them, and the daemon did not know that yet.
func (m *machine) closeAgain() {
	o := m.r.command(commandTime, "push", m.Dir)
	for line := range strings.Lines(o.err) {
		step, why, _ := strings.Cut(strings.TrimPrefix(line, "ckptfs: "), ": left as it is: ")
		if !strings.HasPrefix(why, "torn") {
			continue
		}
		_ = filepath.WalkDir(m.at(step), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			return f.Close()
		})
	}
}

// pull brings what others published.
func (m *machine) pull() bool {
	done := m.r.ledger.pulling(m.number)
	defer done()
	o := m.r.command(commandTime, "pull", "--json", m.Dir)
	if strings.Contains(o.err, "no such name") {
		return true
	}
	m.judge("pull", o)
	return o.code == 0
}

// skipped are the paths that a command left.
func skipped(o outcome) (paths []string, err error) {
	var said struct {
		Skipped []struct{ Path, Reason string }
	}
	if err := json.Unmarshal([]byte(o.out), &said); err != nil {
		return nil, err
	}
	for _, s := range said.Skipped {
		paths = append(paths, s.Path)
	}
	return paths, nil
}

// Exit statuses that are no alarm, since somebody is killed all the time; ckptfs help exit-codes lists them.
const (
	exitFailure     = 1
	exitDamaged     = 6
	exitPartial     = 7
	exitUnreachable = 11
)

// judge tells what is no failure from what is.
func (m *machine) judge(what string, o outcome) {
	switch {
	case o.code == 0, o.code == exitPartial, o.code == exitUnreachable, o.code == -1:
	case o.code == exitDamaged || strings.Contains(o.err, "panic"):
		m.r.lose("%s on machine %d: exit status %d: %s", what, m.number, o.code, o.err)
	case strings.Contains(o.err, "before it answered"), strings.Contains(o.err, "does not answer"):
	default:
		m.r.complain("%s: exit status %d: %s", what, o.code, o.err)
	}
}

// lookAtLog looks for what no daemon should say.
func (m *machine) lookAtLog() {
	b, err := os.ReadFile(m.Log)
	if err != nil {
		return
	}
	for _, bad := range []string{"panic", "DATA RACE", "fatal error"} {
		if strings.Contains(string(b), bad) {
			m.r.lose("the log of machine %d has %q in it", m.number, bad)
		}
	}
	m.r.secret(m.Log, string(b))
}
