package names

import "golang.org/x/sys/unix"

// Descriptors are given out from the lowest number on: one near the limit says that hardly any is left.

// keptDirs is how many directories are kept open, of so many descriptors that this process may have. Two
// bounds of package content are such a share, too: all three together are a quarter.
func keptDirs(limit int) int { return min(openDirs, limit/12) }

// spare is how many descriptors are left for what the daemon itself has to open: its control socket, say.
func spare(limit int) int { return min(32, limit/8) }

// opening is an open(2) in the tree. When no descriptors are left, or only the spare ones, those go that are
// kept for closed files and for directories, and open is called once more. If that did not help the error is
// EMFILE. Locks may be held, but table.mu and fdCache.mu.
func (ns *Names) opening(open func() (int, error)) (int, error) {
	fd, err := open()
	if err == nil && fd < ns.most {
		return fd, nil
	}
	if err != nil && err != unix.EMFILE && err != unix.ENFILE {
		return -1, err
	}
	if err == nil {
		unix.Close(fd)
	}
	ns.shed()
	if fd, err = open(); err == nil && fd >= ns.most {
		unix.Close(fd)
		err = unix.EMFILE
	}
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// making is opening for an open that makes a name, which undo takes back.
func (ns *Names) making(open func() (int, error), undo func()) (int, error) {
	made := false
	fd, err := ns.opening(func() (int, error) {
		if made {
			undo()
		}
		fd, err := open()
		made = err == nil
		return fd, err
	})
	if err != nil && made {
		undo()
	}
	return fd, err
}

// shed closes what is kept open and not in use.
func (ns *Names) shed() {
	ns.o.Files.Shed()
	ns.fds.mu.Lock()
	defer ns.fds.mu.Unlock()
	for ns.fds.idle.Len() > 0 {
		ns.fds.closeLocked(ns.fds.idle.Front().Value.(*Node))
	}
}
