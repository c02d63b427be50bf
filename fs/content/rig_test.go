package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
	"ckptfs/index/chunks"
)

var id = [16]byte{7}

// rig is the files of a folder over a store in memory. Nothing runs in the background.
type rig struct {
	t *testing.T
	*Files
	dir    string
	known  map[string]*inode
	kernel *kernel
	events *recorder
	disk   *writeback

	mu    sync.Mutex
	lines []string // that were reported
}

func newRig(t *testing.T) *rig {
	t.Helper()
	db, err := chunks.Open(filepath.Join(t.TempDir(), "index.db"), chunks.Options{StoreID: id, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(disk.NewMem(), "/s/segments", id, db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	asm := assemble.New(st, assemble.Options{CacheBytes: 8 << 20})
	r := &rig{t: t, dir: t.TempDir(), known: map[string]*inode{}, events: &recorder{},
		disk: newWriteback()}
	r.Files = New(Parts{
		ID: id, Store: st, Assemble: asm, Pack: pack.New(st, pack.Options{}),
		Epoch: func() uint32 { return 1 }, Now: time.Now, Report: r.report, Events: r.events,
	})
	r.Fsync, r.Failed, r.Punch = r.disk.fsync, r.disk.failed, r.disk.punch
	t.Cleanup(func() {
		for name, n := range r.known {
			n.file.CloseAll()
			if pins := n.pins.Load(); pins != 0 && !t.Failed() {
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

// passthroughRig is a rig with a kernel that has passthrough.
func passthroughRig(t *testing.T) *rig {
	r := newRig(t)
	r.kernel = &kernel{open: map[int32]*os.File{}}
	r.SetKernel(r.kernel)
	r.Passthrough.Store(true)
	return r
}

func (r *rig) report(level slog.Level, msg string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(level, " ", msg, " ", fmt.Sprintln(args...)))
}

// file is the file of a name, which is made if it is not there.
func (r *rig) file(name string) *File {
	r.t.Helper()
	n := r.known[name]
	if n == nil {
		n = &inode{root: r.dir, name: name, disk: r.disk}
		err := os.WriteFile(n.at(), nil, 0o600)
		if err == nil {
			err = tree.WriteRecord(n.at(), &tree.Record{Literal: true})
		}
		if errors.Is(err, unix.EOPNOTSUPP) {
			r.t.Skip("the temporary folder keeps no attributes")
		}
		if err = errors.Join(err, tree.WriteRecord(n.at(), &tree.Record{})); err != nil {
			r.t.Fatal(err)
		}
		n.file = NewFile(r.Files, n)
		r.known[name] = n
	}
	return n.file
}

// forget has nothing known of the files, as after a start.
func (r *rig) forget() {
	for _, n := range r.known {
		n.file.CloseAll()
		n.file = NewFile(r.Files, n)
	}
}

func (r *rig) open(name string, flags uint32) *Handle { return r.openBy(name, flags, 0) }

func (r *rig) openBy(name string, flags, thread uint32) *Handle {
	r.t.Helper()
	h, err := r.file(name).Open(flags, thread)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// write makes a file of data.
func (r *rig) write(name string, data []byte) {
	r.t.Helper()
	h := r.open(name, unix.O_WRONLY|unix.O_TRUNC)
	defer h.Release()
	if h.Mode == Passthrough {
		r.kernel.file(h).WriteAt(data, 0)
	} else if _, err := h.Write(data, 0); err != nil {
		r.t.Fatal(err)
	}
}

// pack packs a file, as the queue does; false: it stays as it is.
func (r *rig) pack(name string) bool {
	r.t.Helper()
	packed, err := r.tryPack(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return packed
}

func (r *rig) tryPack(name string) (bool, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p, err := r.file(name).BeginPack(cancel)
	if p == nil || err != nil {
		return false, err
	}
	closed := false
	defer func() {
		if !closed {
			p.Close()
			p.Drop()
		}
	}()
	if stays, err := p.Stays(); stays || err != nil {
		return false, err
	}
	l, err := p.Layout()
	if err != nil {
		return false, err
	}
	b := r.store.Begin()
	defer b.Release()
	res, err := r.Files.pack.Layout(ctx, b, p.Raw, p.Size, l, pack.Related{})
	if err == nil {
		err = b.Commit()
	}
	if err != nil {
		return false, err
	}
	closed = true
	p.Close()
	defer p.Drop()
	return true, p.Publish(res)
}

// packOut packs a file and evicts it.
func (r *rig) packOut(name string) {
	r.t.Helper()
	r.pack(name)
	if skip, err := r.file(name).Evict(); skip != "" || err != nil {
		r.t.Fatalf("evict: %q, %v", skip, err)
	}
	r.want(name, "packed")
}

func (r *rig) state(name string) State {
	f := r.file(name)
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		r.t.Fatal(err)
	}
	return f.StateLocked()
}

// want looks whether a file is "plain", "resident" or "packed".
func (r *rig) want(name, state string) {
	r.t.Helper()
	is := "plain"
	if s := r.state(name); s.Resident() {
		is = "resident"
	} else if s.Packed() {
		is = "packed"
	}
	if is != state {
		r.t.Errorf("%s is %s, not %s", name, is, state)
	}
}

// same looks whether a file has these bytes.
func (r *rig) same(name string, want []byte) {
	r.t.Helper()
	h := r.open(name, unix.O_RDONLY)
	defer h.Release()
	r.reads(h, want)
}

// reads looks whether a handle reads these bytes.
func (r *rig) reads(h *Handle, want []byte) {
	r.t.Helper()
	got := make([]byte, len(want)+1)
	n := 0
	for n < len(got) {
		k, err := h.Read(got[n:], int64(n))
		if err != nil {
			r.t.Fatal(err)
		}
		if k == 0 {
			break
		}
		n += k
	}
	if !bytes.Equal(got[:n], want) {
		r.t.Errorf("%s: %d bytes that are not the %d expected", h.f.Path(), n, len(want))
	}
}

// copyTo copies all of a file into an open one, in parts of so many bytes.
func (r *rig) copyTo(from string, dst *Handle, part int64) {
	r.t.Helper()
	src := r.open(from, unix.O_RDONLY)
	defer src.Release()
	for off := int64(0); ; {
		n, err := dst.CopyFrom(src, off, off, part, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		if n == 0 {
			return
		}
		off += n
	}
}

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed)})
	rng.Read(b)
	return b
}

// inode is a file of the host.
type inode struct {
	root, name string
	disk       *writeback
	file       *File
	pins       atomic.Int64
	gone       atomic.Bool
	unwritable atomic.Bool // it cannot be opened for writing
}

func (n *inode) at() string                         { return filepath.Join(n.root, n.name) }
func (n *inode) ID() NodeID                         { return 2 }
func (n *inode) Ino() uint64                        { return 2 }
func (n *inode) Path() string                       { return n.name }
func (n *inode) Dead() bool                         { return n.gone.Load() }
func (n *inode) Stat(st *unix.Stat_t) error         { return unix.Stat(n.at(), st) }
func (n *inode) ReadRecord() (tree.Record, error)   { return tree.ReadRecord(n.at()) }
func (n *inode) WriteRecord(rec *tree.Record) error { return tree.WriteRecord(n.at(), rec) }
func (n *inode) Changes(uint64)                     {}
func (n *inode) Pin()                               { n.pins.Add(1) }
func (n *inode) Unpin()                             { n.pins.Add(-1) }

func (n *inode) Open(flags int) (*os.File, error) {
	if n.unwritable.Load() && flags&unix.O_ACCMODE != unix.O_RDONLY {
		return nil, unix.EMFILE
	}
	f, err := os.OpenFile(n.at(), flags, 0)
	if err == nil {
		n.disk.opened(f)
	}
	return f, err
}

func (n *inode) OpenBeside(path string, flags int) (*os.File, error) {
	return os.OpenFile(filepath.Join(n.root, path), flags, 0)
}

// SetHost sets the times, which is all that is asked for here.
func (n *inode) SetHost(s *tree.SetAttr) error {
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if s.Atime != nil {
		ts[0] = *s.Atime
	}
	if s.Mtime != nil {
		ts[1] = *s.Mtime
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, n.at(), ts[:], 0)
}

// recorder keeps what was told of the files.
type recorder struct{ told []string }

func (e *recorder) add(f *File, what string, args ...any) {
	f.mu.AssertHeld()
	e.told = append(e.told, strings.TrimSpace(f.Path()+" "+what+" "+fmt.Sprint(args...)))
}

// want looks whether exactly this was told since the last look.
func (e *recorder) want(t *testing.T, after string, told ...string) {
	t.Helper()
	if !slices.Equal(e.told, told) {
		t.Errorf("%s: told\n%q, not\n%q", after, e.told, told)
	}
	e.told = nil
}

func (e *recorder) Writing(f *File)               { e.add(f, "writing", true) }
func (e *recorder) Written(f *File, torn bool)    { e.add(f, "writing", false) }
func (e *recorder) Dirty(f *File)                 { e.add(f, "dirty") }
func (e *recorder) Plain(f *File)                 { e.add(f, "plain") }
func (e *recorder) Packed(f *File)                { e.add(f, "packed") }
func (e *recorder) Unpacked(f *File, _ cas.Hash)  { e.add(f, "unpacked") }
func (e *recorder) Resident(f *File, bytes int64) { e.add(f, "resident", bytes) }
func (e *recorder) Opened(f *File, opens int)     { e.add(f, "opened", opens) }
func (e *recorder) Closed(f *File, read int64)    { e.add(f, "closed", read) }
func (e *recorder) Idle(f *File)                  { e.add(f, "idle") }
func (e *recorder) Lost(f *File, why error)       { e.add(f, "lost", why) }
func (e *recorder) Unsummed(f *File)              { f.mu.AssertHeld() }
func (e *recorder) Unsynced(f *File)              { f.mu.AssertHeld() }

// kernel is the kernel's side of passthrough: it keeps what is registered, and writes it by itself.
type kernel struct {
	mu   sync.Mutex
	next int32
	open map[int32]*os.File
}

func (k *kernel) RegisterBacking(fd int) (int32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	k.next++
	k.open[k.next] = f
	return k.next, nil
}

func (k *kernel) UnregisterBacking(id int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[id].Close()
	delete(k.open, id)
}

func (k *kernel) InvalidateData(NodeID, int64, int64) {}
func (k *kernel) InvalidateName(NodeID, string)       {}

func (k *kernel) file(h *Handle) *os.File {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open[h.Backing]
}
