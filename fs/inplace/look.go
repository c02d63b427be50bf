package inplace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/tree"
)

// mostNamed is how many files of each kind a Look names; it counts the others.
const mostNamed = 5

// Found is how many files there are of a kind, and the first of them.
type Found struct {
	N     int64    `json:"n"`
	Paths []string `json:"paths,omitempty"`
}

func (f *Found) add(path string) {
	if f.N++; len(f.Paths) < mostNamed {
		f.Paths = append(f.Paths, path)
	}
}

func (f Found) String() string {
	s := strings.Join(f.Paths, ", ")
	if more := f.N - int64(len(f.Paths)); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// Looked is what a folder holds that is about to become a store's tree.
type Looked struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	Room  int64 `json:"-"` // bytes that the disk keeps for the files, without holes

	Linked  Found `json:"linked"`  // files with further names outside of the folder
	Hollow  Found `json:"hollow"`  // files whose bytes another store has
	Stores  Found `json:"stores"`  // folders that are stores
	Own     Found `json:"own"`     // at the top: what a mount has itself by that name
	Foreign Found `json:"foreign"` // what the caller's daemon may not read, or not change the attributes of
	Marked  Found `json:"marked"`  // files and folders with attributes that a store left on them
	ACLs    Found `json:"acls"`    // what has attributes that do not work on a mount
	Pipes   Found `json:"pipes"`   // sockets and FIFOs: a program that has one open is not met by the next
}

// names of attributes that a mount does not serve; see docs/posix.md.
func unserved(name string) bool {
	return strings.HasPrefix(name, "system.posix_acl_") || strings.HasPrefix(name, "security.")
}

// marks are the store's own attributes of files and folders.
var marks = []string{tree.XattrName, record.ToldAttr}

// Report is told how many names were looked at; nil: nobody is.
type Report func(names int)

// counting counts the names of one look at a folder.
type counting struct {
	report Report
	names  int
}

func (c *counting) next() {
	if c.names++; c.report != nil && c.names%64 == 0 {
		c.report(c.names)
	}
}

// Look looks at everything in a folder, and changes nothing.
func Look(ctx context.Context, dir string, report Report) (*Looked, error) {
	l := &looker{out: &Looked{}, own: filepath.Join(dir, tree.OwnName), ctx: ctx, uid: os.Geteuid(), links: map[uint64]*linked{},
		counting: counting{report: report}}
	if err := filepath.WalkDir(dir, l.look); err != nil {
		return nil, err
	}
	for _, f := range l.links {
		var st unix.Stat_t // a program may have removed a name meanwhile
		if f.left > 0 && unix.Lstat(f.path, &st) == nil && st.Nlink > 1 {
			l.out.Linked.add(f.path)
		}
	}
	return l.out, nil
}

// linked is a file with several names.
type linked struct {
	path string
	left uint64 // names that were not met yet
}

type looker struct {
	out   *Looked
	own   string // the path of what a mount has itself
	ctx   context.Context
	uid   int
	links map[uint64]*linked
	attrs [64 << 10]byte // the kernel's bound
	counting
}

func (l *looker) look(path string, e fs.DirEntry, err error) error {
	if err == nil {
		err = l.ctx.Err()
	}
	if err != nil {
		return err
	}
	l.next()
	if path == l.own {
		l.out.Own.add(path)
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone meanwhile
	}
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	switch kind := info.Mode().Type(); kind {
	case 0:
		again := l.count(path, st)
		if again {
			return nil
		}
	case fs.ModeSymlink:
		return nil
	case fs.ModeSocket, fs.ModeNamedPipe:
		l.out.Pipes.add(path)
		return nil
	case fs.ModeDir:
		if isStore(path) {
			l.out.Stores.add(path)
		}
	}
	if l.uid != 0 && int(st.Uid) != l.uid {
		l.out.Foreign.add(path)
	}
	return l.attributes(path)
}

// count counts a regular file, once.
func (l *looker) count(path string, st *syscall.Stat_t) (again bool) {
	if st.Nlink > 1 {
		if f := l.links[st.Ino]; f != nil {
			f.left--
			return true
		}
		l.links[st.Ino] = &linked{path, uint64(st.Nlink) - 1}
	}
	l.out.Files++
	l.out.Bytes += st.Size
	l.out.Room += roomOf(st)
	return false
}

// roomOf is what the bytes of a file take. What a filesystem compresses takes less there than elsewhere, so it
// is a guess for that.
func roomOf(st *syscall.Stat_t) int64 {
	const block = 4096
	return min((st.Size+block-1)/block*block, st.Blocks*512)
}

// attributes looks at the extended attributes of a file or a folder.
func (l *looker) attributes(path string) error {
	switch n, err := unix.Llistxattr(path, l.attrs[:]); err {
	case nil:
		return l.named(path, l.attrs[:n])
	case unix.ENOENT, unix.EOPNOTSUPP:
		return nil
	default:
		return &fs.PathError{Op: "list the attributes of", Path: path, Err: err}
	}
}

// named looks at the names of attributes, each of which ends with a zero.
func (l *looker) named(path string, names []byte) error {
	acl, marked := false, false
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		acl = acl || unserved(name)
		marked = marked || name == marks[0] || name == marks[1]
	}
	if acl {
		l.out.ACLs.add(path)
	}
	if !marked {
		return nil
	}
	l.out.Marked.add(path)
	rec, err := tree.ReadRecord(path)
	if err == nil && rec.Hollow {
		l.out.Hollow.add(path)
	}
	return nil
}

// isStore reports whether a folder looks like a store.
func isStore(dir string) bool {
	for _, name := range []string{tree.FormatFile, tree.SegmentsDir, tree.TreeDir} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// Strip removes the store's attributes from everything in a folder of d that moves this way. The error wraps
// ErrPacked, and names the file, when one is packed: then its bytes may not be there. A file that moves into a
// store may have the record of another one, as long as its bytes are there.
func Strip(ctx context.Context, d *disk.Folder, name, way string, report Report) error {
	top, err := d.Sub(name)
	if err != nil {
		return err
	}
	defer top.Close()
	c := counting{report: report}
	return top.Walk(".", func(path string, e fs.DirEntry, err error) error {
		c.next()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if !e.IsDir() && !e.Type().IsRegular() {
			return nil
		}
		return strip(top, path, way)
	})
}

// ErrPacked: a file is packed still.
var ErrPacked = errors.New("it is packed")

func strip(top *disk.Folder, path, way string) error {
	at := top.Here() // reached in two steps, since a name on the way may be a link by now
	if path != "." {
		dir, err := top.Sub(filepath.Dir(path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		defer dir.Close()
		at = filepath.Join(dir.Here(), filepath.Base(path))
	}
	switch rec, err := tree.ReadRecord(at); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !errors.Is(err, tree.ErrNoRecord):
		return &fs.PathError{Op: "read the record of", Path: top.Join(path), Err: err}
	case rec.Hollow, rec.Packed() && way == Leave:
		return &fs.PathError{Op: "strip", Path: top.Join(path), Err: ErrPacked}
	}
	of := marks
	if path == "." {
		of = append(slices.Clip(of), storeXattr)
	}
	for _, mark := range of {
		if err := unmark(at, path == ".", mark); err != nil {
			return &fs.PathError{Op: "remove an attribute of", Path: top.Join(path), Err: err}
		}
	}
	return nil
}

// unmark removes an attribute that may be there: the kernel refuses to remove any from a file that nobody may
// change, also one that it does not have.
func unmark(at string, follow bool, mark string) error {
	remove := unix.Lremovexattr
	if follow {
		remove = unix.Removexattr
	}
	err := remove(at, mark)
	if err == unix.EACCES || err == unix.EPERM {
		if has, lerr := marked(at, follow, mark); lerr != nil || !has {
			return lerr
		}
	}
	if err == unix.EACCES {
		err = tree.WithOwnerBits(at, func() error { return remove(at, mark) })
	}
	switch err {
	case unix.ENODATA, unix.EOPNOTSUPP, unix.ENOENT:
		return nil
	}
	return err
}

// marked reports whether a file has an attribute, which anybody may ask.
func marked(at string, follow bool, mark string) (bool, error) {
	list := unix.Llistxattr
	if follow {
		list = unix.Listxattr
	}
	names := make([]byte, 64<<10) // the kernel's bound
	n, err := list(at, names)
	if err != nil {
		return false, err
	}
	return slices.Contains(strings.Split(string(names[:n]), "\x00"), mark), nil
}

// Need is what making the files of a store's tree plain takes.
type Need struct {
	Files  int64 // that are hydrated
	Bytes  int64 // of these, that are not in the tree now
	Packed int64 // the sizes of all packed files
}

// Needed counts it.
func Needed(ctx context.Context, store *disk.Folder, report Report) (n Need, err error) {
	top, err := store.Sub(tree.TreeDir)
	if err != nil {
		return n, err
	}
	defer top.Close()
	seen := map[uint64]bool{}
	c := counting{report: report}
	err = filepath.WalkDir(top.Here()+"/", func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		c.next()
		rec, err := tree.ReadRecord(path)
		if err != nil || !rec.Packed() {
			return nil // hydrating it says what is wrong with it
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Nlink > 1 && seen[st.Ino] {
			return nil
		}
		if st.Nlink > 1 {
			seen[st.Ino] = true
		}
		if n.Packed += st.Size; rec.Hollow {
			n.Files++
			n.Bytes += max(0, st.Size-st.Blocks*512)
		}
		return nil
	})
	return n, err
}
