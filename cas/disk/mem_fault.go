package disk

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"slices"
)

// ErrCrashed is what every operation after a crash returns; see CrashAfter.
var ErrCrashed = errors.New("the machine has crashed")

// OpKind says what an operation on a Mem does.
type OpKind int

const (
	OpOpen OpKind = iota
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpPunch
	OpRename
	OpRemove
	OpMkdir
	OpReadDir
	OpSyncDir
)

func (k OpKind) String() string {
	return [...]string{"open", "read", "write", "sync", "truncate", "punch", "rename", "remove", "mkdir",
		"readdir", "syncdir"}[k]
}

// Op is one operation on a Mem, about to be done.
type Op struct {
	N    int // counts from 0 over all operations since NewMem or CrashClone
	Kind OpKind
	Name string
	Off  int64 // of a read, write or punch; the new size of a truncate
	Len  int64
}

// Fault is how an operation fails.
type Fault struct {
	Err   error
	Short int // of a write: bytes that are put down before it fails
}

// Inject has f asked before each operation; the operation fails with what f returns unless that is nil. f
// runs under the Mem's lock and must not call it. A nil f ends it.
func (m *Mem) Inject(f func(Op) *Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inject = f
}

// FailAt lets operation n fail with err, a write after half of its bytes.
func FailAt(n int, err error) func(Op) *Fault {
	return func(op Op) *Fault {
		if op.N != n {
			return nil
		}
		return &Fault{Err: err, Short: int(op.Len / 2)}
	}
}

// CrashAfter lets the first n operations through and fails all later ones with ErrCrashed, so that nothing
// reaches the disk any more. Take the CrashClone then.
func CrashAfter(n int) func(Op) *Fault {
	return func(op Op) *Fault {
		if op.N < n {
			return nil
		}
		return &Fault{Err: ErrCrashed}
	}
}

// Ops counts the operations so far.
func (m *Mem) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// stepLocked counts an operation and asks whether it is to fail.
func (m *Mem) stepLocked(kind OpKind, name string, off, n int64) *Fault {
	op := Op{N: m.ops, Kind: kind, Name: name, Off: off, Len: n}
	m.ops++
	if m.inject == nil {
		return nil
	}
	return m.inject(op)
}

// sector is what a disk writes at once: a torn write ends on a multiple of it.
const sector = 512

// CrashClone returns the filesystem as a crash at this moment may leave it, without injection and independent
// of m. With a nil rng that is the least: what was synced. Otherwise each write that was not synced is kept,
// lost or torn at random, and of the unsynced changes of names some prefix is kept, as a journal does.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := make(tree, len(m.durable))
	for name, n := range m.durable {
		t[name] = n
	}
	if rng != nil {
		for _, op := range m.names[:rng.IntN(len(m.names)+1)] {
			op.apply(t)
		}
	}
	c := NewMem()
	// In order of names: the same seed gives the same crash.
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names { // parents before their children
		n := t[name]
		if d, ok := c.live[path.Dir(name)]; !ok || d != nil {
			continue // in a directory that is gone
		}
		if n != nil {
			data := n.crash(rng)
			n = &inode{data: data, durable: bytes.Clone(data)}
		}
		c.live[name], c.durable[name] = n, n
	}
	return c
}

func (n *inode) crash(rng *rand.Rand) []byte {
	data := bytes.Clone(n.durable)
	if rng == nil {
		return data
	}
	for _, op := range n.pending {
		switch rng.IntN(3) {
		case 0:
		case 1:
			data = op.apply(data)
		case 2:
			if len(op.p) == 0 {
				continue
			}
			cut := (op.off+rng.Int64N(int64(len(op.p))))/sector*sector - op.off
			if cut > 0 {
				data = dataOp{off: op.off, p: op.p[:cut]}.apply(data)
			}
		}
	}
	return data
}
