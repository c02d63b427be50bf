package disk

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var errNoFile = errors.New("not a file: it is not of ckptfs; move it away")

// OS is the operating system's filesystem.
type OS struct{}

// OpenFile opens a file; package os adds O_CLOEXEC. It follows no symbolic link, and a FIFO, which would wait
// for its other end, is refused like all else that is no file.
func (OS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		if err == nil {
			err = &os.PathError{Op: "open", Path: name, Err: errNoFile}
		}
		return nil, err
	}
	return &osFile{File: f}, nil
}

func (OS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

func (OS) Remove(name string) error { return os.Remove(name) }

func (OS) MkdirAll(name string, perm os.FileMode) error { return os.MkdirAll(name, perm) }

func (OS) ReadDir(name string) ([]string, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	return names, nil
}

func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

type osFile struct {
	*os.File
	opening sync.Once
	past    *os.File // the file again, with O_DIRECT; nil: the host has none. Set by opening
}

func (f *osFile) ReadPast(p []byte, off int64) (n int, err error) {
	f.opening.Do(f.openPast)
	if f.past != nil && !f.cached(off, int64(len(p))) {
		if n, _ = f.past.ReadAt(p, off); n > 0 {
			off, p = off+int64(n), p[n:] // the rest, or the error
		}
		if len(p) == 0 {
			return n, nil
		}
	}
	k, err := f.ReadAt(p, off)
	return n + k, err
}

// openPast opens the file once more, whatever its name is by now.
func (f *osFile) openPast() {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil {
			return
		}
		past, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd),
			os.O_RDONLY|unix.O_DIRECT|flags&unix.O_NOATIME, 0)
		if err == nil {
			f.past = past
		}
	})
}

// cached reports whether all of a range is in the page cache.
func (f *osFile) cached(off, n int64) (all bool) {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = c.Control(func(fd uintptr) {
		var st unix.Cachestat_t
		err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &st, 0)
		all = err == nil && int64(st.Cache)*int64(os.Getpagesize()) >= n
	})
	return all
}

func (f *osFile) Close() error {
	f.opening.Do(func() {})
	if f.past != nil {
		f.past.Close()
	}
	return f.File.Close()
}

func (f *osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f *osFile) Allocated() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512, nil
	}
	return fi.Size(), nil
}

func (f *osFile) PunchHole(off, n int64) error {
	if n == 0 {
		return nil // the system call refuses an empty range
	}
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = c.Control(func(fd uintptr) {
		for {
			ferr = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
			if ferr != unix.EINTR {
				return
			}
		}
	})
	if err == nil {
		err = ferr
	}
	if err != nil {
		return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// folio is more than the page cache keeps or drops as one.
const folio = 16 << 20

// Forget has the kernel drop the pages, and asks it whether it did. Those of a filesystem in memory are all
// that there is.
func (f *osFile) Forget(off int64) error {
	off = off / folio * folio
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = c.Control(func(fd uintptr) {
		var st unix.Statfs_t
		if ferr = unix.Fstatfs(int(fd), &st); ferr != nil || st.Type == unix.TMPFS_MAGIC ||
			st.Type == unix.RAMFS_MAGIC {
			return
		}
		var left unix.Cachestat_t
		for range 10 { // somebody may be reading
			if ferr = unix.Fadvise(int(fd), off, 0, unix.FADV_DONTNEED); ferr != nil {
				return
			}
			err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off)}, &left, 0)
			if err != nil || left.Cache == 0 { // Linux before 6.5 cannot tell
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		ferr = fmt.Errorf("%d pages stay in memory: %w", left.Cache, unix.EBUSY)
	})
	if err == nil {
		err = ferr
	}
	if err != nil {
		return &os.PathError{Op: "fadvise", Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) WillRead(off, n int64) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { _ = unix.Fadvise(int(fd), off, n, unix.FADV_WILLNEED) })
	}
}
