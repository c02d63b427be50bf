// Package texttest gives tests a terminal.
package texttest

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is one that nobody sits at.
type Terminal struct {
	*os.File // what programs write to
	host     *os.File
	done     chan struct{}

	mu   sync.Mutex
	said bytes.Buffer
}

// New opens a terminal of a size in characters. The test is skipped where there is none to be had.
func New(t *testing.T, columns, rows uint16) *Terminal {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	host, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	n, err := unix.IoctlGetInt(int(host.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(host.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(host.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	var tty *os.File
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		host.Close()
		t.Skipf("no terminal: %v", err)
	}
	x := &Terminal{File: tty, host: host, done: make(chan struct{})}
	go x.read()
	t.Cleanup(func() {
		x.Close()
		<-x.done
		host.Close()
	})
	return x
}

// read reads until the last writer has closed it.
func (x *Terminal) read() {
	defer close(x.done)
	buf := make([]byte, 4096)
	for {
		n, err := x.host.Read(buf)
		x.mu.Lock()
		x.said.Write(buf[:n])
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Said is all that was written so far.
func (x *Terminal) Said() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.said.String()
}

// End closes what programs write to, and returns all that they wrote.
func (x *Terminal) End() string {
	x.Close()
	<-x.done
	return x.Said()
}

// Await returns once holds is true of what was written.
func (x *Terminal) Await(t *testing.T, what string, holds func(said string) bool) {
	t.Helper()
	for start := time.Now(); !holds(x.Said()); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("never %s: %q", what, x.Said())
		}
	}
}
