package holder

import (
	"slices"

	"golang.org/x/sys/unix"
)

// life is one daemon, from its start to its end.
type life struct {
	pid   int
	pidfd int
	sock  int
	first bool
	trial bool          // its binary is on trial
	ready bool          // it said so
	deaf  bool          // it has closed its end of the link, and all that it said was read
	out   []datagram    // what it is still to be told
	got   []unix.Signal // signals passed on to it
	sent  int           // how many of the holder's signals those are

	status unix.WaitStatus // once it has ended
}

func (l *life) close() {
	unix.Close(l.sock)
	if l.pidfd >= 0 {
		unix.Close(l.pidfd)
	}
}

func (l *life) queue(d datagram) { l.out = append(l.out, d) }

// tell sends what is queued, as far as the socket takes it. A daemon that cannot be told all is ended: it
// would wait for ever.
func (l *life) tell() {
	for len(l.out) > 0 {
		err := l.out[0].send(l.sock, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return
		}
		if err != nil {
			l.out = nil
			l.signal(unix.SIGKILL)
			return
		}
		l.out = l.out[1:]
	}
}

// pass passes on those of the signals asked for that this daemon has not got yet.
func (l *life) pass(asked []unix.Signal) {
	for _, s := range asked[l.sent:] {
		l.signal(s)
		l.got = append(l.got, s)
	}
	l.sent = len(asked)
}

func (l *life) signal(s unix.Signal) { _ = unix.PidfdSendSignal(l.pidfd, s, nil, 0) }

// wait waits for the end of all of the daemon's threads, and is called once.
func (l *life) wait() (unix.WaitStatus, error) {
	for {
		var s unix.WaitStatus
		_, err := unix.Wait4(l.pid, &s, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			s = unix.WaitStatus(unix.SIGKILL) // somebody else has waited; that it is over is all we know
		}
		l.status = s
		return s, err
	}
}

// obeyed tells whether the daemon ended since a signal was passed on to it, though the mount is there: its
// sender wants an end.
func (l *life) obeyed() bool {
	if l.status.Signaled() {
		return slices.Contains(l.got, l.status.Signal())
	}
	return len(l.got) > 0 && l.status.ExitStatus() == ExitInterrupted
}
