package queue

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
	"ckptfs/fs/assemble"
	"ckptfs/fs/content"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
	"ckptfs/index/chunks"
)

// patience bounds every wait of a test for something that happens in the background.
const patience = 20 * time.Second

var id = [16]byte{7}

// rig is a queue that nothing is packed from before Start, over a store in memory and the files of a folder.
type rig struct {
	t *testing.T
	*Queue
	files *content.Files
	mem   *disk.Mem // of the store
	dir   string
	known map[string]*inode

	mu    sync.Mutex
	lines []string // that were reported
}

func newRig(t *testing.T, set ...func(*Options)) *rig {
	t.Helper()
	db, err := chunks.Open(filepath.Join(t.TempDir(), "index.db"), chunks.Options{StoreID: id, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	mem := disk.NewMem()
	st, err := store.Open(mem, "/s/segments", id, db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	room, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { room.Close() })
	asm := assemble.New(st, assemble.Options{CacheBytes: 8 << 20})
	r := &rig{t: t, mem: mem, dir: dir, known: map[string]*inode{}}
	p := pack.New(st, pack.Options{})
	r.files = content.New(content.Parts{
		ID: id, Store: st, Assemble: asm, Pack: p, Epoch: func() uint32 { return 1 }, Now: time.Now,
		Report: r.report, Events: events{r},
	})
	o := Options{
		MaxUnpacked: -1, Store: st, Pack: p, Reserve: NewReserve(room, nil, r.report), Now: time.Now,
		Report: r.report, Count: &r.files.Count, Failed: func() {},
		Keep: func(*pack.Result) {}, Stored: func(*content.File) {},
	}
	for _, f := range set {
		f(&o)
	}
	r.Queue = New(o)
	t.Cleanup(func() {
		r.Stop()
		for name, n := range r.known {
			if pins := n.pins.Load(); pins != 0 {
				t.Errorf("%s is pinned %d times at the end", name, pins)
			}
		}
		asm.Close()
		st.Close()
		db.Close()
		if t.Failed() && len(r.lines) > 0 {
			t.Logf("reported:\n%s", strings.Join(r.lines, ""))
		}
	})
	return r
}

func maxUnpacked(n int64) func(*Options) { return func(o *Options) { o.MaxUnpacked = n } }

func (r *rig) report(level slog.Level, msg string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(level, " ", msg, " ", fmt.Sprintln(args...)))
}

func (r *rig) reported(words string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.Join(r.lines, ""), words)
}

// file is the file of a name, which is made if it is not there.
func (r *rig) file(name string) *content.File {
	r.t.Helper()
	if n := r.known[name]; n != nil {
		return n.file
	}
	n := &inode{root: r.dir, name: name}
	err := errors.Join(os.MkdirAll(filepath.Dir(n.at()), 0o700), os.WriteFile(n.at(), nil, 0o600))
	if err == nil {
		err = tree.WriteRecord(n.at(), &tree.Record{Literal: true})
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		r.t.Skip("the temporary folder keeps no attributes")
	}
	if err = errors.Join(err, tree.WriteRecord(n.at(), &tree.Record{})); err != nil {
		r.t.Fatal(err)
	}
	n.file = content.NewFile(r.files, n)
	r.known[name] = n
	return n.file
}

// open opens a file for writing.
func (r *rig) open(name string) *content.Handle {
	r.t.Helper()
	h, err := r.file(name).Open(unix.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// write writes a file and closes it.
func (r *rig) write(name string, data []byte) {
	r.t.Helper()
	h := r.open(name)
	defer h.Release()
	if _, err := h.Write(data, 0); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) packed(name string) bool {
	f := r.file(name)
	f.Lock()
	defer f.Unlock()
	is := f.StateLocked()
	return is.Record.Packed()
}

// stage is how far a file is; ok is false of one that does not wait.
func (r *rig) stage(name string) (s Stage, ok bool) {
	for f, stage := range r.Pending() {
		if f == r.file(name) {
			s, ok = stage, true
		}
		f.Unpin()
	}
	return s, ok
}

// eventually waits until cond holds.
func (r *rig) eventually(what string, cond func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed)})
	rng.Read(b)
	return b
}

// errNoFile is why an inode that is broken cannot be opened.
var errNoFile = errors.New("too many open files")

// inode is a file of the host.
type inode struct {
	content.Inode // what nobody asks for
	root, name    string
	file          *content.File
	pins          atomic.Int64
	gone          atomic.Bool
	broken        atomic.Bool // it cannot be opened
}

func (n *inode) at() string         { return filepath.Join(n.root, n.name) }
func (n *inode) ID() content.NodeID { return 2 }
func (n *inode) Ino() uint64        { return 2 }
func (n *inode) Path() string       { return n.name }
func (n *inode) Dead() bool         { return n.gone.Load() }
func (n *inode) Open(flags int) (*os.File, error) {
	if n.broken.Load() {
		return nil, errNoFile
	}
	return os.OpenFile(n.at(), flags, 0)
}
func (n *inode) Stat(st *unix.Stat_t) error         { return unix.Stat(n.at(), st) }
func (n *inode) ReadRecord() (tree.Record, error)   { return tree.ReadRecord(n.at()) }
func (n *inode) WriteRecord(rec *tree.Record) error { return tree.WriteRecord(n.at(), rec) }
func (n *inode) Changes(uint64)                     {}
func (n *inode) Pin()                               { n.pins.Add(1) }
func (n *inode) Unpin()                             { n.pins.Add(-1) }

func (n *inode) OpenBeside(path string, flags int) (*os.File, error) {
	return os.OpenFile(filepath.Join(n.root, path), flags, 0)
}

// events passes on what becomes of files, as a volume does.
type events struct{ r *rig }

func (e events) Dirty(f *content.File)           { e.r.Add(f) }
func (e events) Plain(f *content.File)           { e.r.NotePlain(f) }
func (e events) Packed(*content.File)            { e.r.NotePacked() }
func (events) Writing(*content.File)             {}
func (events) Written(*content.File, bool)       {}
func (events) Unpacked(*content.File, cas.Hash)  {}
func (events) Resident(*content.File, int64)     {}
func (events) Opened(*content.File, int)         {}
func (events) Closed(*content.File, int64)       {}
func (events) Idle(*content.File)                {}
func (e events) Lost(f *content.File, err error) { e.r.Lost(f, err) }
func (events) Unsummed(*content.File)            {}
func (events) Unsynced(*content.File)            {}
