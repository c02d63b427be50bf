package holder

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Taken is what a daemon takes over from its forerunner. The descriptors are the receiver's own, and closed
// on exec.
type Taken struct {
	Device, Memory int
	Kept           map[uint64]int // by id

	Status   syscall.WaitStatus // how the last daemon ended
	Ended    time.Time          // when; with a monotonic reading, as time.Now has it
	Unserved time.Time          // when the last one that was ready ended; Ended, unless Tries is more than 0
	Tries    int                // daemons since that ended before they were ready
}

// newTaken reads a Take.
func newTaken(d datagram) (*Taken, error) {
	t, ok := decodeTake(d.body)
	if !ok || len(d.fds) != 2 {
		return nil, fmt.Errorf("a Take of %d bytes with %d descriptors", 1+len(d.body), len(d.fds))
	}
	wall, mono := time.Now(), now()
	return &Taken{
		Device: d.fds[0], Memory: d.fds[1],
		Kept:     map[uint64]int{},
		Status:   syscall.WaitStatus(t.status),
		Ended:    wall.Add(t.ended - mono),
		Unserved: wall.Add(t.unserved - mono),
		Tries:    int(t.tries),
	}, nil
}

// Why is how the last daemon ended, for the log.
func (t *Taken) Why() string { return describe(t.Status) }

// Crashed reports whether the last daemon ended by a fault of its own. It may do so again over the same
// request.
func (t *Taken) Crashed() bool {
	s := t.Status
	if s.Signaled() {
		return s.Signal() != syscall.SIGKILL && s.Signal() != syscall.SIGTERM && s.Signal() != syscall.SIGINT
	}
	return s.ExitStatus() == 2 // a panic
}

// add reads a Kept.
func (t *Taken) add(d datagram) error {
	if len(d.body) != 8*len(d.fds) {
		return fmt.Errorf("a Kept of %d bytes with %d descriptors", 1+len(d.body), len(d.fds))
	}
	for i, fd := range d.fds {
		id := binary.LittleEndian.Uint64(d.body[8*i:])
		if old, ok := t.Kept[id]; ok {
			unix.Close(old)
		}
		t.Kept[id] = fd
	}
	return nil
}

// close closes all of the descriptors.
func (t *Taken) close() {
	unix.Close(t.Device)
	unix.Close(t.Memory)
	for _, fd := range t.Kept {
		unix.Close(fd)
	}
}
