package tree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// partSuffix marks a raw copy that is not complete yet.
const partSuffix = ".part"

// Content is the folder of raw files.
type Content struct{ dir string }

// NewContent returns the content folder of the store in dir.
func NewContent(dir string) *Content { return &Content{dir: filepath.Join(dir, ContentDir)} }

// NewID returns a fresh id.
func NewID() ID {
	var id ID
	if _, err := rand.Read(id[:]); err != nil {
		panic(err) // the kernel's generator does not fail
	}
	return id
}

func (c *Content) shard(id ID) string { return filepath.Join(c.dir, fmt.Sprintf("%02x", id[0])) }

// Path is where id's raw file lies if it is resident.
func (c *Content) Path(id ID) string { return filepath.Join(c.shard(id), id.String()) }

// Create makes id's raw file, empty.
func (c *Content) Create(id ID) (*os.File, error) {
	return os.OpenFile(c.Path(id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// CreateUnnamed makes a raw file without a name, for an O_TMPFILE; Name gives it one.
func (c *Content) CreateUnnamed(id ID) (*os.File, error) {
	fd, err := unix.Open(c.shard(id), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: c.shard(id), Err: err}
	}
	return os.NewFile(uintptr(fd), c.Path(id)), nil
}

// Name links a file from CreateUnnamed to its place.
func (c *Content) Name(f *os.File, id ID) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, c.Path(id), unix.AT_SYMLINK_FOLLOW)
}

// Open opens id's raw file; fs.ErrNotExist when it is not resident.
func (c *Content) Open(id ID, write bool) (*os.File, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	return os.OpenFile(c.Path(id), flag, 0)
}

// OpenQuietly opens id's raw file for reading on the daemon's own account: the file's access time is the user's.
func (c *Content) OpenQuietly(id ID) (*os.File, error) {
	f, err := os.OpenFile(c.Path(id), os.O_RDONLY|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // a file of another owner, and no privileges
		return c.Open(id, false)
	}
	return f, err
}

// Stat describes id's raw file; unix.ENOENT when it is not resident.
func (c *Content) Stat(id ID, st *unix.Stat_t) error { return unix.Lstat(c.Path(id), st) }

// CreatePart starts a raw copy of id; Publish gives it its name once it is complete.
func (c *Content) CreatePart(id ID) (*os.File, error) {
	return os.OpenFile(c.Path(id)+partSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Publish gives a complete copy its name.
func (c *Content) Publish(id ID) error {
	return os.Rename(c.Path(id)+partSuffix, c.Path(id))
}

// DropPart removes an incomplete copy.
func (c *Content) DropPart(id ID) { os.Remove(c.Path(id) + partSuffix) }

// Remove unlinks id's raw file. It is no error if there is none.
func (c *Content) Remove(id ID) error {
	if err := os.Remove(c.Path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncName makes the name of id's raw file durable.
func (c *Content) SyncName(id ID) error { return SyncDir(c.shard(id)) }

// Each calls f with every resident id and its raw file. Whatever else is in the folder is passed to odd, which may be nil.
func (c *Content) Each(f func(id ID, st *unix.Stat_t) error, odd func(path string) error) error {
	if odd == nil {
		odd = func(string) error { return nil }
	}
	shards, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, s := range shards {
		dir := filepath.Join(c.dir, s.Name())
		if !s.IsDir() {
			if err := odd(dir); err != nil {
				return err
			}
			continue
		}
		names, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range names {
			if err := c.visit(s.Name(), e.Name(), f, odd); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Content) visit(shard, name string, f func(ID, *unix.Stat_t) error, odd func(string) error) error {
	path := filepath.Join(c.dir, shard, name)
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return nil // removed meanwhile
	}
	if id, err := parseID(name); err == nil && shard == name[:2] && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return f(id, &st)
	}
	return odd(path)
}

// DropParts removes incomplete copies that an earlier process left. Nobody may be making any.
func (c *Content) DropParts() error {
	return c.Each(func(ID, *unix.Stat_t) error { return nil }, func(path string) error {
		if strings.HasSuffix(path, partSuffix) {
			return os.Remove(path)
		}
		return nil
	})
}

// SettleStub gives a stub the size and times that the file's bytes have.
func SettleStub(path string, size int64, atime, mtime unix.Timespec) error {
	err := unix.Truncate(path, size)
	if err == unix.EACCES {
		err = withOwnerBits(path, func() error { return unix.Truncate(path, size) })
	}
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{atime, mtime}, 0)
}
