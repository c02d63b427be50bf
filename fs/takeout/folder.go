package takeout

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// Folder is a Source of what is on a disk, below a folder that is open. It follows no links.
type Folder struct {
	dir  *os.File
	dev  uint64 // of the folder: inode numbers of others say nothing
	own  string // attributes whose names begin so are not told; "": all are
	cold bool   // bytes are read from the disk, also those that memory has
}

// NewFolder is the Source of a folder. It does not tell of attributes whose names begin with own.
func NewFolder(root *os.Root, own string) (*Folder, error) {
	var st unix.Stat_t
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		dir.Close()
		return nil, &os.PathError{Op: "stat", Path: root.Name(), Err: err}
	}
	return &Folder{dir: dir, dev: st.Dev, own: own}, nil
}

// OpenFolder is NewFolder of a path.
func OpenFolder(dir, own string) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // the Folder has its own
	return NewFolder(root, own)
}

// Close gives the folder back, also of its Cold.
func (d *Folder) Close() error { return d.dir.Close() }

// Cold is the same folder, whose bytes are read from the disk. What is not synced comes from memory still.
func (d *Folder) Cold() *Folder {
	cold := *d
	cold.cold = true
	return &cold
}

// opened is what has a path in the folder.
type opened struct {
	fd int
	unix.Stat_t
}

func (o *opened) close() { unix.Close(o.fd) }

// open opens what has a path now if it is of a kind. With O_PATH it may be of any, also a symbolic link.
func (d *Folder) open(p string, flags int, kind uint32) (*opened, error) {
	p = path.Join(".", p)
	how := unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(d.dir.Fd()), p, &how)
	for err == unix.EINTR || err == unix.EAGAIN {
		fd, err = unix.Openat2(int(d.dir.Fd()), p, &how)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p, Err: err}
	}
	o := &opened{fd: fd}
	err = unix.Fstat(fd, &o.Stat_t)
	if err == nil && flags&unix.O_PATH == 0 && o.Mode&unix.S_IFMT != kind {
		err = errChanged
	}
	if err != nil {
		o.close()
		return nil, &os.PathError{Op: "open", Path: p, Err: err}
	}
	return o, nil
}

// Entry is Source.Entry.
func (d *Folder) Entry(ctx context.Context, p string) (*control.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at, err := d.open(p, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer at.close()
	return d.linked(path.Base(p), &at.Stat_t, at.fd, "")
}

// linked is an entry, with where it leads to.
func (d *Folder) linked(name string, st *unix.Stat_t, dir int, at string) (*control.Entry, error) {
	e := d.entry(name, st)
	if kindOf(e) != unix.S_IFLNK {
		return e, nil
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, at, target)
	e.Target = control.Name(target[:max(n, 0)])
	return e, err
}

func (d *Folder) entry(name string, st *unix.Stat_t) *control.Entry {
	e := &control.Entry{Name: control.Name(name), Mode: st.Mode, Size: st.Size,
		Mtime: time.Unix(st.Mtim.Unix()), Ctime: time.Unix(st.Ctim.Unix()),
		UID: st.Uid, GID: st.Gid, Ino: st.Ino, Links: uint32(st.Nlink), Blocks: st.Blocks}
	if st.Dev != d.dev {
		e.Links = 1
	}
	return e
}

// Entries is Source.Entries, in the order of the names.
func (d *Folder) Entries(ctx context.Context, p string, some func([]control.Entry) error) error {
	at, err := d.open(p, unix.O_RDONLY|unix.O_DIRECTORY, unix.S_IFDIR)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(at.fd), p)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	all := make([]control.Entry, 0, len(names))
	for _, name := range names {
		var st unix.Stat_t
		err := unix.Fstatat(at.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		var e *control.Entry
		if err == nil {
			e, err = d.linked(name, &st, at.fd, name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return &os.PathError{Op: "stat", Path: path.Join(p, name), Err: err}
		}
		all = append(all, *e)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return some(all)
}

// nonblock opens what may be a FIFO by now, which would wait.
const nonblock = unix.O_RDONLY | unix.O_NONBLOCK

// Bytes is Source.Bytes.
func (d *Folder) Bytes(ctx context.Context, p string, off int64) (*control.Stretch, error) {
	f, err := d.open(p, nonblock, unix.S_IFREG)
	if err != nil {
		return nil, err
	}
	if off == 0 {
		d.prepare(f.fd)
	}
	from, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
	if err == unix.ENXIO { // no data behind off
		return &control.Stretch{Off: max(off, f.Size), Last: true, ReadCloser: &stretch{fd: f.fd}}, nil
	}
	to := f.Size
	if err == nil {
		to, err = unix.Seek(f.fd, from, unix.SEEK_HOLE)
	}
	if err != nil {
		f.close()
		return nil, &os.PathError{Op: "seek", Path: p, Err: err}
	}
	r := &stretch{ctx: ctx, path: p, fd: f.fd, at: from, to: to}
	return &control.Stretch{Off: from, Size: to - from, Last: to == f.Size, ReadCloser: r}, nil
}

// prepare is called before a file is read from its beginning.
func (d *Folder) prepare(fd int) {
	if d.cold {
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
		return
	}
	// A program that has it mapped may go on to write to dirty pages, and the times do not tell. They tell
	// of writes to clean ones.
	_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|
		unix.SYNC_FILE_RANGE_WAIT_AFTER)
}

// stretch reads a part of a file until its context is over.
type stretch struct {
	ctx    context.Context
	path   string
	fd     int
	at, to int64
}

func (s *stretch) Read(p []byte) (int, error) {
	if s.at == s.to {
		return 0, io.EOF
	}
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := unix.Pread(s.fd, p[:min(int64(len(p)), s.to-s.at)], s.at)
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, &os.PathError{Op: "read", Path: s.path, Err: err}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.ErrUnexpectedEOF // cut meanwhile
	}
	s.at += int64(n)
	return n, nil
}

func (s *stretch) Close() error { return unix.Close(s.fd) }

// attributed is a Source that knows of extended attributes.
type attributed interface {
	Attributes(ctx context.Context, p string) ([]control.Attribute, error)
}

// copied reports whether an attribute is one of those that are copied: a user's, or an administrator's, which
// the kernel shows to no other.
func copied(name string) bool {
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.")
}

// Attributes are those of a file or folder: user.* and trusted.*, and without values others that say who may
// do what, which a mount has not.
func (d *Folder) Attributes(_ context.Context, p string) (all []control.Attribute, err error) {
	f, err := d.openAny(p)
	if err != nil {
		return nil, err
	}
	defer f.close()
	names, err := attributeNames(f.fd)
	if err != nil {
		return nil, &os.PathError{Op: "list the attributes of", Path: p, Err: err}
	}
	for _, name := range names {
		a := control.Attribute{Name: control.Name(name)}
		switch {
		case strings.HasPrefix(name, "system.posix_acl_"), name == "security.capability":
		case !copied(name), d.own != "" && strings.HasPrefix(name, d.own):
			continue
		default:
			value := make([]byte, mostAttributes)
			n, err := unix.Fgetxattr(f.fd, name, value)
			if err == unix.ENODATA {
				continue // gone meanwhile
			}
			if err != nil {
				return nil, &os.PathError{Op: "read attribute " + name + " of", Path: p, Err: err}
			}
			a.Value = bytes.Clone(value[:n])
		}
		all = append(all, a)
	}
	return all, nil
}

// openAny opens a file or a folder.
func (d *Folder) openAny(p string) (*opened, error) {
	f, err := d.open(p, nonblock, unix.S_IFREG)
	if errors.Is(err, errChanged) {
		return d.open(p, unix.O_RDONLY|unix.O_DIRECTORY, unix.S_IFDIR)
	}
	return f, err
}

// mostAttributes is the kernel's bound on a value, and on all names of a file.
const mostAttributes = 64 << 10

func attributeNames(fd int) ([]string, error) {
	n, err := unix.Flistxattr(fd, nil)
	if err == unix.EOPNOTSUPP || n == 0 && err == nil {
		return nil, nil
	}
	b := make([]byte, mostAttributes)
	if err == nil {
		n, err = unix.Flistxattr(fd, b)
	}
	if err != nil || n == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b[:n]), "\x00"), "\x00"), nil
}
