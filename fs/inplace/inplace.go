// Package inplace makes a folder the tree of a store, and the tree of a store a plain folder again, without
// copying a byte.
//
//	adopt      DIR, full   ◀──▶  STORE/tree, empty
//	leave      DIR, empty  ◀──▶  STORE/tree, full
//
// Both are the same step: two folders of one filesystem change places, by renameat2(2) with RENAME_EXCHANGE.
// The kernel does that in one step, for every program and for the disk: the journal of a filesystem has it
// whole or not at all. So at each moment, and after each crash, the full folder is whole, in one of two
// places.
//
// # States
//
// The file STORE/moving says which folder is about to move, by inode number and time of birth: these stay as
// they are. What was done is not written down, but seen by where that inode is.
//
//	moving   the inode is at     state
//	no                           nothing is under way
//	yes      the place it has    begun: nothing has moved
//	yes      the other place     moved: the rename may not be durable yet
//
// # Order of writes
//
//	step                                                           a crash after it leaves
//	adopt 1  STORE is a store with an empty tree; it and its name   DIR as it was, and an empty store
//	         are synced
//	      2  moving is written and synced, and so is its name       begun
//	      3  the folders change places                              begun or moved
//	      4  the moved folder, DIR's parent and STORE are synced    moved
//	      5  STORE is mounted on DIR                                moved
//	      6  moving is removed, and STORE is synced                 a store that is mounted, or was
//
//	leave 1  as 2 of adopt; then STORE is unmounted                 begun
//	      2  every file is made plain (package volume, Leave)       begun, with fewer packed files
//	      3  the store's attributes go, and the filesystem is       begun, without packed files
//	         synced
//	      4  as 3 and 4 of adopt                                    begun or moved
//	      5  moving is removed, and STORE is synced                 a plain folder, and a store without files
//
// Each step may be repeated, so the next run goes through all of them again and does what is left. If a mount
// fails after step 3 of adopt, the folders change places once more (Back), and moving goes. A mount of a
// store with the file moving is one like any other.
//
// A folder that comes from another disk is copied first, and kept: see Arriving.
//
// # What a program does meanwhile
//
// What is open stays open: no inode changes. Until DIR is mounted a program may find the empty folder there.
// Root avoids that: the mount is made on the empty folder first, and comes with it (SwapMounted). Elsewhere
// what a program made in the empty folder is gathered into the full one before the store is opened (Gather).
// So it is after the tree has left a store. Of a name that both have, both files are kept, and the journal says
// as what.
package inplace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/fs/tree"
)

// JournalFile is the name of the journal in a store's folder.
const JournalFile = "moving"

// The two ways that a folder moves.
const (
	Adopt = "adopt"
	Leave = "leave"
)

// Move is what the journal says: the folder that moves, from Dir to the store's tree (Adopt) or back (Leave).
type Move struct {
	Way  string `json:"way"`
	Dir  Path   `json:"dir"` // absolute
	Ino  uint64 `json:"ino"`
	Born int64  `json:"born,omitempty"` // nanoseconds since 1970; 0 where the filesystem does not tell

	// Begun is when the journal was written, by the clock of the filesystems' time stamps. What is in the
	// empty folder and was not changed since then was covered by a mount.
	Begun int64 `json:"begun,omitempty"`
	// Opened is when the store was opened last before its tree left it. 0: that was not about to happen.
	Opened int64 `json:"opened,omitempty"`

	Kept     []Kept `json:"kept,omitempty"`
	MoreKept int64  `json:"more_kept,omitempty"`
}

func (m *Move) write(store *disk.Folder) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return tree.WriteSynced(store, JournalFile, b)
}

// Path is a path as JSON has it: any byte may be in it, quoted as in Go.
type Path string

func (p Path) MarshalText() ([]byte, error) {
	quoted := strconv.Quote(string(p))
	return []byte(quoted[1 : len(quoted)-1]), nil
}

func (p *Path) UnmarshalText(b []byte) error {
	s, err := strconv.Unquote(`"` + string(b) + `"`)
	*p = Path(s)
	return err
}

// inode tells a folder from every other one of its filesystem.
type inode struct {
	ino  uint64
	born int64
}

// inodeAt is the inode of a name in an open folder, and its device: those of what is mounted there, if
// something is.
func inodeAt(dir int, name string) (i inode, dev uint64, err error) {
	var st unix.Statx_t
	err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
		unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st)
	if err != nil {
		return i, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return i, 0, unix.ENOTDIR
	}
	i.ino = st.Ino
	if st.Mask&unix.STATX_BTIME != 0 {
		i.born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return i, unix.Mkdev(st.Dev_major, st.Dev_minor), nil
}

// Pair is a folder and a store's tree that change places. Both are reached from their parents, which are
// opened once.
type Pair struct {
	store  *disk.Folder
	parent *os.File // of dir
	dir    string
	base   string
}

// NewPair opens the parent of dir, which is absolute and need not exist. The store's folder stays the
// caller's.
func NewPair(store *disk.Folder, dir string) (*Pair, error) {
	parent, err := os.OpenFile(filepath.Dir(dir), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Pair{store: store, parent: parent, dir: dir, base: filepath.Base(dir)}, nil
}

// Store is the store's folder.
func (p *Pair) Store() *disk.Folder { return p.store }

// Close gives the parent back.
func (p *Pair) Close() error { return p.parent.Close() }

// inodeOfDir is the inode of the folder, and its device.
func (p *Pair) inodeOfDir() (i inode, dev uint64, err error) {
	if i, dev, err = inodeAt(int(p.parent.Fd()), p.base); err != nil {
		err = &os.PathError{Op: "look at", Path: p.dir, Err: err}
	}
	return i, dev, err
}

// inodeOfTree is the inode of the tree, and its device.
func (p *Pair) inodeOfTree() (i inode, dev uint64, err error) {
	root, err := p.store.OpenDir(".")
	if err != nil {
		return i, 0, err
	}
	defer root.Close()
	if i, dev, err = inodeAt(int(root.Fd()), tree.TreeDir); err != nil {
		err = &os.PathError{Op: "look at", Path: p.store.Join(tree.TreeDir), Err: err}
	}
	return i, dev, err
}

// ErrElsewhere: the folder and the store are on different filesystems.
var ErrElsewhere = errors.New("on different filesystems")

// ErrOther: the journal names a folder that is in neither place.
var ErrOther = errors.New("another folder is there than the one that was about to move")

// Begin writes the journal of a move of what is there now: step 2. The folder that a tree leaves to need not
// be there yet, or may be a mountpoint.
func (p *Pair) Begin(way string) (*Move, error) {
	full, there, err := p.inodeOfTree()
	if err != nil {
		return nil, err
	}
	if way == Adopt {
		dir, dev, err := p.inodeOfDir()
		if err != nil {
			return nil, err
		}
		if dev != there {
			return nil, fmt.Errorf("%s and %s: %w", p.dir, p.store.Path(), ErrElsewhere)
		}
		full = dir
		p.mark()
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return nil, os.NewSyscallError("clock_gettime", err)
	}
	m := &Move{Way: way, Dir: Path(p.dir), Ino: full.ino, Born: full.born, Begun: now.Nano()}
	return m, m.write(p.store)
}

// Opens writes into the journal of a tree that leaves when the store was opened for that, as the lock has it.
// Nobody else has it open until the tree has left.
func (p *Pair) Opens(m *Move, at time.Time) error {
	m.Opened = at.UnixNano()
	return m.write(p.store)
}

// Moved reports whether the folder of the journal is where it was about to go.
func (p *Pair) Moved(m *Move) (bool, error) {
	is := inode{m.Ino, m.Born}
	tr, _, err := p.inodeOfTree()
	if err != nil || tr == is {
		return m.Way == Adopt, err
	}
	dir, _, err := p.inodeOfDir()
	if err != nil || dir == is {
		return m.Way == Leave, err
	}
	return false, fmt.Errorf("%s: %w", p.dir, ErrOther)
}

// Swap has the two folders change places. It is durable after Settle.
func (p *Pair) Swap() error {
	root, err := p.store.OpenDir(".")
	if err != nil {
		return err
	}
	defer root.Close()
	return p.swap(int(root.Fd()))
}

func (p *Pair) swap(root int) error {
	err := unix.Renameat2(int(p.parent.Fd()), p.base, root, tree.TreeDir, unix.RENAME_EXCHANGE)
	switch err {
	case nil:
		return nil
	case unix.EXDEV:
		err = ErrElsewhere
	case unix.EACCES, unix.EPERM:
		err = fmt.Errorf("%w: it, and the folder that it lies in, have to be yours to write (chmod u+w)", err)
	case unix.EINVAL:
		err = fmt.Errorf("this filesystem cannot have two folders change places: %w", err)
	}
	return &os.LinkError{Op: "exchange", Old: p.dir, New: p.store.Join(tree.TreeDir), Err: err}
}

// Settle makes the swap durable: of both folders' parents, and of the one that moved this way, which names its
// parent. It does not touch what is mounted on the empty one.
func (p *Pair) Settle(way string) error {
	return errors.Join(p.parent.Sync(), p.store.SyncDir("."), p.settleMoved(way))
}

func (p *Pair) settleMoved(way string) error {
	if way == Adopt {
		return p.store.SyncDir(tree.TreeDir)
	}
	dir, err := p.Open()
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Open opens the folder to list it. The last name may not be a symbolic link.
func (p *Pair) Open() (*os.File, error) { return openBelow(p.parent, p.base) }

// openBelow opens a folder in another one, and no symbolic link to one.
func openBelow(dir *os.File, name string) (*os.File, error) {
	at := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name,
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: at, Err: err}
	}
	return os.NewFile(uintptr(fd), at), nil
}

// Exchange is Swap and Settle of a folder that moves this way, and Gather of what programs made in the empty
// one before.
func (p *Pair) Exchange(way string) error {
	dir, err := p.Open()
	if err != nil {
		return err
	}
	defer dir.Close()
	tr, err := p.store.OpenDir(tree.TreeDir)
	if err != nil {
		return err
	}
	defer tr.Close()
	if err := p.Swap(); err != nil {
		return err
	}
	full, empty := dir, tr
	if way == Leave {
		full, empty = tr, dir
	}
	return errors.Join(p.gather(empty, full), p.Settle(way))
}

// Follow is the end of Exchange for a tree that has left a store: what was made in the empty folder moves after
// it.
func (p *Pair) Follow() error {
	full, err := p.Open()
	if err != nil {
		return err
	}
	defer full.Close()
	empty, err := p.store.OpenDir(tree.TreeDir)
	if err != nil {
		return err
	}
	defer empty.Close()
	return errors.Join(p.gather(empty, full), p.Settle(Leave))
}

// Back undoes the move of a folder into a store, of which no file was evicted yet: the folder is where it was,
// and the journal is gone. Nothing is mounted. The journal that it returns names what was kept.
func Back(ctx context.Context, store *disk.Folder, m *Move) (_ *Move, err error) {
	lock, err := tree.Acquire(store, time.Now()) // nobody opens it meanwhile
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Return()) }()
	p, err := NewPair(store, string(m.Dir))
	if err != nil {
		return nil, err
	}
	defer p.Close()
	moved, err := p.Moved(m)
	if err == nil && moved {
		if err = Strip(ctx, store, tree.TreeDir, Adopt, nil); err == nil {
			err = p.Exchange(Leave)
		}
	}
	if err != nil {
		return nil, err
	}
	if m, err = Read(store); err != nil {
		return nil, err
	}
	return m, End(store)
}

// End removes the journal, which must not be done before Settle.
func End(store *disk.Folder) error {
	if err := store.Remove(JournalFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return store.SyncDir(".")
}

// Read reads the journal; nil when there is none. One that cannot be read was never durable whole: it is
// renamed to its name after it was synced. So that is damage.
func Read(store *disk.Folder) (*Move, error) {
	f, err := store.Open(JournalFile, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var m Move
	err = json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(&m)
	if err == nil && (m.Way != Adopt && m.Way != Leave || !filepath.IsAbs(string(m.Dir))) {
		err = errors.New("it names no move")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", store.Join(JournalFile), err, cas.ErrCorrupt)
	}
	return &m, nil
}
