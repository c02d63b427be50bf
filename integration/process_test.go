package integration

import (
	"bytes"
	"ckptfs/integration/daemon"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// process is a program that runs beside the test.
type process struct {
	*exec.Cmd
	t     *testing.T
	mu    sync.Mutex
	said  bytes.Buffer
	ended chan struct{}
	err   error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// begin starts a program, and kills it when the test is over.
func begin(t *testing.T, dir, name string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(name, args...), t: t, ended: make(chan struct{})}
	p.Stdout, p.Stderr, p.Dir = p, p, dir
	p.WaitDelay = time.Second
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// awaits returns once the program has said so.
func (p *process) awaits(what string) {
	p.t.Helper()
	err := daemon.Until("", func() bool { return strings.Contains(p.text(), what) })
	if err != nil {
		p.t.Fatalf("%v never said %q, but: %s", p.Args, what, p.text())
	}
}

// code is the exit status of the program, once it has ended.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(daemon.Patience):
		p.t.Fatalf("%v does not end; it said: %s", p.Args, p.text())
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
