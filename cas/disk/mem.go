package disk

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// Mem is a filesystem in memory. Beside the live tree it keeps what a crash is sure to leave: of each file
// the bytes that were synced, of the tree the names whose directory was synced. See CrashClone and Inject.
type Mem struct {
	mu      sync.Mutex
	live    tree
	durable tree
	names   []nameOp // changes of names that no SyncDir has covered yet, oldest first
	ops     int
	inject  func(Op) *Fault
}

// A tree has one entry for each name; the value of a directory is nil.
type tree map[string]*inode

// inode: what the file holds, what of it is durable, and the writes that lie between the two.
type inode struct {
	data    []byte
	durable []byte
	pending []dataOp
}

// A dataOp is a write of p at off, or, when p is nil, a change of size to off.
type dataOp struct {
	off int64
	p   []byte
}

// A nameOp is one change of names, atomic: names in gone go, then those in set appear.
type nameOp struct {
	dirs []string
	gone []string
	set  tree
}

// NewMem returns an empty filesystem, which holds "/" and ".".
func NewMem() *Mem {
	return &Mem{
		live:    tree{"/": nil, ".": nil},
		durable: tree{"/": nil, ".": nil},
	}
}

func (m *Mem) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if f := m.stepLocked(OpOpen, name, 0, 0); f != nil {
		return nil, pathError("open", name, f.Err)
	}
	n, ok := m.live[name]
	switch {
	case ok && n == nil:
		return nil, pathError("open", name, syscall.EISDIR)
	case ok && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, syscall.EEXIST)
	case !ok && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, syscall.ENOENT)
	case !ok:
		if err := m.needDirLocked(path.Dir(name)); err != nil {
			return nil, pathError("open", name, err)
		}
		n = &inode{}
		m.renameLocked(nil, tree{name: n})
	case flag&os.O_TRUNC != 0:
		n.apply(dataOp{off: 0})
	}
	return &memFile{m: m, n: n, name: name, write: flag&(os.O_WRONLY|os.O_RDWR) != 0}, nil
}

func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldname, newname = filepath.Clean(oldname), filepath.Clean(newname)
	if f := m.stepLocked(OpRename, oldname, 0, 0); f != nil {
		return pathError("rename", oldname, f.Err)
	}
	n, ok := m.live[oldname]
	if !ok {
		return pathError("rename", oldname, syscall.ENOENT)
	}
	if n == nil {
		return pathError("rename", oldname, syscall.ENOTSUP) // directories: the store renames none
	}
	if err := m.needDirLocked(path.Dir(newname)); err != nil {
		return pathError("rename", newname, err)
	}
	if over, ok := m.live[newname]; ok && over == nil {
		return pathError("rename", newname, syscall.EISDIR)
	}
	if oldname != newname {
		m.renameLocked([]string{oldname}, tree{newname: n})
	}
	return nil
}

func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if f := m.stepLocked(OpRemove, name, 0, 0); f != nil {
		return pathError("remove", name, f.Err)
	}
	n, ok := m.live[name]
	if !ok {
		return pathError("remove", name, syscall.ENOENT)
	}
	if n == nil && len(m.listLocked(name)) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.renameLocked([]string{name}, nil)
	return nil
}

func (m *Mem) MkdirAll(name string, perm os.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if f := m.stepLocked(OpMkdir, name, 0, 0); f != nil {
		return pathError("mkdir", name, f.Err)
	}
	var missing []string
	for p := name; ; p = path.Dir(p) {
		if n, ok := m.live[p]; ok {
			if n != nil {
				return pathError("mkdir", p, syscall.ENOTDIR)
			}
			break
		}
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		m.renameLocked(nil, tree{p: nil})
	}
	return nil
}

func (m *Mem) ReadDir(name string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if f := m.stepLocked(OpReadDir, name, 0, 0); f != nil {
		return nil, pathError("readdir", name, f.Err)
	}
	if err := m.needDirLocked(name); err != nil {
		return nil, pathError("readdir", name, err)
	}
	return m.listLocked(name), nil
}

func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if f := m.stepLocked(OpSyncDir, name, 0, 0); f != nil {
		return pathError("sync", name, f.Err)
	}
	if err := m.needDirLocked(name); err != nil {
		return pathError("sync", name, err)
	}
	rest := m.names[:0]
	for _, op := range m.names {
		if slices.Contains(op.dirs, name) {
			op.apply(m.durable)
		} else {
			rest = append(rest, op)
		}
	}
	clear(m.names[len(rest):])
	m.names = rest
	return nil
}

// String lists the live names and sizes, for test failures.
func (m *Mem) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s string
	for _, name := range slices.Sorted(maps.Keys(m.live)) {
		if n := m.live[name]; n != nil {
			s += fmt.Sprintf("%s %d bytes, %d durable, %d writes pending\n", name, len(n.data),
				len(n.durable), len(n.pending))
		}
	}
	return s
}

func (m *Mem) needDirLocked(name string) error {
	n, ok := m.live[name]
	if !ok {
		return syscall.ENOENT
	}
	if n != nil {
		return syscall.ENOTDIR
	}
	return nil
}

func (m *Mem) listLocked(dir string) []string {
	names := []string{}
	for p := range m.live {
		if path.Dir(p) == dir && p != dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

func (m *Mem) renameLocked(gone []string, set tree) {
	op := nameOp{gone: gone, set: set}
	for _, p := range gone {
		op.dirs = append(op.dirs, path.Dir(p))
	}
	for p := range set {
		op.dirs = append(op.dirs, path.Dir(p))
	}
	op.apply(m.live)
	m.names = append(m.names, op)
}

func (op nameOp) apply(t tree) {
	for _, p := range op.gone {
		delete(t, p)
	}
	maps.Copy(t, op.set)
}

func (n *inode) apply(op dataOp) {
	n.data = op.apply(n.data)
	n.pending = append(n.pending, op)
}

func (op dataOp) apply(data []byte) []byte {
	if op.p == nil {
		return resize(data, op.off)
	}
	if end := op.off + int64(len(op.p)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[op.off:], op.p)
	return data
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		clear(data[size:])
		return data[:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}
