package content

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// writeback is the kernel's writeback as programs see it, over the files of a folder: it may fail, and then
// the bytes are lost, later syncs succeed, and each descriptor is told once that was open before, or opened
// before anybody was told.
type writeback struct {
	mu     sync.Mutex
	failAt int // the sync that fails from now on, counted from 1; 0: none
	syncs  int
	of     map[uint64]*failures
	synced map[uint64][]byte // what was there at the last sync that succeeded, of the inodes that are watched
}

// failures are those of an inode.
type failures struct {
	n, told int
	gone    bool // its pages: what is written over them is lost, and no sync fails, until there are holes
}

func newWriteback() *writeback { return &writeback{of: map[uint64]*failures{}} }

// marked is the first position of a descriptor that keeps how many failures it was told of: nobody else uses
// positions, and copies of a descriptor share them.
const marked = 1 << 40

func (w *writeback) ofLocked(fd int) *failures {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		panic(err)
	}
	if w.of[st.Ino] == nil {
		w.of[st.Ino] = &failures{}
	}
	return w.of[st.Ino]
}

// opened notes what a descriptor will be told.
func (w *writeback) opened(f *os.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.ofLocked(int(f.Fd()))
	unix.Seek(int(f.Fd()), marked+int64(is.told), unix.SEEK_SET)
}

// lose fails to write an inode back. told: another descriptor was told of it.
func (w *writeback) lose(path string, told bool) {
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer unix.Close(fd)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loseLocked(fd)
	if is := w.ofLocked(fd); told {
		is.told = is.n
	}
}

// reclaim has the kernel forget an inode, and what failed of it, unless this process has a descriptor.
func (w *writeback) reclaim(path string) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		panic(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, e := range fds {
		var of unix.Stat_t
		fd, _ := strconv.Atoi(e.Name())
		if unix.Fstat(fd, &of) == nil && of.Ino == st.Ino && of.Dev == st.Dev {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, st.Ino)
}

// punch makes the pages of an inode new ones.
func (w *writeback) punch(fd int) error {
	w.mu.Lock()
	w.ofLocked(fd).gone = false
	w.mu.Unlock()
	return tree.Punch(fd)
}

func (w *writeback) loseLocked(fd int) {
	w.zeroLocked(fd)
	is := w.ofLocked(fd)
	is.n++
	is.gone = true
}

func (w *writeback) zeroLocked(fd int) {
	var st unix.Stat_t
	own, err := os.OpenFile(tree.FdPath(fd), os.O_WRONLY, 0)
	if err == nil {
		defer own.Close()
		err = unix.Fstat(fd, &st)
	}
	if err == nil {
		_, err = own.WriteAt(make([]byte, st.Size), 0)
	}
	if err == nil {
		err = tree.SetMtime(fd, st.Mtim.Nano())
	}
	if err != nil {
		panic(err)
	}
}

func (w *writeback) fsync(fd int, data bool) error {
	w.mu.Lock()
	if w.syncs++; w.syncs == w.failAt {
		w.loseLocked(fd)
	} else if w.ofLocked(fd).gone {
		w.zeroLocked(fd)
	}
	w.mu.Unlock()
	err := w.failed(fd)
	w.mu.Lock()
	defer w.mu.Unlock()
	var st unix.Stat_t
	if w.synced == nil || err != nil {
		return err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		panic(err)
	}
	if w.synced[st.Ino] != nil {
		_, w.synced[st.Ino] = readInode(tree.FdPath(fd))
	}
	return nil
}

func (w *writeback) failed(fd int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.ofLocked(fd)
	at, _ := unix.Seek(fd, 0, unix.SEEK_CUR)
	told := int(at - marked)
	if at < marked {
		told = is.told
	}
	if told >= is.n {
		return nil
	}
	unix.Seek(fd, marked+int64(is.n), unix.SEEK_SET)
	is.told = is.n
	return unix.EIO
}

// watch keeps what is synced of an inode from now on. synced: what is there was.
func (w *writeback) watch(path string, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ino, data := readInode(path)
	if !synced {
		clear(data)
	}
	w.synced = map[uint64][]byte{ino: data}
}

// syncedOf is what is on the disk of an inode, and as long as it is now.
func (w *writeback) syncedOf(path string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	ino, now := readInode(path)
	clear(now)
	copy(now, w.synced[ino])
	return now
}

func readInode(path string) (ino uint64, data []byte) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		panic(err)
	}
	return st.Ino, data
}

// arm has the sync fail that is the kth from now on.
func (w *writeback) arm(k int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failAt = w.syncs + k
}

var errNotWritten = errors.New("not written")

// Whichever sync of whatever is done to a packed file fails, once, with its bytes lost: who asked is told,
// the file is right, and it is right when it is done again.
func TestSyncFails(t *testing.T) {
	old := random(200<<10, 1)
	write := func(r *rig) error {
		h, err := r.file("f").Open(unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer h.Release()
		_, err = h.Write([]byte("new"), 100)
		return err
	}
	patched := slices.Concat(old[:100], []byte("new"), old[103:])
	hydrate := func(r *rig) error { _, err := r.file("f").Hydrate(); return err }
	sync := func(r *rig) error { return r.file("f").Sync() }
	for name, c := range map[string]struct {
		from  string
		do    func(r *rig) error
		want  []byte
		syncs int // at least: of bytes that were hydrated, of the bytes, of the record
	}{
		"write, just packed":         {"resident", write, patched, 2},
		"write, of an earlier life":  {"unknown", write, patched, 3},
		"write, synced":              {"durable", write, patched, 2},
		"write, packed":              {"packed", write, patched, 3},
		"hydrate":                    {"packed", hydrate, old, 1},
		"sync, just packed":          {"resident", sync, old, 1},
		"sync, of an earlier life":   {"unknown", sync, old, 1},
		"resized":                    {"packed", resize, old[:100<<10], 3},
		"resized, of another life":   {"unknown", resize, old[:100<<10], 3},
		"another mtime, not a small": {"packed", touchFar, old, 3},
	} {
		for k := 1; ; k++ {
			more := true
			t.Run(fmt.Sprintf("%s, %d", name, k), func(t *testing.T) {
				r := newRig(t)
				r.writtenAs(c.from, old)
				r.disk.arm(k)
				err := c.do(r)
				if more = r.disk.syncs >= r.disk.failAt; !more {
					if k <= c.syncs {
						t.Errorf("done by %d syncs, of %d", k-1, c.syncs)
					}
					return
				}
				if err != unix.EIO {
					t.Fatalf("done: %v", err)
				}
				r.want("f", "packed")
				r.same("f", old)
				if err := c.do(r); err != nil {
					t.Fatalf("done again: %v", err)
				}
				r.same("f", c.want)
			})
			if !more || t.Failed() {
				break
			}
		}
	}
}

func resize(r *rig) error {
	f := r.file("f")
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return err
	}
	return f.ResizeLocked(100 << 10)
}

// touchFar gives a file a time that no record holds.
func touchFar(r *rig) error {
	f := r.file("f")
	f.Lock()
	defer f.Unlock()
	return f.SetInodeLocked(&tree.SetAttr{Mtime: &unix.Timespec{Sec: math.MaxInt32 * 8}})
}

// writtenAs makes the file f, packed, with a local copy of which that is known, or none.
func (r *rig) writtenAs(how string, data []byte) {
	r.t.Helper()
	r.write("f", data)
	r.pack("f")
	switch how {
	case "packed":
		if skip, err := r.file("f").Evict(); skip != "" || err != nil {
			r.t.Fatalf("evict: %q, %v", skip, err)
		}
	case "durable":
		r.syncAll(nil)
	case "unknown":
		r.forget()
		r.Unclean = true
	}
}

// syncAll syncs the filesystem, which fails so.
func (r *rig) syncAll(fails error) { r.SyncAll(func() error { return fails }, func(error) {}) }

// At whatever moment writeback fails: a file that becomes plain has its bytes, also when others were told of
// the failure, as far as others can be.
func TestWritebackFailsBetween(t *testing.T) {
	old := random(200<<10, 1)
	for _, c := range []struct {
		from string
		told bool
	}{{"resident", false}, {"unknown", true}, {"unknown", false}, {"packed", true}, {"packed", false}} {
		for k := 0; ; k++ {
			steps := 0
			t.Run(fmt.Sprintf("%s, told %v, %d", c.from, c.told, k), func(t *testing.T) {
				r := newRig(t)
				r.writtenAs(c.from, old)
				var last string
				lose := func(what string) error {
					if strings.HasPrefix(what, "hollow: ") {
						return nil // under a lease, which the loss would wait for
					}
					if steps++; steps == k+1 {
						last = what
						r.disk.lose(r.known["f"].at(), c.told)
					}
					return nil
				}
				lose("before")
				r.Step = lose
				h, err := r.file("f").Open(unix.O_RDWR, 0)
				r.Step = func(string) error { return nil }
				if last == "unpack: sync record" || last == "unpack: record" {
					return // the bytes are durable by then, and a disk that loses those is beyond us
				}
				if err == nil {
					h.Release()
				} else if err != unix.EIO {
					t.Fatal(err)
				}
				r.same("f", old)
				r.open("f", unix.O_RDWR).Release()
				r.want("f", "plain")
				r.same("f", old)
			})
			if steps <= k || t.Failed() {
				break
			}
		}
	}
}

// A local copy whose writeback failed after it was packed is not read, once anybody asked.
func TestCopyNotWritten(t *testing.T) {
	old := random(200<<10, 1)
	for name, ask := range map[string]func(r *rig){
		"opened": func(r *rig) { r.open("f", unix.O_RDONLY).Release() },
		"synced": func(r *rig) {
			if err := r.file("f").Sync(); err != unix.EIO {
				r.t.Errorf("sync: %v", err)
			}
		},
	} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", open), func(t *testing.T) {
				r := newRig(t)
				r.writtenAs("resident", old)
				var h *Handle
				if open {
					h = r.open("f", unix.O_RDONLY)
				}
				r.disk.lose(r.known["f"].at(), false)
				if open && name == "opened" { // that is not asked while it is open
					h.Release()
					open = false
				}
				ask(r)
				r.want("f", "packed")
				r.same("f", old)
				if open {
					r.reads(h, old)
					h.Release()
				}
				if n, err := r.file("f").Hydrate(); n != int64(len(old)) || err != nil {
					t.Error(n, err)
				}
				r.want("f", "resident")
				r.same("f", old)
			})
		}
	}
}

// While the kernel reads a copy that the disk did not take, the file is not made whole over it: a page that
// was not written once stays lost, whatever is written to it, until there is a hole.
func TestFilledUnderReader(t *testing.T) {
	old := random(200<<10, 1)
	for _, start := range []bool{false, true} {
		r := passthroughRig(t)
		r.writtenAs("resident", old)
		h := r.open("f", unix.O_RDONLY)
		r.disk.lose(r.known["f"].at(), false)
		f := r.file("f")
		f.Lock()
		distrust{f}.noteLocked(errNotWritten)
		if start {
			f.local.left = false // as another process finds it
		}
		f.Unlock()
		if _, err := r.file("f").Open(unix.O_RDWR, 0); !errors.Is(err, unix.EBUSY) {
			t.Fatalf("opened for writing: %v", err)
		}
		if _, err := r.file("f").Hydrate(); !errors.Is(err, unix.EBUSY) {
			t.Errorf("hydrated: %v", err)
		}
		r.want("f", "packed")
		h.Release()
		r.same("f", old)
		r.open("f", unix.O_RDWR).Release()
		r.want("f", "plain")
		r.same("f", old)
	}
}

// What the kernel reads by itself stays where it is while it reads it, and goes when it is closed.
func TestDistrustedInUse(t *testing.T) {
	old := random(200<<10, 1)
	r := passthroughRig(t)
	r.writtenAs("resident", old)
	h := r.open("f", unix.O_RDONLY)
	if h.Mode != Passthrough {
		t.Fatal(h.Mode)
	}
	f := r.file("f")
	f.Lock()
	distrust{f}.noteLocked(errNotWritten)
	f.Unlock()
	r.want("f", "packed")
	got := make([]byte, len(old))
	if _, err := r.kernel.file(h).ReadAt(got, 0); err != nil || !slices.Equal(got, old) {
		t.Errorf("the bytes were taken from under a reader: %v", err)
	}
	h.Release()
	var st unix.Stat_t
	if err := f.Node().Stat(&st); err != nil || st.Blocks*512 > 64<<10 {
		t.Errorf("%d blocks stay, %v", st.Blocks, err)
	}
	r.same("f", old)
}

// A local copy that cannot be read by its manifest is kept, whatever is known of it.
func TestDistrustedWithoutManifest(t *testing.T) {
	old := random(200<<10, 1)
	r := newRig(t)
	r.writtenAs("resident", old)
	f := r.file("f")
	f.Lock()
	rec := f.StateLocked().Record
	rec.Manifest[0] ^= 1
	if err := f.writeRecordLocked(rec); err != nil {
		t.Fatal(err)
	}
	distrust{f}.noteLocked(errNotWritten)
	f.Unlock()
	r.want("f", "resident")
	r.same("f", old)
	r.open("f", unix.O_RDWR).Release()
	r.want("f", "plain")
	r.same("f", old)
}

// A plain file that the disk did not take is told of, whoever finds out.
func TestPlainNotWritten(t *testing.T) {
	for name, find := range map[string]func(r *rig, h *Handle){
		"synced": func(r *rig, h *Handle) {
			if err := r.file("f").Sync(); err != unix.EIO {
				r.t.Errorf("sync: %v", err)
			}
			h.Release()
		},
		"closed": func(r *rig, h *Handle) { h.Release() },
		"packed": func(r *rig, h *Handle) {
			h.Release()
			r.disk.lose(r.known["f"].at(), false)
			r.pack("f")
			r.want("f", "packed")
		},
	} {
		r := newRig(t)
		h := r.open("f", unix.O_RDWR)
		if _, err := h.Write(random(200<<10, 1), 0); err != nil {
			t.Fatal(err)
		}
		if name != "packed" {
			r.disk.lose(r.known["f"].at(), true)
		}
		find(r, h)
		if !slices.Contains(r.events.told, "f lost input/output error") {
			t.Errorf("%s: told %q", name, r.events.told)
		}
	}
}

// The kernel tells each descriptor once of bytes that did not reach the disk. Every fsync is told of them,
// until the file is written from nothing.
func TestSyncOfLost(t *testing.T) {
	r := newRig(t)
	writer := r.open("f", unix.O_RDWR)
	if _, err := writer.Write(random(200<<10, 1), 0); err != nil {
		t.Fatal(err)
	}
	r.disk.lose(r.known["f"].at(), true)
	for who, h := range map[string]*Handle{
		"another": r.open("f", unix.O_RDONLY), "the writer": writer,
		"yet another": r.open("f", unix.O_RDONLY),
	} {
		for range 2 {
			if err := h.Sync(); err != unix.EIO {
				t.Errorf("%s: %v", who, err)
			}
		}
		if h != writer {
			h.Release()
		}
	}
	again := r.open("f", unix.O_RDWR|unix.O_TRUNC)
	if err := again.Sync(); err != nil {
		t.Errorf("written from nothing: %v", err)
	}
	if err := writer.Sync(); err != nil {
		t.Errorf("of the writer before: %v", err)
	}
	again.Release()
	writer.Release()
}

// The kernel may forget an inode that nobody has open, and that its bytes could not be written. From the last
// close until the bytes are durable or packed it does not.
func TestReclaimed(t *testing.T) {
	for name, data := range map[string][]byte{"small": []byte("small"), "large": random(200<<10, 1)} {
		for _, find := range []string{"synced", "packed"} {
			t.Run(name+", "+find, func(t *testing.T) {
				r := newRig(t)
				r.write("f", data)
				at := r.known["f"].at()
				r.disk.lose(at, false)
				r.disk.reclaim(at)
				if find == "packed" && name == "large" {
					r.pack("f")
				} else if err := r.file("f").Sync(); err != unix.EIO {
					t.Errorf("sync: %v", err)
				}
				if !slices.Contains(r.events.told, "f lost input/output error") {
					t.Errorf("told %q", r.events.told)
				}
			})
		}
	}
}

// An inode is kept no longer than it has to be, and if too many are, the filesystem has to be asked.
func TestKeptInodes(t *testing.T) {
	r := newRig(t)
	kept := func() int { return len(r.unsynced.kept) }
	for what, end := range map[string]func(){
		"synced": func() { r.file("f").Sync() },
		"packed": func() { r.pack("f") },
		"all":    func() { r.syncAll(nil) },
	} {
		r.write("f", random(200<<10, 1))
		if kept() != 1 || r.Missed() {
			t.Errorf("%d kept before it is %s, %v", kept(), what, r.Missed())
		}
		if end(); kept() != 0 || r.Missed() {
			t.Errorf("%d kept after it was %s, %v", kept(), what, r.Missed())
		}
	}
	r.write("f", []byte("small"))
	r.forget()
	if kept() != 0 || !r.Missed() {
		t.Errorf("%d kept of a file that is not known any more, %v", kept(), r.Missed())
	}
	if r.syncAll(unix.EIO); !r.Missed() {
		t.Error("forgotten after a sync that failed")
	}
	if r.syncAll(nil); r.Missed() {
		t.Error("still missed after a sync")
	}
	for i := range r.unsynced.most + 1 {
		r.unsynced.keep(&File{users: users{pass: i}}, 1, os.NewFile(1<<20, ""))
	}
	if kept() != r.unsynced.most || !r.Missed() {
		t.Errorf("%d kept, %v", kept(), r.Missed())
	}
	clear(r.unsynced.kept)
}

// What was written after a sync of the filesystem, by a writer that was there before it, wants another.
func TestLongWriter(t *testing.T) {
	r := newRig(t)
	h := r.open("f", unix.O_WRONLY)
	h.Write([]byte("one"), 0)
	if r.syncAll(nil); r.Unsynced() {
		t.Fatal("a sync of all is not known of")
	}
	h.Write([]byte("two"), 0)
	if h.Release(); !r.Unsynced() {
		t.Error("a clean end does not sync what was written")
	}
}

// That a file may have lost bytes is in its record until a program truncates it to nothing: whatever is done
// to it before, by whichever process.
func TestLostInRecord(t *testing.T) {
	data := random(200<<10, 1)
	for name, do := range map[string]func(r *rig){
		"nothing":         func(r *rig) {},
		"another process": func(r *rig) { r.forget() },
		"packed":          func(r *rig) { r.pack("f") },
		"packed, evicted and written to": func(r *rig) {
			r.packOut("f")
			r.open("f", unix.O_RDWR).Release()
		},
		"resized": func(r *rig) { resize(r) },
		"a checksum": func(r *rig) {
			f := r.file("f")
			f.Lock()
			f.bytes.dirty = false
			f.Unlock()
			if did, err := f.Sum(t.Context()); did || err != nil {
				t.Error("a checksum was made", err)
			}
		},
		"a hidden view": func(r *rig) {
			f := r.file("f")
			f.Lock()
			defer f.Unlock()
			f.HideViewLocked(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("f", data)
			r.disk.lose(r.known["f"].at(), false)
			if err := r.file("f").Sync(); err != unix.EIO {
				t.Fatal(err)
			}
			do(r)
			r.forget()
			if is := r.state("f"); !is.Record.Lost || is.Record.Summed {
				t.Errorf("%+v", is.Record)
			}
			if is := r.state("f"); is.Packed() {
				r.want("f", "packed") // the local copy is the one that the disk did not take
			}
			r.write("f", data)
			if is := r.state("f"); is.Record.Lost {
				t.Errorf("written again: %+v", is.Record)
			}
		})
	}
}

// A copy of a packed file that may have lost bytes may have, too.
func TestLostIsCopied(t *testing.T) {
	r := newRig(t)
	r.write("f", random(200<<10, 1))
	r.disk.lose(r.known["f"].at(), false)
	if err := r.file("f").Sync(); err != unix.EIO {
		t.Fatal(err)
	}
	r.packOut("f")
	r.events.told = nil
	h := r.open("g", unix.O_WRONLY)
	r.copyTo("f", h, 1<<30)
	h.Release()
	r.want("g", "packed")
	if is := r.state("g"); !is.Record.Lost || !slices.Contains(r.events.told, "g lost "+errLost.Error()) {
		t.Errorf("%+v, told %q", is.Record, r.events.told)
	}
}

// A checksum is not made of bytes that the disk did not take.
func TestNoSumOfLost(t *testing.T) {
	for _, when := range []string{"before", "while it is read"} {
		r := newRig(t)
		r.write("f", []byte("small"))
		at := r.known["f"].at()
		if when == "before" {
			r.disk.lose(at, false)
		} else {
			r.Step = func(what string) error {
				if what == "sum: read" {
					r.disk.lose(at, false)
				}
				return nil
			}
		}
		if _, err := r.file("f").Sum(t.Context()); err != nil {
			t.Fatal(err)
		}
		if is := r.state("f"); is.Record.Summed || !is.Record.Lost {
			t.Errorf("%s: %+v", when, is.Record)
		}
	}
}
