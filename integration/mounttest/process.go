package mounttest

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/integration/daemon"
)

// Process is a program that runs beside the test.
type Process struct {
	*exec.Cmd
	t     testing.TB
	mu    sync.Mutex
	said  bytes.Buffer
	ended chan struct{}
	err   error
}

// Write collects what the program says.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

// Text is what the program has said so far.
func (p *Process) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// Begin starts a program, and kills it when the test is over.
func Begin(t testing.TB, dir, name string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(name, args...), t: t, ended: make(chan struct{})}
	p.Stdout, p.Stderr, p.Dir = p, p, dir
	p.WaitDelay = time.Second
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.Kill)
	return p
}

// Kill ends the program.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// Awaits returns once the program has said so.
func (p *Process) Awaits(what string) {
	p.t.Helper()
	err := daemon.Until("", func() bool { return strings.Contains(p.Text(), what) })
	if err != nil {
		p.t.Fatalf("%v never said %q, but: %s", p.Args, what, p.Text())
	}
}

// Code is the exit status of the program, once it has ended.
func (p *Process) Code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(daemon.Patience):
		p.t.Fatalf("%v does not end; it said: %s", p.Args, p.Text())
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
