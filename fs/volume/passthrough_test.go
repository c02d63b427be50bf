package volume

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// backings is the kernel's side of passthrough: it keeps what is registered, and reads and writes it by
// itself.
type backings struct {
	mu      sync.Mutex
	next    int32
	open    map[int32]*os.File
	dropped []content.NodeID // InvalidateData
	refuse  bool
}

func (b *backings) RegisterBacking(fd int) (int32, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse {
		return 0, unix.EMFILE
	}
	// The kernel opens the file again, with the flags of the handle.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	b.next++
	b.open[b.next] = f
	return b.next, nil
}

func (b *backings) UnregisterBacking(id int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[id].Close()
	delete(b.open, id)
}

func (b *backings) InvalidateData(id content.NodeID, off, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped = append(b.dropped, id)
}

func (b *backings) InvalidateName(content.NodeID, string) {}

func (b *backings) file(h *Handle) *os.File {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[h.Backing]
}

func passthroughRig(t *testing.T) (*rig, *backings) {
	r := newRig(t)
	b := &backings{open: map[int32]*os.File{}}
	r.Attach(b, "/mnt", true, "passthrough", "")
	return r, b
}

func mode(t *testing.T, what string, h *Handle, want content.Mode) {
	t.Helper()
	if h.Mode != want {
		t.Errorf("%s: mode %d, want %d", what, h.Mode, want)
	}
}

// The kernel's rule: the handles of a node are all in passthrough with one backing file, or none is.
func TestPassthrough(t *testing.T) {
	r, b := passthroughRig(t)
	want := random(300<<10, 1)
	w := r.open("f", unix.O_RDWR|unix.O_CREAT)
	mode(t, "a new file", w, content.Passthrough)
	if _, err := b.file(w).WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if a := r.stat("f"); a.Size != int64(len(want)) || a.Settled {
		t.Errorf("%+v", a)
	}
	rd := r.open("f", unix.O_RDONLY)
	mode(t, "a reader beside it", rd, content.Passthrough)
	if rd.Backing != w.Backing {
		t.Error("two backing files of one node")
	}
	r.release(w)
	r.sync()
	r.want("f", resident) // the kernel may still write: the backing file is open for writing
	r.release(rd)
	if len(b.open) != 0 {
		t.Errorf("left registered: %v", b.open)
	}
	r.pack("f")
	rd = r.open("f", unix.O_RDONLY)
	mode(t, "a resident packed file", rd, content.Passthrough)
	if skip, err := rd.Node.File().Evict(); skip != content.SkipOpen || err != nil {
		t.Errorf("evict: %q, %v", skip, err)
	}
	// A writer takes the file as it is.
	w = r.open("f", unix.O_WRONLY)
	mode(t, "a writer beside it", w, content.Passthrough)
	b.file(w).WriteAt([]byte("new"), 0)
	copy(want, "new")
	r.release(w)
	r.release(rd)
	r.pack("f")
	r.evictAll()
	r.same("f", want)
}

// A packed file is served, and all handles stay served until the last one is closed.
func TestPassthroughAfterServed(t *testing.T) {
	r, b := passthroughRig(t)
	want := random(300<<10, 1)
	w := r.open("f", unix.O_RDWR|unix.O_CREAT)
	b.file(w).WriteAt(want, 0)
	n := r.find("f") // as the kernel keeps it
	defer r.forget(n)
	r.release(w)
	r.packOut("f")

	rd := r.open("f", unix.O_RDONLY)
	mode(t, "a packed file", rd, content.Cached)
	if rd.KeepCache {
		t.Error("kept pages from before the writer's")
	}
	w = r.open("f", unix.O_RDWR) // unpacks it
	mode(t, "a writer beside a served reader", w, content.Cached)
	r.writeAt(w, []byte("new"), 0)
	copy(want, "new")
	got, err := r.readHandle(rd)
	if err != nil {
		t.Fatal(err)
	}
	r.equal("the reader", got, want)
	r.release(w)
	rd2 := r.open("f", unix.O_RDONLY)
	mode(t, "another reader", rd2, content.Cached)
	r.release(rd2)
	r.release(rd)
	rd = r.open("f", unix.O_RDONLY)
	mode(t, "once all are closed", rd, content.Passthrough)
	r.release(rd)
	if len(b.open) != 0 {
		t.Errorf("left registered: %v", b.open)
	}
}

// A file for which the kernel refuses passthrough is served.
func TestPassthroughRefused(t *testing.T) {
	r, b := passthroughRig(t)
	b.refuse = true
	want := random(100<<10, 1)
	w := r.open("f", unix.O_RDWR|unix.O_CREAT)
	mode(t, "refused", w, content.Cached)
	r.writeAt(w, want, 0)
	r.release(w)
	r.packOut("f")
	b.refuse = false
	r.same("f", want)
	if !r.log.has("passthrough refused", "path f ") {
		t.Errorf("reported: %s", r.log)
	}
}

// Without passthrough a handle that only writes bypasses the page cache; readers beside it lose what they
// have of what it writes.
func TestServedModes(t *testing.T) {
	r := newRig(t)
	b := &backings{open: map[int32]*os.File{}}
	r.Attach(b, "/mnt", false, "served", "asked for")
	w := r.open("f", unix.O_WRONLY|unix.O_CREAT)
	mode(t, "a writer", w, content.Direct)
	rw := r.open("f", unix.O_RDWR)
	mode(t, "a reader and writer", rw, content.Cached)
	r.writeAt(w, []byte("abc"), 0)
	if len(b.dropped) != 1 || b.dropped[0] != w.Node.ID() {
		t.Errorf("dropped: %v", b.dropped)
	}
	w2 := r.open("f", unix.O_WRONLY)
	r.release(w)
	r.release(rw)
	r.release(w2)
	rd := r.open("f", unix.O_RDONLY)
	mode(t, "a reader", rd, content.Cached)
	r.release(rd)
	rd = r.open("f", unix.O_RDONLY)
	if !rd.KeepCache {
		t.Error("nothing has changed, and the pages are dropped")
	}
	r.release(rd)
	w = r.open("f", unix.O_WRONLY)
	r.writeAt(w, []byte("xyz"), 0)
	r.release(w)
	rd = r.open("f", unix.O_RDONLY)
	if rd.KeepCache {
		t.Error("pages of older bytes are kept")
	}
	r.release(rd)
	r.same("f", []byte("xyz"))
}

// The kernel keeps the attributes of the folders in .ckptfs, which are made of the root's. The daemon
// invalidates them when the root's change.
func TestFixedNodes(t *testing.T) {
	r, b := passthroughRig(t)
	for _, p := range []string{".ckptfs", ".ckptfs/query", ".ckptfs/lcp", ".ckptfs/tensors", "runs"} {
		if p == "runs" {
			r.mkdir(p)
		}
		n, err := r.resolve(p)
		if err != nil {
			t.Fatal(err)
		}
		fixed := p != "runs"
		if a, err := r.Stat(n); err != nil || !a.Settled || n.IsFixed() != fixed {
			t.Errorf("%s: %+v, %v, fixed %v", p, a, err, n.IsFixed())
		}
		b.dropped = nil
		mode := uint32(0o700)
		if _, err := r.Setattr(r.names.Root(), &tree.SetAttr{Mode: &mode}); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(b.dropped, n.ID()) != fixed {
			t.Errorf("%s: the kernel was told of %d, it is %d", p, b.dropped, n.ID())
		}
		n.Unpin()
	}
	r.save("a/1", "AB")
	for _, p := range []string{".ckptfs/lcp/a", ".ckptfs/tensors/runs", ".ckptfs/lcp/a/1"} {
		n, err := r.resolve(p)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := r.Stat(n); err != nil || a.Settled || n.IsFixed() {
			t.Errorf("%s: %+v, %v", p, a, err)
		}
		n.Unpin()
	}
	r.onlyRoot()
}

// What the kernel read through the daemon goes once a local copy serves its file, unless that is in use.
func TestPagesDroppedWhenHydrated(t *testing.T) {
	r, b := passthroughRig(t)
	r.write("f", random(300<<10, 1))
	r.packOut("f")
	n := r.find("f")
	defer r.forget(n)
	dropped := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Contains(b.dropped, n.ID())
	}
	h := r.open("f", unix.O_RDONLY)
	r.hydrateAll()
	r.want("f", both)
	if dropped() {
		t.Error("the pages of an open file were dropped")
	}
	r.release(h)
	r.evictAll()
	r.hydrateAll()
	r.want("f", both)
	if !dropped() {
		t.Error("the pages were not dropped")
	}
}

// A rule has the kernel drop the pages of a file when the last program closes it, and not before.
func TestPagesDroppedByRule(t *testing.T) {
	r, b := passthroughRig(t)
	r.mkdir("a")
	r.rule("a/**", "read-once")
	nodes := map[string]*names.Node{}
	for i, p := range []string{"a/f", "a/next", "g"} {
		r.write(p, random(300<<10, uint64(i)))
		r.pack(p)
		nodes[p] = r.find(p)
		defer r.forget(nodes[p])
	}
	dropped := func(p string) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Contains(b.dropped, nodes[p].ID())
	}
	one, two := r.open("a/f", unix.O_RDONLY), r.open("a/f", unix.O_RDONLY)
	b.mu.Lock()
	b.dropped = nil
	b.mu.Unlock()
	r.release(one)
	for _, p := range []string{"g", "a/next"} { // which goes through the same queue
		r.release(r.open(p, unix.O_RDONLY))
	}
	r.eventually("the pages of a/next go", func() bool { return dropped("a/next") })
	if f, g := dropped("a/f"), dropped("g"); f || g {
		t.Errorf("dropped were the pages of an open file: %v, of one that no rule covers: %v", f, g)
	}
	r.release(two)
	r.eventually("the pages of a/f go", func() bool { return dropped("a/f") })
	if dropped("g") {
		t.Error("the pages went of a file that no rule covers")
	}
}
