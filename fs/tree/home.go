package tree

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// machineFile names the host for as long as its system is not installed again.
const machineFile = "/etc/machine-id"

// AtHome reports whether the store lies where all that it holds was last read and found whole (SetHome): on
// the same machine, in the same folder, with the same lock file. A copy of its files has other inodes. What
// a copy of the whole disk, block by block, is put in the place of, it is taken for.
func (l *Lock) AtHome(d *disk.Folder) bool {
	home := l.Before.Home
	if !l.shared {
		l.mu.Lock()
		defer l.mu.Unlock()
		home = l.self.Home
	}
	return home != "" && home == homeOf(d, l.f)
}

// SetHome notes that all that the store holds, or holds in the end if it is empty, is whole where it lies
// now. A reader of the store notes nothing.
func (l *Lock) SetHome(d *disk.Folder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	home := homeOf(d, l.f)
	if l.shared || home == l.self.Home {
		return nil
	}
	l.self.Home = home
	return l.write()
}

// Knows reports whether the process that held the store last said Leave of this, ended in order, and left the
// store where it lies.
func (l *Lock) Knows(d *disk.Folder, what cas.Hash) bool {
	known := knownAs(d, l.f, what)
	return l.Before.Clean && known != "" && known == l.Before.Known
}

// Leave notes what the next process may know to be so, if this one ends in order (Release).
func (l *Lock) Leave(d *disk.Folder, what cas.Hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.self.Known = knownAs(d, l.f, what)
}

// Noted names what holds of the tree in this boot, and this mount of the store's filesystem; zero: they have
// no name.
func (l *Lock) Noted(what cas.Hash) cas.Hash {
	if l.here.Boot == "" {
		return cas.Hash{}
	}
	return cas.Sum(fmt.Appendf(nil, "ckptfs noted %s %d %s", l.here.Boot, l.here.Mount, what))
}

func knownAs(d *disk.Folder, lock *os.File, what cas.Hash) string {
	home := homeOf(d, lock)
	if home == "" {
		return ""
	}
	return cas.Sum([]byte("ckptfs known " + home + " " + what.String())).String()[:32]
}

// homeOf names the place of a store; "": the disk does not tell. The name says nothing of the machine.
// Numbers of devices are not in it: many change with each boot.
func homeOf(d *disk.Folder, lock *os.File) string {
	segments, err := d.Sub(SegmentsDir)
	if err != nil {
		return ""
	}
	defer segments.Close()
	machine, _ := os.ReadFile(machineFile)
	name := strings.TrimSpace(string(machine))
	if name == "" { // a container: it may be on another host after each start
		name = BootID()
	}
	for _, path := range []string{segments.Here(), fmt.Sprintf("/proc/self/fd/%d", lock.Fd())} {
		var st unix.Statx_t
		if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &st) != nil {
			return ""
		}
		name += fmt.Sprintf(" %d %d.%d", st.Ino, st.Btime.Sec, st.Btime.Nsec)
	}
	return cas.Sum([]byte("ckptfs home " + name)).String()[:32]
}
