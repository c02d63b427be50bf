package volume

import (
	"container/list"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// cachedFd is a directory's descriptor in the cache. fd < 0: not open.
type cachedFd struct {
	fd    int
	users int
	elem  *list.Element // position in the list of those without users
}

// fdCache keeps directories open by O_PATH. Every operation on a name goes through its directory's descriptor, so that
// a rename above it does not matter and paths may be as long as the caller's. A directory whose descriptor was closed
// is opened again through its parent's, which is always right, since every change of a name passes through this process.
type fdCache struct {
	mu   sync.Mutex
	idle *list.List // of *Node, least recently used first
	open int
	max  int
}

func newFdCache(max int) *fdCache { return &fdCache{idle: list.New(), max: max} }

// acquire returns dir's descriptor, valid until release. v.ns is held.
func (c *fdCache) acquire(dir *Node) (int, error) {
	c.mu.Lock()
	if dir.dirfd.fd >= 0 {
		c.use(dir)
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
	parent, err := c.acquire(a.dir)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat(parent, a.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	c.release(a.dir)
	if err != nil {
		return -1, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if dir.dirfd.fd >= 0 { // somebody else was faster
		unix.Close(fd)
		c.use(dir)
		return dir.dirfd.fd, nil
	}
	dir.dirfd.fd = fd
	c.open++
	c.use(dir)
	c.shrink()
	return fd, nil
}

func (c *fdCache) use(dir *Node) {
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
		c.shrink()
	}
}

func (c *fdCache) shrink() {
	for c.open > c.max && c.idle.Len() > 0 {
		c.close(c.idle.Front().Value.(*Node))
	}
}

func (c *fdCache) close(dir *Node) {
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
		c.close(n)
	}
}

// place is where system calls find a node: a directory's descriptor and a name in it, or, for a node without a name, a
// path through its own descriptor.
type place struct {
	dirfd int
	name  string // relative to dirfd
	dir   *Node  // to be released; nil for a node without a name
	magic bool   // name is a link in /proc that has to be followed
}

// locate returns the place of n. v.ns is held until release.
func (n *Node) locate() (place, error) {
	if n == n.ns.root {
		return place{dirfd: n.ns.rootFd, name: "."}, nil
	}
	n.ns.tab.mu.Lock() // a hard link's other name may be added just now
	if len(n.names) == 0 {
		keep := n.keep
		n.ns.tab.mu.Unlock()
		if keep < 0 {
			return place{}, unix.ENOENT
		}
		return place{dirfd: unix.AT_FDCWD, name: "/proc/self/fd/" + strconv.Itoa(keep), magic: true}, nil
	}
	a := n.names[0]
	n.ns.tab.mu.Unlock()
	fd, err := n.ns.fds.acquire(a.dir)
	if err != nil {
		return place{}, err
	}
	return place{dirfd: fd, name: a.name, dir: a.dir}, nil
}

func (ns *Names) release(p place) {
	if p.dir != nil {
		ns.fds.release(p.dir)
	}
}

// path is an absolute path to the place, for the calls that have no directory argument.
func (p place) path() string {
	if p.magic {
		return p.name
	}
	return procPath(p.dirfd, p.name)
}

// procPath is a path to name in the directory dirfd, or with no name to what dirfd is open on.
func procPath(dirfd int, name string) string {
	p := "/proc/self/fd/" + strconv.Itoa(dirfd)
	if name == "" {
		return p
	}
	return p + "/" + name
}

// stat describes the node at p.
func (p place) stat(st *unix.Stat_t) error {
	flag := unix.AT_SYMLINK_NOFOLLOW
	if p.magic {
		flag = 0
	}
	return unix.Fstatat(p.dirfd, p.name, st, flag)
}

// open opens the node at p. Symlinks are not followed.
func (p place) open(flags int) (int, error) {
	if !p.magic {
		flags |= unix.O_NOFOLLOW
	}
	return unix.Openat(p.dirfd, p.name, flags|unix.O_CLOEXEC, 0)
}
