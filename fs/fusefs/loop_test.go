package fusefs

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fakeFS finds the name "found". That of "wait" waits for go, or to be interrupted; "panic" does.
type fakeFS struct {
	fuse.RawFileSystem
	waiting  chan struct{} // a value for each that began to wait
	goOn     chan struct{}
	dead     chan struct{}
	forgets  atomic.Int64
	lastData atomic.Pointer[[]byte]
}

func newFakeFS() *fakeFS {
	return &fakeFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), waiting: make(chan struct{}, 1000),
		goOn: make(chan struct{})}
}

func (f *fakeFS) Lookup(cancel <-chan struct{}, _ *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	switch name {
	case "wait":
		f.waiting <- struct{}{}
		select {
		case <-f.goOn:
		case <-f.dead:
			return fuse.EIO
		case <-cancel:
			return fuse.EINTR
		}
	case "panic":
		panic("as a handler does")
	case "found":
	default:
		return fuse.ENOENT
	}
	out.NodeId = 7
	return fuse.OK
}

func (f *fakeFS) Forget(uint64, uint64) { f.forgets.Add(1) }

func (f *fakeFS) Readlink(<-chan struct{}, *fuse.InHeader) ([]byte, fuse.Status) {
	return bytes.Repeat([]byte("a"), 4095), fuse.OK
}

func (f *fakeFS) ListXAttr(_ <-chan struct{}, _ *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	return uint32(copy(dest, bytes.Repeat([]byte("b"), 64<<10))), fuse.OK
}

func (f *fakeFS) SetXAttr(_ <-chan struct{}, _ *fuse.SetXAttrIn, _ string, data []byte) fuse.Status {
	data = slices.Clone(data)
	f.lastData.Store(&data)
	return fuse.OK
}

func (f *fakeFS) Write(_ <-chan struct{}, _ *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	data = slices.Clone(data)
	f.lastData.Store(&data)
	return uint32(len(data)), fuse.OK
}

// fakeFile answers a READ by its offset: 0 by lent bytes, 1 by read ones, 2 by none, 3 by an error; 4 waits.
type fakeFile struct {
	returned atomic.Int64
	waiting  chan struct{}
	goOn     chan struct{}
}

type fakeLoan struct{ f *fakeFile }

func (fakeLoan) Parts() [][]byte { return [][]byte{[]byte("lent "), []byte("where it lies")} }
func (l fakeLoan) Done()         { l.f.returned.Add(1) }

func (f *fakeFile) read(in *fuse.ReadIn, room func(int) []byte) (loan, []byte, fuse.Status) {
	switch in.Offset {
	case 0:
		return fakeLoan{f}, nil, fuse.OK
	case 1:
		b := room(int(in.Size))
		return nil, b[:copy(b, bytes.Repeat([]byte("read "), 1<<18))], fuse.OK
	case 2:
		return nil, room(int(in.Size))[:0], fuse.OK
	case 4:
		f.waiting <- struct{}{}
		<-f.goOn
		return nil, nil, fuse.OK
	}
	return nil, nil, fuse.EBADF
}

func TestLoopAnswers(t *testing.T) {
	file := &fakeFile{}
	fs := newFakeFS()
	k := serveFake(t, fs, file)
	name := strings.Repeat("n", 255)
	value := bytes.Repeat([]byte("v"), 60<<10)
	written := bytes.Repeat([]byte("w"), 100<<10)
	for _, c := range []struct {
		what string
		req  []byte
		st   fuse.Status
		body int // bytes
	}{
		{"LOOKUP", request(1, 4, 1, "found"), fuse.OK, 128},
		{"LOOKUP of nothing", request(1, 6, 1, name), fuse.ENOENT, 0},
		{"of bit 63", request(1, 1<<63|8, 1, "found"), fuse.OK, 128},
		{"READLINK", request(5, 10, 1), fuse.OK, 4095},
		{"LISTXATTR", request(opListxattr, 12, 1, uint32(64<<10), uint32(0)), fuse.OK, 64 << 10},
		{"LISTXATTR of the size", request(opListxattr, 14, 1, uint32(0), uint32(0)), fuse.OK, 8},
		{"SETXATTR", request(21, 16, 1, uint32(len(value)), uint32(0), "user.a", value), fuse.OK, 0},
		{"WRITE", request(opWrite, 18, 5, uint64(1), uint64(0), uint32(len(written)), uint32(0), uint64(0),
			uint32(0), uint32(0), written), fuse.OK, 8},
		{"an opcode of go-fuse without a function", request(50, 20, 1), fuse.ENOSYS, 0},
		{"an opcode that nobody knows", request(4096, 22, 1), fuse.ENOSYS, 0},
		{"IOCTL", request(opIoctl, 24, 1, make([]byte, 24), uint32(0), uint32(16<<10)), fuse.ENOSYS, 0},
		{"READ, lent", readRequest(26, 0, 4096), fuse.OK, 18},
		{"READ", readRequest(28, 1, 100<<10), fuse.OK, 100 << 10},
		{"READ at the end", readRequest(30, 2, 4096), fuse.OK, 0},
		{"READ, failed", readRequest(32, 3, 4096), fuse.EBADF, 0},
		{"READ, too short", request(opRead, 34, 1, uint64(1)), fuse.EIO, 0},
	} {
		k.send(c.req)
		unique, st, body := k.answer()
		if want := as[fuse.InHeader](c.req).Unique; unique != want || st != c.st || len(body) != c.body {
			t.Errorf("%s: number %d, %v, %d bytes; want %d, %v, %d", c.what, unique, st, len(body), want,
				c.st, c.body)
		}
		switch c.what {
		case "READ, lent":
			if string(body) != "lent where it lies" {
				t.Errorf("%s: %q", c.what, body)
			}
		case "SETXATTR":
			if !bytes.Equal(*fs.lastData.Load(), value) {
				t.Errorf("%s: %d bytes", c.what, len(*fs.lastData.Load()))
			}
		case "WRITE":
			if !bytes.Equal(*fs.lastData.Load(), written) {
				t.Errorf("%s: %d bytes", c.what, len(*fs.lastData.Load()))
			}
		}
	}
	k.end()
	if file.returned.Load() != 1 {
		t.Error("the loan was not given back")
	}
}

// However many requests wait, the next one is answered, and none holds a large buffer. Their readers end.
func TestLoopWaiters(t *testing.T) {
	fs := newFakeFS()
	k := serveFake(t, fs, &fakeFile{})
	const n = 200
	for i := range uint64(n) {
		k.send(request(1, 2*i+2, 1, "wait"))
		<-fs.waiting
	}
	k.send(request(1, 5000, 1, "found"))
	if unique, st, _ := k.answer(); unique != 5000 || st != fuse.OK {
		t.Errorf("behind those that wait: number %d, %v", unique, st)
	}
	for range uint64(n) {
		k.send(request(opForget, 0, 7, uint64(1)))
	}
	k.loop.large.mu.Lock()
	taken, spare := k.loop.large.taken, len(k.loop.large.spare)
	k.loop.large.mu.Unlock()
	if taken > maxIdle+1 || taken+spare > maxKept {
		t.Errorf("%d large buffers taken, %d spare", taken, spare)
	}
	close(fs.goOn)
	seen := map[uint64]bool{}
	for range uint64(n) {
		unique, st, _ := k.answer()
		if seen[unique] || st != fuse.OK {
			t.Errorf("number %d: %v, answered before: %v", unique, st, seen[unique])
		}
		seen[unique] = true
	}
	for end := time.Now().Add(10 * time.Second); k.loop.idle.Load() > maxIdle; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d readers are idle", k.loop.idle.Load())
		}
	}
	k.end()
	if f := fs.forgets.Load(); f != n {
		t.Errorf("%d of %d forgotten", f, n)
	}
	if k.loop.large.taken != 0 {
		t.Errorf("%d large buffers were not given back", k.loop.large.taken)
	}
}

// A small request leaves its reader's buffer, which may be unmapped before it is answered.
func TestLoopGivesBufferBack(t *testing.T) {
	k := serveFake(t, newFakeFS(), &fakeFile{})
	k.loop.large.mu.Lock()
	k.loop.large.taken += maxKept // each buffer that is given back is unmapped
	k.loop.large.mu.Unlock()
	for i := range uint64(50) {
		k.send(request(1, 2*i+2, 1, "found"))
		if unique, st, _ := k.answer(); unique != 2*i+2 || st != fuse.OK {
			t.Fatalf("number %d, %v; want %d", unique, st, 2*i+2)
		}
	}
}

// What the kernel sends again is read by one reader at a time, each of which has entered a round before the
// next one reads, until the first fresh request.
func TestLoopInOrder(t *testing.T) {
	fs := newFakeFS()
	k := fakeLoop(t, fs, &fakeFile{})
	k.loop.takenOver = true
	k.begin()
	alone := func() bool {
		if !k.loop.inOrder.TryLock() {
			return true
		}
		k.loop.inOrder.Unlock()
		return false
	}
	for i := range uint64(5) {
		unique := 2*i + 2 | resent
		k.send(request(1, unique, 1, "found"))
		if got, st, _ := k.answer(); got != unique || st != fuse.OK {
			t.Errorf("number %x, %v; want %x", got, st, unique)
		}
		for end := time.Now().Add(10 * time.Second); !alone(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("who waits for what the kernel sends again is not alone")
			}
		}
	}
	// Each reader that waited before reads one, whichever is woken.
	for i := uint64(0); i < maxIdle+2 || alone(); i++ {
		if i == 10_000 {
			t.Fatal("readers wait for each other after a fresh request")
		}
		k.send(request(1, 2*i+100, 1, "found"))
		k.answer()
	}
}

// An INTERRUPT reaches whoever waits, once. To a READ in hand it says nothing, and is not answered; to what
// is not in hand (yet) EAGAIN has the kernel send it again.
func TestLoopInterrupt(t *testing.T) {
	fs := newFakeFS()
	file := &fakeFile{waiting: make(chan struct{}, 1), goOn: make(chan struct{})}
	k := serveFake(t, fs, file)
	k.send(request(1, 2, 1, "wait"))
	<-fs.waiting
	k.send(request(opInterrupt, 3, 0, uint64(2)))
	if unique, st, _ := k.answer(); unique != 2 || st != fuse.EINTR {
		t.Errorf("interrupted: number %d, %v", unique, st)
	}
	k.send(request(opInterrupt, 5, 0, uint64(4)))
	if unique, st, _ := k.answer(); unique != 5 || st != fuse.EAGAIN {
		t.Errorf("of nothing: number %d, %v", unique, st)
	}
	k.send(readRequest(6, 4, 4096))
	<-file.waiting
	k.send(request(opInterrupt, 7, 0, uint64(6)))
	k.send(request(1, 8, 1, "found"))
	if unique, _, _ := k.answer(); unique != 8 {
		t.Errorf("number %d is answered", unique)
	}
	close(file.goOn)
	if unique, st, _ := k.answer(); unique != 6 || st != fuse.OK {
		t.Errorf("the READ: number %d, %v", unique, st)
	}
}

// When the mount goes, those that wait are told, and the loop ends after the last of them.
func TestLoopEnds(t *testing.T) {
	fs := newFakeFS()
	fs.dead = make(chan struct{})
	k := serveFake(t, fs, &fakeFile{})
	k.send(request(1, 2, 1, "wait"))
	<-fs.waiting
	unix.Shutdown(k.fd, unix.SHUT_WR) // the end is read; answers are still taken
	select {
	case <-k.loop.dead:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody is told")
	}
	select {
	case <-k.done:
		t.Error("the loop ended with a request in hand")
	case <-time.After(20 * time.Millisecond):
	}
	close(fs.dead)
	<-k.done
	if _, st, _ := k.answer(); st != fuse.EIO {
		t.Errorf("the last answer: %v", st)
	}
	if _, err := k.loop.dev.RegisterBacking(0); err != unix.EBADF {
		t.Errorf("an ioctl after the end: %v", err)
	}
	k.loop.dev.InvalidateData(7, 0, 0)
}

// until ends with the mount as it ends with the caller.
func TestUntil(t *testing.T) {
	for _, c := range []struct{ dead, cancel bool }{{dead: true}, {cancel: true}} {
		s := &Server{dead: make(chan struct{})}
		cancel := make(chan struct{})
		ctx, stop := s.until(cancel)
		if c.dead {
			close(s.dead)
		}
		if c.cancel {
			close(cancel)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			t.Errorf("%+v: goes on", c)
		}
		stop()
	}
}

// A handler that panics ends the process: it may have left a lock held.
func TestLoopPanic(t *testing.T) {
	if os.Getenv("FUSEFS_PANIC") != "" {
		k := serveFake(t, newFakeFS(), &fakeFile{})
		k.send(request(1, 2, 1, "panic"))
		k.answer()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLoopPanic$")
	cmd.Env = append(os.Environ(), "FUSEFS_PANIC=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("panic: as a handler does")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestScratch(t *testing.T) {
	var s scratch
	for _, c := range []struct{ n, size int }{
		{0, 4096}, {1, 4096}, {4096, 4096}, {4097, 8192}, {1 << 20, 1 << 20}, {1<<20 + 1, 2 << 20},
		{2<<20 + 1, 2<<20 + 1},
	} {
		b := s.get(c.n)
		if len(*b) != c.size {
			t.Errorf("%d bytes: a buffer of %d", c.n, len(*b))
		}
		s.put(b)
	}
}
