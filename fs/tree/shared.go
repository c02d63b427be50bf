package tree

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// ErrNeedsRecovery: the store was not closed in order, and this opening may not repair it.
var ErrNeedsRecovery = errors.New("the store was not closed in order: mount it once for writing, which repairs it")

// AcquireShared takes the store's lock beside other readers, and writes nothing. *LockedError while a process
// has the store for writing; ErrNeedsRecovery when the process that had it last did not close it.
func AcquireShared(d *disk.Folder) (*Lock, error) {
	f, err := d.Open(LockFile, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: nobody has mounted it yet: %w", d.Path(), ErrNeedsRecovery)
	}
	if err != nil {
		return nil, err
	}
	return takeShared(d, f)
}

// InheritShared is AcquireShared as Inherit is Acquire.
func InheritShared(d *disk.Folder, f *os.File) (*Lock, error) {
	if err := inherits(d, f); err != nil {
		f.Close()
		return nil, err
	}
	return takeShared(d, f)
}

func takeShared(d *disk.Folder, f *os.File) (*Lock, error) {
	if _, err := f.Seek(0, 0); err != nil {
		f.Close()
		return nil, err
	}
	before, decErr := readHolder(f)
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &LockedError{Dir: d.Path(), Holder: before}
		}
		return nil, fmt.Errorf("lock %s: %w", d.Path(), err)
	}
	if _, err := f.Seek(0, 0); err == nil { // what a writer left that has just gone
		before, decErr = readHolder(f)
	}
	if decErr != nil || !before.Clean {
		f.Close()
		return nil, fmt.Errorf("%s: %w", d.Path(), ErrNeedsRecovery)
	}
	return &Lock{f: f, Before: before, shared: true}, nil
}

// readersOf lists the processes that hold a shared lock on a file, as far as this process can see them.
func readersOf(f *os.File) []int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return nil
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return nil
	}
	defer locks.Close()
	return sharedLocks(bufio.NewScanner(locks), st.Ino)
}

// sharedLocks reads lines of /proc/locks:
//
//	1: FLOCK  ADVISORY  READ 4711 08:01:1234 0 EOF
func sharedLocks(lines *bufio.Scanner, ino uint64) []int {
	var pids []int
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[3] != "READ" ||
			!strings.HasSuffix(f[5], ":"+strconv.FormatUint(ino, 10)) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
