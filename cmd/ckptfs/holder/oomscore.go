package holder

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// oomScore protects the holder from being chosen when memory runs out, and never its children, of which the
// daemon is a large one. The value is inherited, so the holder takes its own off for the time of a start.
type oomScore struct {
	fd    int    // /proc/self/oom_score_adj; -1: nothing is to be changed
	was   []byte // what this process was started with
	least []byte // what it is to have
	lower bool   // it has been changed
}

// openOOMScore notes the value that children are to have. It stays open: a start must not fail for want of a
// descriptor.
func openOOMScore(least string) oomScore {
	o := oomScore{fd: -1, least: []byte(least)}
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return o
	}
	b := make([]byte, 16)
	n, err := unix.Pread(fd, b, 0)
	o.was = bytes.TrimSpace(b[:max(0, n)])
	if err != nil || len(o.was) == 0 || bytes.Equal(o.was, o.least) {
		unix.Close(fd)
		return o
	}
	o.fd = fd
	return o
}

func (o *oomScore) close() {
	if o.fd >= 0 {
		unix.Close(o.fd)
	}
}

// protect needs CAP_SYS_RESOURCE. Without it the value stays.
func (o *oomScore) protect() {
	if o.fd >= 0 {
		_, err := unix.Pwrite(o.fd, o.least, 0)
		o.lower = err == nil
	}
}

// expose gives back the former value, for the time in which a child is started.
func (o *oomScore) expose() error {
	if !o.lower {
		return nil
	}
	if _, err := unix.Pwrite(o.fd, o.was, 0); err != nil {
		return fmt.Errorf("oom_score_adj: %w", err)
	}
	o.lower = false
	return nil
}
