package holder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrLost is the error of a Link whose holder is gone. The daemon serves on, and the mount ends with it.
var ErrLost = errors.New("the holder is gone")

// Link is a daemon's end of the link to its holder. A nil Link is that of a daemon without one: its methods
// do nothing. Methods may be called at the same time; what they say is done in the order of their calls.
// Each is one system call, and none of them waits for an answer, but for Write.
type Link struct {
	sock   int
	taken  *Taken
	lost   chan struct{}
	writes writes
}

// Connect is called first in a daemon, before it opens anything. It returns when it has all that its
// forerunner left. Without a holder it is nil and no error.
func Connect() (*Link, error) {
	value, ok := os.LookupEnv(fdEnv)
	if !ok {
		return nil, nil
	}
	os.Unsetenv(fdEnv) // not for children
	fd, err := strconv.Atoi(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fdEnv, err)
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || typ != unix.SOCK_SEQPACKET {
		return nil, fmt.Errorf("%s: descriptor %d is no link to a holder", fdEnv, fd)
	}
	unix.CloseOnExec(fd)
	l := &Link{sock: fd, lost: make(chan struct{})}
	if err := l.takeOver(); err != nil {
		if l.taken != nil {
			l.taken.close()
		}
		unix.Close(fd)
		return nil, fmt.Errorf("the holder's link: %w", err)
	}
	go l.watch()
	return l, nil
}

// takeOver receives until Go.
func (l *Link) takeOver() error {
	for {
		d, err := receive(l.sock, mostKept, 0)
		if err == unix.EPIPE {
			return ErrLost
		}
		if err != nil {
			return err
		}
		if d.lost {
			return unix.EMFILE
		}
		switch {
		case d.kind == msgTake && l.taken == nil:
			l.taken, err = newTaken(d)
		case d.kind == msgKept && l.taken != nil:
			err = l.taken.add(d)
		case d.kind == msgGo:
			d.close()
			return nil
		default:
			d.close()
		}
		if err != nil {
			d.close()
			return err
		}
	}
}

// watch waits for the end of the link. It takes a thread, and no time.
func (l *Link) watch() {
	for {
		d, err := receive(l.sock, mostKept, 0)
		if err != nil && err != unix.ECONNRESET {
			break
		}
		d.close() // of a later version
	}
	close(l.lost)
}

// Taken is what the daemon takes over, nil in the first life of a mount.
func (l *Link) Taken() *Taken {
	if l == nil {
		return nil
	}
	return l.taken
}

// Hold says that the mount must survive from now on, and what the next daemon gets of it. The descriptors
// stay the caller's, here and below.
func (l *Link) Hold(dev, memory int) error {
	return l.send(datagram{kind: msgHold, fds: []int{dev, memory}})
}

// Keep keeps a descriptor for the next daemon, in place of one that was kept under that id.
func (l *Link) Keep(id uint64, fd int) error {
	return l.send(datagram{kind: msgKeep, body: binary.LittleEndian.AppendUint64(nil, id), fds: []int{fd}})
}

// Drop ends what Keep began.
func (l *Link) Drop(id uint64) error {
	return l.send(datagram{kind: msgDrop, body: binary.LittleEndian.AppendUint64(nil, id)})
}

// Ready says that the daemon serves. Signals are passed on from now on.
func (l *Link) Ready() error { return l.send(datagram{kind: msgReady}) }

// Next says which binary the next daemon is. If that one ends before it is ready, the former is used again.
func (l *Link) Next(exe int) error { return l.send(datagram{kind: msgNext, fds: []int{exe}}) }

// Lost is closed when the holder is gone. Without a holder it is nil.
func (l *Link) Lost() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.lost
}

func (l *Link) send(d datagram) error {
	if l == nil {
		return nil
	}
	err := d.send(l.sock, 0)
	if err == unix.EPIPE || err == unix.ECONNRESET {
		return ErrLost
	}
	return err
}
