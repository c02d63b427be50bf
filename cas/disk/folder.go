package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Folder is a folder of the operating system that is opened once, and an FS of what lies below it. Every name
// is reached from the folder's descriptor, through no symbolic link and to nothing outside. So what was true
// of the folder when it was opened is true of what is used, whatever its path leads to by then.
//
// A name is relative to the folder, or an absolute path below Path. Errors name the path. Methods may be
// called by several goroutines at once.
type Folder struct {
	fd   *os.File // O_PATH
	path string
}

// OpenFolder opens a folder. The last name of path may not be a symbolic link.
func OpenFolder(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &Folder{fd: os.NewFile(uintptr(fd), path), path: path}, nil
}

// Close gives the descriptor back. Files that are open stay so.
func (d *Folder) Close() error { return d.fd.Close() }

// Path is where the folder was found, for messages.
func (d *Folder) Path() string { return d.path }

// Join is the path of a name in the folder, for messages and as a name.
func (d *Folder) Join(name string) string { return filepath.Join(d.path, name) }

// Here is a path that leads this process to the folder itself, until Close. What is below it must not be
// reached by it through further folders: their names may be links.
func (d *Folder) Here() string { return "/proc/self/fd/" + strconv.Itoa(int(d.fd.Fd())) }

// Stat describes the folder.
func (d *Folder) Stat() (st unix.Stat_t, err error) {
	err = unix.Fstat(int(d.fd.Fd()), &st)
	return st, d.failed("stat", ".", err)
}

// StatFS describes the disk that the folder lies on.
func (d *Folder) StatFS() (st unix.Statfs_t, err error) {
	err = unix.Fstatfs(int(d.fd.Fd()), &st)
	return st, d.failed("statfs", ".", err)
}

// Space is how many bytes the disk has that the folder lies on, and has free for any process.
func (d *Folder) Space() (size, free int64, err error) {
	st, err := d.StatFS()
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, err
}

// Lstat describes a name, which may be a symbolic link.
func (d *Folder) Lstat(name string) (st unix.Stat_t, err error) {
	err = d.at("lstat", name, func(dir int, base string) error {
		return unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	return st, err
}

// Open opens a regular file, as os.OpenFile does, also with O_PATH or O_TMPFILE. Anything else is an error,
// and is not waited for.
func (d *Folder) Open(name string, flag int, perm os.FileMode) (*os.File, error) {
	if flag&unix.O_PATH == 0 { // which takes no other flags
		flag |= unix.O_NONBLOCK
	}
	f, err := d.open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		if err == nil {
			err = d.failed("open", name, errNoFile)
		}
		return nil, err
	}
	return f, nil
}

// OpenDir opens a folder to list it, "." the folder itself.
func (d *Folder) OpenDir(name string) (*os.File, error) {
	return d.open(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
}

// Sub opens a folder below as one of its own.
func (d *Folder) Sub(name string) (*Folder, error) {
	f, err := d.open(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Folder{fd: f, path: f.Name()}, nil
}

// OpenFile is FS.OpenFile.
func (d *Folder) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := d.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

// Rename is FS.Rename.
func (d *Folder) Rename(oldname, newname string) error {
	return d.at("rename", oldname, func(from int, old string) error {
		return d.at("rename", newname, func(to int, name string) error {
			return unix.Renameat(from, old, to, name)
		})
	})
}

// Remove is FS.Remove.
func (d *Folder) Remove(name string) error {
	return d.at("remove", name, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if err == unix.EISDIR {
			err = unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
		}
		return err
	})
}

// Mkdir makes a folder.
func (d *Folder) Mkdir(name string, perm os.FileMode) error {
	return d.at("mkdir", name, func(dir int, base string) error {
		return unix.Mkdirat(dir, base, uint32(perm.Perm()))
	})
}

// MkdirAll is FS.MkdirAll.
func (d *Folder) MkdirAll(name string, perm os.FileMode) error {
	rel, err := d.rel("mkdir", name)
	if err != nil || rel == "." {
		return err
	}
	for i := range len(rel) + 1 {
		if i < len(rel) && rel[i] != '/' {
			continue
		}
		if err := d.Mkdir(rel[:i], perm); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	f, err := d.OpenDir(rel) // what was there may be no folder
	if err != nil {
		return err
	}
	return f.Close()
}

// ReadDir is FS.ReadDir.
func (d *Folder) ReadDir(name string) ([]string, error) {
	f, err := d.OpenDir(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	return names, nil
}

// Walk is filepath.WalkDir below a folder, with paths relative to it. It follows no symbolic link.
func (d *Folder) Walk(name string, f fs.WalkDirFunc) error {
	sub, err := d.Sub(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	return fs.WalkDir(walked{sub}, ".", f)
}

// walked is a Folder as an fs.FS that can be listed, and from which files can be read.
type walked struct{ d *Folder }

func (w walked) Open(name string) (fs.File, error) { return w.d.open(name, unix.O_NONBLOCK, 0) }

// SyncDir is FS.SyncDir.
func (d *Folder) SyncDir(name string) error {
	f, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// open opens a name.
func (d *Folder) open(name string, flag int, perm os.FileMode) (*os.File, error) {
	rel, err := d.rel("open", name)
	if err != nil {
		return nil, err
	}
	how := unix.OpenHow{
		Flags:   uint64(flag) | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if flag&(os.O_CREATE|unix.O_TMPFILE&^unix.O_DIRECTORY) != 0 {
		how.Mode = uint64(perm.Perm())
	}
	for {
		fd, err := unix.Openat2(int(d.fd.Fd()), rel, &how)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, d.failed("open", name, err)
		}
		return os.NewFile(uintptr(fd), d.Join(rel)), nil
	}
}

// at calls f with the directory that a name is in, and the name there.
func (d *Folder) at(op, name string, f func(dir int, base string) error) error {
	rel, err := d.rel(op, name)
	if err != nil {
		return err
	}
	dir, base := filepath.Split(rel)
	fd := d.fd
	if dir != "" {
		if fd, err = d.open(dir, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
		defer fd.Close()
	}
	return d.failed(op, name, f(int(fd.Fd()), base))
}

// rel is a name relative to the folder.
func (d *Folder) rel(op, name string) (string, error) {
	rel := filepath.Clean(name)
	if below, ok := strings.CutPrefix(rel, d.path); ok && (below == "" || below[0] == '/') {
		rel = filepath.Clean(strings.TrimPrefix(below, "/"))
	}
	if !filepath.IsLocal(rel) {
		return "", d.failed(op, name, unix.EXDEV)
	}
	return rel, nil
}

// failed names the path in an error, unless that is done.
func (d *Folder) failed(op, name string, err error) error {
	var named *os.PathError
	if err == nil || errors.As(err, &named) {
		return err
	}
	if !filepath.IsAbs(name) {
		name = d.Join(name)
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}
