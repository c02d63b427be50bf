package names

import (
	"container/list"

	"ckptfs/cas/locks"

	"golang.org/x/sys/unix"
)

// cachedFd is a directory's descriptor in the cache. fd < 0: not open.
type cachedFd struct {
	fd    int
	users int
	elem  *list.Element // position in the list of those without users
}

// fdCache keeps directories open by O_PATH. Every operation on a name goes through its directory's
// descriptor, so that a rename above it does not matter and paths may be as long as the caller's. A directory
// whose descriptor was closed is opened again through its parent's, which is always right, since every change
// of a name passes through this process.
type fdCache struct {
	mu   locks.Mutex[leafLock]
	idle *list.List // of *Node, least recently used first
	open int
	max  int
}

func newFdCache(max int) *fdCache { return &fdCache{idle: list.New(), max: max} }

// acquireLocked returns dir's descriptor, valid until release. ns is held.
func (c *fdCache) acquireLocked(dir *Node) (int, error) {
	c.mu.Lock()
	if dir.dirfd.fd >= 0 {
		c.useLocked(dir)
		c.mu.Unlock()
		return dir.dirfd.fd, nil
	}
	c.mu.Unlock()
	if dir.dead {
		if dir.keep >= 0 {
			return dir.keep, nil
		}
		return -1, unix.ENOENT
	}
	a := dir.names[0]
	parent, err := c.acquireLocked(a.Dir)
	if err != nil {
		return -1, err
	}
	fd, err := dir.ns.opening(func() (int, error) {
		return unix.Openat(parent, a.Name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	c.release(a.Dir)
	if err != nil {
		return -1, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if dir.dirfd.fd >= 0 { // another goroutine was faster
		unix.Close(fd)
		c.useLocked(dir)
		return dir.dirfd.fd, nil
	}
	dir.dirfd.fd = fd
	c.open++
	c.useLocked(dir)
	c.shrinkLocked()
	return fd, nil
}

func (c *fdCache) useLocked(dir *Node) {
	dir.dirfd.users++
	if dir.dirfd.elem != nil {
		c.idle.Remove(dir.dirfd.elem)
		dir.dirfd.elem = nil
	}
}

// release ends one acquire.
func (c *fdCache) release(dir *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dir.dirfd.users == 0 {
		return // it was dir.keep
	}
	dir.dirfd.users--
	if dir.dirfd.users == 0 {
		dir.dirfd.elem = c.idle.PushBack(dir)
		c.shrinkLocked()
	}
}

func (c *fdCache) shrinkLocked() {
	for c.open > c.max && c.idle.Len() > 0 {
		c.closeLocked(c.idle.Front().Value.(*Node))
	}
}

func (c *fdCache) closeLocked(dir *Node) {
	if dir.dirfd.elem != nil {
		c.idle.Remove(dir.dirfd.elem)
		dir.dirfd.elem = nil
	}
	unix.Close(dir.dirfd.fd)
	dir.dirfd.fd = -1
	c.open--
}

// drop closes the descriptor of a node that leaves the table.
func (c *fdCache) drop(n *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.dirfd.fd >= 0 && n.dirfd.users == 0 {
		c.closeLocked(n)
	}
}
