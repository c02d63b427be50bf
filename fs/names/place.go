package names

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// place is where system calls find a node: a directory's descriptor and a name in it, or, for a node without
// a name, a path through its own descriptor.
type place struct {
	dirfd int
	name  string // relative to dirfd
	dir   *Node  // to be released; nil for a node without a name
	magic bool   // name is a link in /proc that has to be followed
}

// locateLocked returns the place of n. ns is held until release.
func (n *Node) locateLocked() (place, error) {
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
	fd, err := n.ns.fds.acquireLocked(a.Dir)
	if err != nil {
		return place{}, err
	}
	return place{dirfd: fd, name: a.Name, dir: a.Dir}, nil
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
