package takeout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	root *os.Root
	dev  uint64 // of the folder: inode numbers of others say nothing
	own  string // attributes whose names begin so are not told; "": all are
	cold bool   // bytes are read from the disk, also those that memory has
}

// NewFolder is the Source of a folder, which stays the caller's. It does not tell of attributes whose names
// begin with own.
func NewFolder(root *os.Root, own string) (*Folder, error) {
	var st unix.Stat_t
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: root.Name(), Err: err}
	}
	return &Folder{root: root, dev: st.Dev, own: own}, nil
}

// Cold is the same folder, whose bytes are read from the disk. What is not synced comes from memory still.
func (d *Folder) Cold() *Folder {
	cold := *d
	cold.cold = true
	return &cold
}

// local is a path as os.Root has it.
func local(p string) string { return path.Join(".", p) }

// open opens what has a name now, if it is of a kind.
func (d *Folder) open(p string, kind uint32) (*os.File, *unix.Stat_t, error) {
	p = local(p)
	f, err := d.root.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // a FIFO would wait
	if err != nil {
		return nil, nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && st.Mode&unix.S_IFMT != kind {
		err = errChanged
	}
	if err != nil {
		f.Close()
		return nil, nil, &os.PathError{Op: "open", Path: p, Err: err}
	}
	return f, &st, nil
}

// Entry is Source.Entry.
func (d *Folder) Entry(ctx context.Context, p string) (*control.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p = local(p)
	if p == "." {
		f, st, err := d.open(p, unix.S_IFDIR)
		if err != nil {
			return nil, err
		}
		f.Close()
		return d.entry(p, st), nil
	}
	up, _, err := d.open(path.Dir(p), unix.S_IFDIR)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	e, err := d.entryAt(up, path.Base(p))
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: p, Err: err}
	}
	return e, nil
}

func (d *Folder) entryAt(up *os.File, name string) (*control.Entry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(up.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	e := d.entry(name, &st)
	if kindOf(e) != unix.S_IFLNK {
		return e, nil
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(up.Fd()), name, target)
	e.Target = control.Name(target[:max(n, 0)])
	return e, err
}

func (d *Folder) entry(name string, st *unix.Stat_t) *control.Entry {
	e := &control.Entry{Name: control.Name(name), Mode: st.Mode, Size: st.Size,
		Mtime: time.Unix(st.Mtim.Unix()), Ctime: time.Unix(st.Ctim.Unix()),
		UID: st.Uid, GID: st.Gid, Ino: st.Ino, Links: uint32(st.Nlink)}
	if st.Dev != d.dev {
		e.Links = 1
	}
	return e
}

// Entries is Source.Entries, in the order of the names.
func (d *Folder) Entries(ctx context.Context, p string, some func([]control.Entry) error) error {
	dir, _, err := d.open(p, unix.S_IFDIR)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	all := make([]control.Entry, 0, len(names))
	for _, name := range names {
		e, err := d.entryAt(dir, name)
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

// Bytes is Source.Bytes.
func (d *Folder) Bytes(ctx context.Context, p string, off int64) (*control.Stretch, error) {
	f, st, err := d.open(p, unix.S_IFREG)
	if err != nil {
		return nil, err
	}
	if d.cold && off == 0 {
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	} else if off == 0 {
		// A program that has it mapped may go on to write to dirty pages, and the times do not tell. They
		// tell of writes to clean ones.
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|
			unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL)
	from, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	if err == unix.ENXIO { // no data behind off
		return &control.Stretch{Off: max(off, st.Size), ReadCloser: f}, nil
	}
	to := st.Size
	if err == nil {
		to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "seek", Path: p, Err: err}
	}
	r := &stretch{File: f, ctx: ctx, SectionReader: io.NewSectionReader(f, from, to-from)}
	return &control.Stretch{Off: from, Size: to - from, ReadCloser: r}, nil
}

// stretch reads a part of a file until its context is over.
type stretch struct {
	*os.File
	*io.SectionReader
	ctx context.Context
}

func (s *stretch) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.SectionReader.Read(p)
}

func (s *stretch) Close() error { return s.File.Close() }

// Attribute is an extended attribute of a file or a folder.
type Attribute struct {
	Name  string
	Value []byte
}

// attributed is a Source that knows of attributes: of those that are copied, and the names of others that say
// who may do what, which a mount has not.
type attributed interface {
	Attributes(p string) (has []Attribute, unserved []string, err error)
}

// Attributes are those of a file or folder.
func (d *Folder) Attributes(p string) (has []Attribute, unserved []string, err error) {
	f, err := d.root.OpenFile(local(p), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	names, err := attributeNames(f)
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "system.posix_acl_"), name == "security.capability":
			unserved = append(unserved, name)
		case !strings.HasPrefix(name, "user."), d.own != "" && strings.HasPrefix(name, d.own):
		default:
			value := make([]byte, mostAttributes)
			n, err := unix.Fgetxattr(int(f.Fd()), name, value)
			if err == unix.ENODATA {
				continue // gone meanwhile
			}
			if err != nil {
				return nil, nil, &os.PathError{Op: "read attribute " + name + " of", Path: p, Err: err}
			}
			has = append(has, Attribute{name, bytes.Clone(value[:n])})
		}
	}
	return has, unserved, err
}

// mostAttributes is the kernel's bound on a value, and on all names of a file.
const mostAttributes = 64 << 10

func attributeNames(f *os.File) ([]string, error) {
	b := make([]byte, mostAttributes)
	n, err := unix.Flistxattr(int(f.Fd()), b)
	if err == unix.EOPNOTSUPP || n <= 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the attributes of %s: %w", f.Name(), err)
	}
	return strings.Split(strings.TrimSuffix(string(b[:n]), "\x00"), "\x00"), nil
}
