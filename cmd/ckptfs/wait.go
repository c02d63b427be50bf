package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// ending is a daemon whose end is waited for, and its holder, which ends after it. It is made before the
// daemon is told to end: a process id says nothing afterwards.
type ending struct {
	place  *place.Place
	since  time.Time // when it was running
	pidfd  int       // -1 when the process cannot be seen from here (another pid namespace)
	holder int       // a pidfd, too; -1 when it has none
	grace  time.Duration
}

// lockGrace is how long the store of a daemon that cannot be seen may take to be closed once its socket is.
const lockGrace = 10 * time.Second

func watch(p *place.Place, pid int) *ending {
	e := &ending{place: p, since: time.Now(), pidfd: -1, holder: -1, grace: lockGrace}
	if pid > 0 {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			e.pidfd = fd
		}
	}
	if e.pidfd >= 0 {
		if parent := procs.Holder("/proc", pid); parent > 0 {
			if fd, err := unix.PidfdOpen(parent, 0); err == nil {
				e.holder = fd
			}
			// It may have ended, and its number be another's.
			if procs.Holder("/proc", pid) != parent && e.holder >= 0 {
				unix.Close(e.holder)
				e.holder = -1
			}
		}
	}
	return e
}

func (e *ending) close() {
	for _, fd := range []int{e.pidfd, e.holder} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// alone has wait return once the daemon has ended; its holder goes on.
func (e *ending) alone() {
	if e.holder >= 0 {
		unix.Close(e.holder)
		e.holder = -1
	}
}

// kill ends the daemon for good. Its holder, which would start another one, is stopped meanwhile. It ends
// after the daemon: one that is stopped would be woken by the end of the process above it, and may close the
// store, or be killed in the midst of that.
func (e *ending) kill() error {
	hold := func(s syscall.Signal) error {
		if e.holder < 0 {
			return nil
		}
		if err := unix.PidfdSendSignal(e.holder, s, nil, 0); err != unix.ESRCH {
			return err
		}
		return nil
	}
	if err := hold(unix.SIGSTOP); err != nil {
		return err
	}
	err := e.signal(syscall.SIGKILL)
	if err == unix.ESRCH { // it ended just now
		err = nil
	}
	return errors.Join(err, hold(unix.SIGKILL))
}

// signal sends a signal to the daemon, and to no other process that may have got its number.
func (e *ending) signal(s syscall.Signal) error {
	if e.pidfd < 0 {
		return errors.New("it runs where it cannot be seen from here, in another container: end it there")
	}
	return unix.PidfdSendSignal(e.pidfd, s, nil, 0)
}

// inOrder is nil once the daemon, which has ended, has closed the store in order.
func (e *ending) inOrder(ctx context.Context, store string) error {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := tree.ClosedInOrder(store, e.since)
		if err == nil || e.pidfd >= 0 || ctx.Err() != nil || time.Since(start) > e.grace {
			return err
		}
	}
}

// wait returns once the daemon and its holder have ended, and with them the store's lock. Of a daemon that
// cannot be seen it is the socket's end that is waited for, which comes a little before the lock's.
func (e *ending) wait(ctx context.Context) error {
	const look = 50 * time.Millisecond
	waits := e.pidfd
	for ctx.Err() == nil {
		if e.pidfd < 0 {
			c, err := dial(ctx, e.place)
			if errors.Is(err, control.ErrNoDaemon) {
				return nil
			}
			if err == nil {
				c.Close()
			}
			time.Sleep(look)
			continue
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(waits), Events: unix.POLLIN}},
			int(look.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the daemon: %w", err)
		}
		switch {
		case n > 0 && waits == e.pidfd && e.holder >= 0:
			waits = e.holder
		case n > 0:
			return nil
		}
	}
	return ctx.Err()
}
