package content

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
)

// copiers guesses which file is opened to be the target of a copy. A copy inside the mount can share the
// manifest, in milliseconds, but only when the target's writers are served by this process, and that is
// settled when it is opened. The guess: a thread that opened a packed file and then, as the next thing, a
// file for writing, in a program that is known to copy. A wrong guess costs the one speed or the other, never
// bytes.
type copiers struct {
	mu      locks.Mutex[leafLock]
	sources map[uint32]bool // threads whose last open was of a packed file
	known   map[string]bool // programs, by what /proc calls them
}

// maxSources bounds the threads that are remembered.
const maxSources = 4096

func newCopiers() *copiers {
	return &copiers{
		sources: map[uint32]bool{},
		known:   map[string]bool{"cp": true, "mv": true, "install": true},
	}
}

// source notes that a thread opened a packed file for reading.
func (c *copiers) source(thread uint32) {
	if thread == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sources) >= maxSources {
		clear(c.sources)
	}
	c.sources[thread] = true
}

// target reports whether the file that a thread opens for writing is likely to be copied to.
func (c *copiers) target(thread uint32) bool {
	c.mu.Lock()
	after := c.sources[thread]
	delete(c.sources, thread)
	c.mu.Unlock()
	if !after {
		return false
	}
	name := program(thread)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[name]
}

// learn notes that a thread's program copies.
func (c *copiers) learn(thread uint32) {
	name := program(thread)
	if name == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) < maxSources {
		c.known[name] = true
	}
}

// program is the name of the program that a thread runs; "" when it is gone.
func program(thread uint32) string {
	b, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(thread), 10) + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// isTarget notes an open of a file, packed or not, and reports whether it looks like that of a copy's target.
func (c *Files) isTarget(flags, thread uint32, packed bool) bool {
	switch {
	case thread == 0 || !c.Passthrough.Load():
		return false
	case flags&unix.O_ACCMODE == unix.O_WRONLY: // a program that maps or reads what it writes is no copier
		return c.copiers.target(thread)
	case flags&unix.O_ACCMODE == unix.O_RDWR:
	case packed:
		c.copiers.source(thread)
	}
	return false
}
