package content

import (
	"time"

	"golang.org/x/sys/unix"
)

// Mode is how the kernel serves a handle's reads and writes.
type Mode int

const (
	// Cached: through the kernel's page cache, from this process.
	Cached Mode = iota
	// Direct: from this process, past the page cache.
	Direct
	// Passthrough: by the kernel from the inode in the tree, without this process.
	Passthrough
)

// users counts who has a file open, by the mode in which the kernel serves them. File.mu guards it.
//
//	pass > 0            implies cached == 0 and direct == 0, and backing is registered
//	flushed <= writers
type users struct {
	pass    int   // handles in Passthrough
	cached  int   // handles in Cached
	direct  int   // handles in Direct
	inside  int   // readers in this process: views, packing
	backing int32 // the kernel's id of the local copy while pass > 0
	stale   bool  // the kernel may have cached pages of older bytes

	writers  int  // handles that may write
	flushed  int  // of these, those that saw a close(2); see AwaitRelease
	torn     bool // one of the writers was killed before it was done
	programs int  // handles of processes that execute the file

	vain time.Time // until when Closed does not wait, since it did in vain
}

// open reports whether a program has the file open.
func (u *users) open() bool { return u.pass+u.cached+u.direct > 0 }

// closed reports whether each writer saw a close(2), and is not released yet.
func (u *users) closed() bool { return u.writers > 0 && u.flushed >= u.writers }

// all is how many handles and readers of this process there are.
func (u *users) all() int { return u.pass + u.cached + u.direct + u.inside }

// mode chooses the mode of one handle more, whose access is one of O_RDONLY, O_WRONLY and O_RDWR. local: the
// local copy is what reads go to. passthrough: the handle may be in it.
//
// It keeps to the kernel's rule: an inode is either in passthrough with one backing file, or cached.
func (u *users) mode(access uint32, local, passthrough bool) Mode {
	switch {
	case u.pass > 0:
		return Passthrough
	case u.cached > 0:
		return Cached
	case u.direct == 0 && local && passthrough:
		return Passthrough
	case access == unix.O_WRONLY && !passthrough:
		return Direct // a handle that can't be mapped; half as fast again as through the page cache
	}
	return Cached
}

// enter counts a handle in, and tells it its KeepCache or its Backing. first: it is the first writer.
func (u *users) enter(h *Handle) (first bool) {
	switch h.Mode {
	case Passthrough:
		u.pass++
		h.Backing = u.backing
		u.stale = u.stale || h.Writes
	case Cached:
		u.cached++
		h.KeepCache = !u.stale
		u.stale = false
	case Direct:
		u.direct++
	}
	if h.program {
		u.programs++
	}
	if h.Writes {
		u.writers++
	}
	return h.Writes && u.writers == 1
}

// leave counts a handle out. last: it was the last writer.
func (u *users) leave(h *Handle) (last bool) {
	switch h.Mode {
	case Passthrough:
		u.pass--
	case Cached:
		u.cached--
	case Direct:
		u.direct--
	}
	if h.program {
		u.programs--
	}
	if !h.Writes {
		return false
	}
	if h.flushed {
		u.flushed--
	}
	u.writers--
	return u.writers == 0
}
