package fusefs

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/handover"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// lives is a mount that several processes serve after each other, by calls as the kernel makes them. There is
// no kernel: it has no device. It is its own Keeper.
type lives struct {
	t    *testing.T
	dir  string
	s    *Server // of the present one
	mem  *handover.Memory
	kept map[uint64]int
	log  strings.Builder
}

func newLives(t *testing.T) *lives {
	mem, err := handover.New()
	if err != nil {
		t.Fatal(err)
	}
	l := &lives{t: t, dir: filepath.Join(t.TempDir(), "store"), mem: mem, kept: map[uint64]int{}}
	l.s = newServer(&device{fd: -1}, mem, Options{Keeper: l})
	l.must(noteMode(mem, "/mnt", control.ModeServed, ""))
	l.open(volume.Options{Create: true})
	l.s.v.Names().HandOn(heirOf(l.s))
	t.Cleanup(func() {
		l.kill()
		for _, fd := range l.kept {
			unix.Close(fd)
		}
	})
	return l
}

func (l *lives) open(o volume.Options) {
	l.t.Helper()
	o.Dir, o.HotSize, o.CacheBytes = l.dir, 1<<40, 8<<20
	o.SumAfter, o.IDsAfter, o.HydrateAfter = -1, -1, -1
	o.Log = func(level slog.Level, msg string, args ...any) { l.t.Log(level, msg, args) }
	v, err := volume.Open(o)
	l.must(err)
	l.s.v = v
}

func (l *lives) Hold(int, int) error { return nil }

func (l *lives) Write(int, []byte) error { return nil }

func (l *lives) Keep(id uint64, fd int) error {
	k, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	l.must(l.Drop(id))
	l.kept[id] = k
	return err
}

func (l *lives) Drop(id uint64) error {
	if fd, ok := l.kept[id]; ok {
		unix.Close(fd)
		delete(l.kept, id)
	}
	return nil
}

func (l *lives) kill() {
	l.s.v.Names().HandOn(nil) // nothing is written down any more
	l.must(l.s.v.Close(context.Background()))
}

// next kills the process. The next one takes over.
func (l *lives) next() {
	l.t.Helper()
	l.kill()
	again := func(fd int) int {
		k, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		l.must(err)
		return k
	}
	was := map[uint64]int{}
	for id, fd := range l.kept {
		was[id] = again(fd)
	}
	l.s = nil
	l.closed()
	log := func(level slog.Level, msg string, args ...any) { fmt.Fprintln(&l.log, level, msg, args) }
	t, err := Take(Mounted{Device: -1, Memory: again(l.mem.Fd()), Kept: was}, Options{Keeper: l, Log: log})
	l.must(err)
	l.s, l.mem = t.Server, t.memory
	l.open(volume.Options{Inherited: volume.Inherited{Resume: t.Resume, Lock: t.Lock}})
}

// closed waits until the killed process has no file open. Its end would close them; here the garbage
// collector does.
func (l *lives) closed() {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		runtime.GC()
		open := l.openFiles()
		if len(open) == 0 {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("the process before has open: %v", open)
		}
	}
}

// openFiles are the files of the store that this process has open, but for what the Keeper has.
func (l *lives) openFiles() (paths []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	l.must(err)
	kept := map[string]bool{}
	for _, fd := range l.kept {
		kept[strconv.Itoa(fd)] = true
	}
	for _, fd := range fds {
		p, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		st, err := os.Stat(p)
		if err == nil && st.Mode().IsRegular() && strings.HasPrefix(p, l.dir+"/tree/") && !kept[fd.Name()] {
			paths = append(paths, p)
		}
	}
	return paths
}

func (l *lives) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lives) ok(what string, st fuse.Status) {
	l.t.Helper()
	if st != fuse.OK {
		l.t.Fatalf("%s: %v", what, st)
	}
}

func header(node uint64) fuse.InHeader {
	return fuse.InHeader{NodeId: node, Caller: fuse.Caller{Owner: fuse.Owner{
		Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()),
	}}}
}

// look is a lookup of every part of a path; 0 if there is nothing.
func (l *lives) look(p string) uint64 {
	id := uint64(1)
	for name := range strings.SplitSeq(p, "/") {
		in, out := header(id), fuse.EntryOut{}
		if st := l.s.Lookup(nil, &in, name, &out); st != fuse.OK {
			return 0
		}
		id = out.NodeId
	}
	return id
}

// opened is an open file.
type opened struct {
	node, fh uint64
	keeps    bool // the kernel was told that it may keep its pages
}

func (l *lives) opens(p string) opened {
	l.t.Helper()
	in := fuse.OpenIn{InHeader: header(l.look(p)), Flags: unix.O_RDONLY}
	var out fuse.OpenOut
	l.ok("open "+p, l.s.Open(nil, &in, &out))
	return opened{in.NodeId, out.Fh, out.OpenFlags&fuse.FOPEN_KEEP_CACHE != 0}
}

func (l *lives) reads(o opened) ([]byte, fuse.Status) {
	var all []byte
	for {
		in := fuse.ReadIn{InHeader: header(o.node), Fh: o.fh, Offset: uint64(len(all)), Size: 1 << 20}
		lent, b, st := l.s.read(&in, func(n int) []byte { return make([]byte, n) })
		if lent != nil {
			b = bytes.Join(lent.Parts(), nil)
			lent.Done()
		}
		if st != fuse.OK || len(b) == 0 {
			return all, st
		}
		all = append(all, b...)
	}
}

func (l *lives) whole(p string) []byte {
	l.t.Helper()
	o := l.opens(p)
	b, st := l.reads(o)
	l.ok("read "+p, st)
	l.s.Release(nil, &fuse.ReleaseIn{Fh: o.fh})
	return b
}

// size is fstat's.
func (l *lives) size(o opened) uint64 {
	l.t.Helper()
	var out fuse.AttrOut
	l.ok("fstat", l.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(o.node)}, &out))
	return out.Size
}

// write makes a file, or writes over one in place.
func (l *lives) write(p string, data []byte) {
	l.t.Helper()
	me := tree.Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	dir := l.s.v.Names().Root()
	for part := range strings.SplitSeq(path.Dir(p), "/") {
		n, _, err := l.s.v.Lookup(context.Background(), me, dir, part)
		if err == unix.ENOENT {
			n, _, err = l.s.v.Mkdir(dir, part, 0o755, me)
		}
		l.must(err)
		defer n.Unpin()
		dir = n
	}
	n, _, err := l.s.v.Lookup(context.Background(), me, dir, path.Base(p))
	var h *volume.Handle
	if err == unix.ENOENT {
		n, _, h, err = l.s.v.Create(dir, path.Base(p), 0o644, unix.O_WRONLY, me)
	} else {
		l.must(err)
		h, err = l.s.v.OpenBy(context.Background(), me, n, unix.O_WRONLY)
	}
	l.must(err)
	defer n.Unpin()
	_, err = h.Write(data, 0)
	l.must(err)
	h.Release()
}

func (l *lives) unlink(p string) {
	l.t.Helper()
	in := header(l.look(path.Dir(p)))
	l.ok("unlink "+p, l.s.Unlink(nil, &in, path.Base(p)))
}

// evict packs and evicts everything.
func (l *lives) evict() {
	l.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	q := l.s.v.Requests()
	l.must(q.Sync(ctx, nil))
	m, err := q.Evict(ctx, "", nil)
	l.must(err)
	if m.Files == 0 || len(m.Skipped) > 0 {
		l.t.Fatalf("evicted: %+v", m)
	}
}

// ids is a kernel that gives numbers to files.
type ids struct {
	content.Kernel
	given, taken []int32
}

func (k *ids) RegisterBacking(int) (int32, error) {
	id := int32(100 + len(k.given))
	k.given = append(k.given, id)
	return id, nil
}

func (k *ids) UnregisterBacking(id int32) { k.taken = append(k.taken, id) }

// A process was killed in a release: it had taken the file's backing back, and not written down that the
// handle was gone. Its successor must not name that backing to the kernel, which would refuse the open (EIO).
func TestReleaseCutOff(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) { releaseCutOff(t, others) })
	}
}

func releaseCutOff(t *testing.T, others int) {
	l := newLives(t)
	l.write("d/f", bytes.Repeat([]byte("f"), 10000))
	attach := func() *ids {
		k := &ids{}
		l.s.v.Attach(k, "/mnt", true, control.ModePassthrough, "")
		return k
	}
	k := attach()
	open := func() (fh uint64, id int32) {
		in, out := fuse.OpenIn{InHeader: header(l.look("d/f")), Flags: unix.O_RDONLY}, fuse.OpenOut{}
		l.ok("open", l.s.Open(nil, &in, &out))
		if out.OpenFlags&fuse.FOPEN_PASSTHROUGH == 0 {
			return out.Fh, 0
		}
		return out.Fh, out.BackingID
	}
	for range others {
		open()
	}
	fh, id := open()
	if id == 0 {
		t.Fatal("a plain file is not read by the kernel")
	}
	l.s.handles.end(fh)
	gone := len(k.taken) > 0
	if gone == (others > 0) {
		t.Fatalf("%v taken back", k.taken)
	}
	l.next()
	attach()
	switch _, got := open(); {
	case gone && got == id:
		t.Errorf("it names backing %d, which is gone", id)
	case !gone && got != id:
		t.Errorf("it names backing %d for a file that the kernel has backed by %d", got, id)
	}
	l.s.Release(nil, &fuse.ReleaseIn{Fh: fh})
}

// npz is a file of NumPy's with one array, weight. All are of one size and shape.
func npz(seed uint64) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, _ := z.CreateHeader(&zip.FileHeader{Name: "weight.npy", Method: zip.Store})
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }", elements)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	_, _ = f.Write(binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head))))
	_, _ = f.Write([]byte(head))
	data := make([]byte, elements)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
	_, _ = f.Write(data)
	_ = z.Close()
	return b.Bytes()
}

const (
	elements = 400_000 // of the array, a byte each

	source = "runs/a/1/model.npz"
	beside = "runs/a/1/model.safetensors"
	below  = ".ckptfs/tensors/runs/a/1/model.npz/weight.npy"
)

// weight reports whether a view has the array of a file.
func weight(view, npz []byte) bool {
	data := view[len(view)-elements:]
	return bytes.Contains(npz, data)
}

// A view whose source stayed as it is stays the node that the kernel has. Its first open drops the pages.
func TestViewStays(t *testing.T) {
	for _, p := range []string{beside, below} {
		l := newLives(t)
		l.write(source, npz(1))
		id := l.look(p)
		held := l.opens(p)
		for life := range 4 {
			l.next()
			if life == 2 { // the next one knows of its record by the view alone
				l.evict()
			}
			if got, st := l.reads(held); st != fuse.OK || !weight(got, npz(1)) {
				t.Errorf("%s, open: %d bytes, %v", p, len(got), st)
			}
			if again := l.look(p); again != id {
				t.Errorf("%s: another node", p)
			}
			if l.opens(p).keeps || !l.opens(p).keeps {
				t.Errorf("%s: the first open alone drops the pages", p)
			}
		}
		l.write(source, npz(2)) // in the process that took it over
		if l.look(p) == id || !weight(l.whole(p), npz(2)) {
			t.Errorf("%s: the same node of other bytes", p)
		}
		if _, st := l.reads(held); st != errStale {
			t.Errorf("%s: read by the old node: %v", p, st)
		}
	}
}

// A source is written over, and the process killed before anybody looks at its view again: the kernel has
// pages of the old bytes by the old node.
func TestViewOvertaken(t *testing.T) {
	for what, change := range map[string]func(l *lives){
		"in place": func(l *lives) { l.write(source, npz(2)) },
		"by rename": func(l *lives) {
			l.write("runs/a/1/new", npz(2))
			dir := l.look("runs/a/1")
			in := fuse.RenameIn{InHeader: header(dir), Newdir: dir}
			l.ok("rename", l.s.Rename(nil, &in, "new", path.Base(source)))
		},
	} {
		for _, p := range []string{beside, below} {
			l := newLives(t)
			l.write(source, npz(1))
			old := l.look(p)
			size := len(l.whole(p))
			held := l.opens(p)
			change(l)
			renamed := what == "by rename"
			for range 2 {
				l.next()
				if id := l.look(p); id == old || id == 0 {
					t.Errorf("%s, %s: node %d, and was %d", p, what, id, old)
				}
				if !weight(l.whole(p), npz(2)) {
					t.Errorf("%s, %s: other bytes", p, what)
				}
				got, st := l.reads(held)
				if renamed && (st != fuse.OK || !weight(got, npz(1))) || !renamed && st != errStale {
					t.Errorf("%s, %s: an open view: %d bytes, %v", p, what, len(got), st)
				}
				if got := l.size(held); got != uint64(size) {
					t.Errorf("%s, %s: an open view has size %d, and had %d", p, what, got, size)
				}
			}
			if strings.Contains(l.log.String(), "ERROR") {
				t.Error(l.log.String())
			}
		}
	}
}

// An open view stays readable when its name, or its source, goes.
func TestViewOfRemoved(t *testing.T) {
	for what, remove := range map[string]func(l *lives){
		"view": func(l *lives) { l.unlink(beside) },
		"source": func(l *lives) {
			l.unlink(beside)
			l.unlink(source)
		},
		"directory": func(l *lives) {
			l.unlink(source)
			in := header(l.look("runs/a"))
			l.ok("rmdir", l.s.Rmdir(nil, &in, "1"))
		},
	} {
		l := newLives(t)
		l.write(source, npz(1))
		a, b := l.opens(beside), l.opens(below)
		remove(l)
		for range 2 {
			l.next()
			l.s.v.Names().Sweep(true, func(id content.NodeID) bool { // the kernel has never seen the source
				return uint64(id) == a.node || uint64(id) == b.node
			}, func() {})
			for _, o := range []opened{a, b} {
				if got, st := l.reads(o); st != fuse.OK || !weight(got, npz(1)) {
					t.Errorf("%s: %d bytes, %v", what, len(got), st)
				}
				l.size(o)
			}
		}
		if l.look(beside) != 0 {
			t.Errorf("%s: the view is there", what)
		}
		if strings.Contains(l.log.String(), "ERROR") {
			t.Error(l.log.String())
		}
	}
}

// A file was written past the kernel's pages, and the process killed before it was opened again.
func TestStalePages(t *testing.T) {
	l := newLives(t)
	keeps := func() bool {
		o := l.opens("runs/f")
		l.s.Release(nil, &fuse.ReleaseIn{Fh: o.fh})
		return o.keeps
	}
	l.write("runs/f", []byte("old"))
	if keeps(); !keeps() {
		t.Error("the second open drops the pages")
	}
	l.write("runs/f", []byte("new"))
	l.next()
	if keeps() || !keeps() {
		t.Error("the first open alone drops the pages")
	}
}

// A program makes a file by the name of a view: the lookup answers that there is none, and leaves no
// reference to it.
func TestViewGivesWay(t *testing.T) {
	l := newLives(t)
	l.write(source, npz(1))
	view := l.look(beside)
	l.next()
	dir := l.look(path.Dir(beside))
	l.s.makes = func(uint32, string) bool { return true }
	for range 3 {
		if l.look(beside) != 0 {
			t.Error("the view is found")
		}
	}
	l.s.Forget(view, 1)
	l.s.v.Names().Sweep(true, func(id content.NodeID) bool { return uint64(id) == dir }, func() {})
	left, _ := l.s.v.Names().Leftover()
	for _, n := range left {
		if strings.Contains(n, path.Base(beside)) {
			t.Error(n)
		}
	}
}

// A view is known to the kernel, and not open; its source is not known. Both stay until the kernel forgets
// the view.
func TestViewKnown(t *testing.T) {
	l := newLives(t)
	l.write(source, npz(1))
	view := l.look(beside)
	l.unlink(source)
	l.next()
	known := map[content.NodeID]bool{content.NodeID(view): true}
	sweep := func(all bool) {
		l.s.v.Names().Sweep(all, func(id content.NodeID) bool { return known[id] }, func() {})
	}
	sweep(true)
	sweep(false)
	l.next()
	sweep(true)
	if l.size(opened{node: view}) == 0 {
		t.Error("the view has no size")
	}
	clear(known)
	l.s.Forget(view, 1)
	for l.s.v.Names().InDoubt() {
		sweep(false)
	}
	var left []string
	for range 100 { // work in the background looks at the tree
		if left, _ = l.s.v.Names().Leftover(); len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("known: %q", left)
	}
	if len(l.kept) > 1 { // the store's lock
		t.Errorf("kept: %v", l.kept)
	}
}
