package holder

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// spare is how many descriptors the holder leaves free, for the start of the next daemon.
const spare = 32

// custody is the descriptors that outlive a daemon; -1 is none.
type custody struct {
	dev, mem int
	kept     map[uint64]int
	exe      int // the binary that was given last and has been ready; none: Options.Exe
	trial    int // one that was given since
	most     int // a kept descriptor is less
}

// The limit on descriptors is the hard one: Go's runtime has raised it, and gives a child the former one.
func newCustody() custody {
	c := custody{dev: -1, mem: -1, exe: -1, trial: -1, kept: map[uint64]int{}, most: math.MaxInt}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil && lim.Cur < math.MaxInt32 {
		c.most = int(lim.Cur) - spare
	}
	return c
}

func (c *custody) close() {
	for _, fd := range c.kept {
		unix.Close(fd)
	}
	clear(c.kept)
	for _, fd := range []*int{&c.mem, &c.exe, &c.trial, &c.dev} {
		replace(fd, -1)
	}
}

// replace closes the descriptor in place, if there is one, and puts another there.
func replace(place *int, fd int) {
	if *place >= 0 {
		unix.Close(*place)
	}
	*place = fd
}

// held tells whether there is a mount to be kept.
func (c *custody) held() bool { return c.dev >= 0 }

func (c *custody) hold(dev, mem int) {
	replace(&c.dev, dev)
	replace(&c.mem, mem)
}

func (c *custody) keep(id uint64, fd int) {
	c.drop(id)
	if fd >= c.most { // the one in its place may have made room
		low, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		unix.Close(fd)
		if fd = low; err != nil {
			return
		}
	}
	if fd >= c.most {
		unix.Close(fd)
		return
	}
	c.kept[id] = fd
}

func (c *custody) drop(id uint64) {
	if fd, ok := c.kept[id]; ok {
		unix.Close(fd)
		delete(c.kept, id)
	}
}

// gone tells whether the mount is: unmounted, or its connection aborted.
func (c *custody) gone() bool { return c.goneWithin(0) }

// goneWithin waits that long, or until the mount is gone.
func (c *custody) goneWithin(d time.Duration) bool {
	until := now() + d
	for {
		fds := []unix.PollFd{{Fd: int32(c.dev)}}
		left := max(0, until-now())
		n, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
		if err == nil {
			return n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
		}
		if err != unix.EINTR {
			return false
		}
	}
}

// next takes a binary on trial. Its number is one that the start of a child does not use for something else.
func (c *custody) next(fd int) {
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 16)
	if err == nil {
		replace(&c.trial, high)
	}
	unix.Close(fd)
}

// proven says that the binary on trial has been ready.
func (c *custody) proven() {
	replace(&c.exe, c.trial)
	c.trial = -1
}

// failed says that a daemon of that binary ended before it was ready.
func (c *custody) failed(trial bool) {
	if trial {
		replace(&c.trial, -1)
	}
}

// binary is the path of the next daemon's binary, and whether it is on trial.
func (c *custody) binary(otherwise string) (path string, trial bool) {
	switch {
	case c.trial >= 0:
		return fmt.Sprintf("/proc/self/fd/%d", c.trial), true
	case c.exe >= 0:
		return fmt.Sprintf("/proc/self/fd/%d", c.exe), false
	}
	return otherwise, false
}

// keptDatagrams is what is kept, as the next daemon is told.
func (c *custody) keptDatagrams() []datagram {
	var out []datagram
	d := datagram{kind: msgKept}
	for id, fd := range c.kept {
		d.body = binary.LittleEndian.AppendUint64(d.body, id)
		d.fds = append(d.fds, fd)
		if len(d.fds) == mostKept {
			out = append(out, d)
			d = datagram{kind: msgKept}
		}
	}
	if len(d.fds) > 0 {
		out = append(out, d)
	}
	return out
}
