package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of a test for something that happens in the background.
const patience = 20 * time.Second

// rig is a volume as the kernel uses it: every lookup is counted and forgotten, every handle released. Paths are
// relative to the mount's root. Without a Kernel the handles are served.
type rig struct {
	t testing.TB
	*Volume
	dir string // the store's folder
	log *logbook
	me  Caller
}

// logbook keeps what the volume reports.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (l *logbook) report(level slog.Level, msg string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(level, " ", msg, " ", fmt.Sprintln(args...)))
}

func (l *logbook) has(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		n := 0
		for _, w := range words {
			if strings.Contains(line, w) {
				n++
			}
		}
		if n == len(words) {
			return true
		}
	}
	return false
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}

// newRig makes a store and opens it. Everything is kept resident unless set says otherwise.
func newRig(t testing.TB, set ...func(*Options)) *rig {
	t.Helper()
	return openRig(t, filepath.Join(t.TempDir(), "store"), set...)
}

func hotSize(n int64) func(*Options) { return func(o *Options) { o.HotSize = n } }

func openRig(t testing.TB, dir string, set ...func(*Options)) *rig {
	t.Helper()
	log := &logbook{}
	o := Options{Dir: dir, Create: true, HotSize: 1 << 40, CacheBytes: 8 << 20, Log: log.report}
	for _, f := range set {
		f(&o)
	}
	v, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v\n%s", err, log)
	}
	r := &rig{t: t, Volume: v, dir: dir, log: log, me: Caller{uint32(os.Getuid()), uint32(os.Getgid())}}
	t.Cleanup(func() {
		r.close()
		if t.Failed() && len(log.lines) > 0 {
			t.Logf("reported:\n%s", log)
		}
	})
	return r
}

func (r *rig) close() {
	if !r.closing.Load() {
		if err := r.Close(context.Background()); err != nil {
			r.t.Errorf("close: %v", err)
		}
	}
}

// reopen closes the store in order and opens it again, and waits until it has looked at every file.
func (r *rig) reopen(set ...func(*Options)) *rig {
	r.t.Helper()
	r.close()
	r = openRig(r.t, r.dir, set...)
	<-r.surveyed
	return r
}

// crashed opens what a kill -9 would leave now: a copy of the store's folder, with its attributes.
func (r *rig) crashed(set ...func(*Options)) *rig {
	r.t.Helper()
	return openRig(r.t, r.copyStore(), set...)
}

func (r *rig) copyStore() string {
	r.t.Helper()
	to := filepath.Join(r.t.TempDir(), "store")
	if out, err := exec.Command("cp", "-a", r.dir, to).CombinedOutput(); err != nil {
		r.t.Fatalf("cp -a: %v\n%s", err, out)
	}
	return to
}

// at is a path in the store's folder.
func (r *rig) at(elem ...string) string { return filepath.Join(append([]string{r.dir}, elem...)...) }

func (r *rig) forget(n *Node) {
	if n != r.root {
		r.Forget(n.id, 1)
	}
}

// lookup finds a path; the caller forgets the node.
func (r *rig) lookup(p string) (*Node, Attr, error) {
	n := r.root
	a, err := r.Stat(n)
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || err != nil {
			continue
		}
		var next *Node
		next, a, err = r.Lookup(n, name)
		r.forget(n)
		n = next
	}
	return n, a, err
}

func (r *rig) find(p string) *Node {
	r.t.Helper()
	n, _, err := r.lookup(p)
	if err != nil {
		r.t.Fatalf("look up %s: %v", p, err)
	}
	return n
}

// dirOf finds the directory of a path and the name in it; the caller forgets the directory.
func (r *rig) dirOf(p string) (*Node, string) {
	r.t.Helper()
	dir, name := path.Split(p)
	return r.find(dir), name
}

func (r *rig) stat(p string) Attr {
	r.t.Helper()
	n, a, err := r.lookup(p)
	if err != nil {
		r.t.Fatalf("stat %s: %v", p, err)
	}
	r.forget(n)
	return a
}

func (r *rig) exists(p string) bool {
	n, _, err := r.lookup(p)
	if err == nil {
		r.forget(n)
	}
	return err == nil
}

func (r *rig) mkdir(p string) {
	r.t.Helper()
	dir := r.root
	for name := range strings.SplitSeq(p, "/") {
		n, _, err := r.Mkdir(dir, name, 0o755, r.me)
		if err == unix.EEXIST {
			n, _, err = r.Lookup(dir, name)
		}
		if err != nil {
			r.t.Fatalf("mkdir %s: %v", p, err)
		}
		r.forget(dir)
		dir = n
	}
	r.forget(dir)
}

// openFile is one try of open(2); the handle holds the node.
func (r *rig) openFile(p string, flags uint32) (*Handle, error) {
	r.t.Helper()
	dir, name := r.dirOf(p)
	defer r.forget(dir)
	n, _, err := r.Lookup(dir, name)
	if err == unix.ENOENT && flags&unix.O_CREAT != 0 {
		n, _, h, err := r.Create(dir, name, 0o644, flags, r.me)
		if err == nil {
			r.forget(n)
		}
		return h, err
	}
	if err != nil {
		return nil, err
	}
	defer r.forget(n)
	return r.Open(n, flags)
}

// open is openFile; as the kernel does, it looks the name up anew, once, after ESTALE.
func (r *rig) open(p string, flags uint32) *Handle {
	r.t.Helper()
	h, err := r.openFile(p, flags)
	if err == unix.ESTALE {
		h, err = r.openFile(p, flags)
	}
	if err != nil {
		r.t.Fatalf("open %s: %v", p, err)
	}
	return h
}

func (r *rig) writeAt(h *Handle, data []byte, off int64) {
	r.t.Helper()
	const request = 1 << 20
	for len(data) > 0 {
		n, err := r.Write(h, data[:min(request, len(data))], off)
		if err != nil {
			r.t.Fatalf("write at %d: %v", off, err)
		}
		data, off = data[n:], off+int64(n)
	}
}

func (r *rig) release(h *Handle) {
	r.Flush(h)
	r.Release(h)
}

// write makes p a file of these bytes.
func (r *rig) write(p string, data []byte) {
	r.t.Helper()
	h := r.open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	r.writeAt(h, data, 0)
	r.release(h)
}

// patch writes into an existing file.
func (r *rig) patch(p string, data []byte, off int64) {
	r.t.Helper()
	h := r.open(p, unix.O_RDWR)
	r.writeAt(h, data, off)
	r.release(h)
}

// readHandle reads to the end, in requests of an odd length.
func (r *rig) readHandle(h *Handle) ([]byte, error) {
	var out []byte
	buf := make([]byte, 256<<10+1000)
	for {
		n, err := r.Read(h, buf, int64(len(out)))
		if n == 0 || err != nil {
			return out, err
		}
		out = append(out, buf[:n]...)
	}
}

func (r *rig) tryRead(p string) ([]byte, error) {
	r.t.Helper()
	h, err := r.openFile(p, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer r.release(h)
	return r.readHandle(h)
}

func (r *rig) read(p string) []byte {
	r.t.Helper()
	got, err := r.tryRead(p)
	if err != nil {
		r.t.Fatalf("read %s: %v", p, err)
	}
	return got
}

// same fails unless p has these bytes and stat says so too.
func (r *rig) same(p string, want []byte) {
	r.t.Helper()
	if a := r.stat(p); a.Size != int64(len(want)) {
		r.t.Errorf("%s: size %d, want %d (%s)", p, a.Size, len(want), r.state(p))
	}
	r.equal(p, r.read(p), want)
}

func (r *rig) equal(what string, got, want []byte) {
	r.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	r.t.Errorf("%s: %d bytes, want %d; the first difference is at %d", what, len(got), len(want), i)
}

// The states of a file as state names them.
const (
	resident = "resident"
	both     = "resident+packed"
	packed   = "packed"
	nothing  = "empty"
)

func (r *rig) state(p string) string {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	return stateOf(n)
}

func stateOf(n *Node) string {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.rec.Packed() && f.resident:
		return both
	case f.rec.Packed():
		return packed
	case f.resident:
		return resident
	}
	return nothing
}

func (r *rig) want(p, state string) {
	r.t.Helper()
	if got := r.state(p); got != state {
		r.t.Fatalf("%s is %s, want %s", p, got, state)
	}
}

func (r *rig) sync() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Sync(ctx, nil); err != nil {
		r.t.Fatalf("sync: %v", err)
	}
}

// pack syncs and fails unless p was packed.
func (r *rig) pack(p string) {
	r.t.Helper()
	r.sync()
	if s := r.state(p); s != both && s != packed {
		r.t.Fatalf("%s is %s after a sync", p, s)
	}
}

// evictAll drops the raw copies of all packed files, those too that are being made of files that were read.
func (r *rig) evictAll() {
	r.t.Helper()
	r.awaitHydrator()
	m, err := r.Evict(context.Background(), "", nil)
	if err != nil {
		r.t.Fatalf("evict: %v", err)
	}
	if len(m.Skipped) > 0 {
		r.t.Fatalf("evict skipped %v", m.Skipped)
	}
}

// packOut packs p and drops its raw copy.
func (r *rig) packOut(p string) {
	r.t.Helper()
	r.pack(p)
	r.evictAll()
	r.want(p, packed)
}

func (r *rig) awaitHydrator() {
	r.t.Helper()
	r.eventually("the hydrator rests", func() bool {
		r.hydrator.mu.Lock()
		defer r.hydrator.mu.Unlock()
		return len(r.hydrator.in) == 0
	})
}

func (r *rig) hydrateAll() {
	r.t.Helper()
	if _, err := r.Hydrate(context.Background(), "", nil); err != nil {
		r.t.Fatalf("hydrate: %v", err)
	}
}

func (r *rig) unlink(p string) {
	r.t.Helper()
	dir, name := r.dirOf(p)
	defer r.forget(dir)
	if err := r.Unlink(dir, name); err != nil {
		r.t.Fatalf("unlink %s: %v", p, err)
	}
}

func (r *rig) tryRename(from, to string, flags uint32) error {
	r.t.Helper()
	fd, fn := r.dirOf(from)
	defer r.forget(fd)
	td, tn := r.dirOf(to)
	defer r.forget(td)
	return r.Rename(fd, fn, td, tn, flags)
}

func (r *rig) rename(from, to string) {
	r.t.Helper()
	if err := r.tryRename(from, to, 0); err != nil {
		r.t.Fatalf("rename %s to %s: %v", from, to, err)
	}
}

func (r *rig) link(from, to string) {
	r.t.Helper()
	n := r.find(from)
	defer r.forget(n)
	dir, name := r.dirOf(to)
	defer r.forget(dir)
	if _, err := r.Link(n, dir, name); err != nil {
		r.t.Fatalf("link %s to %s: %v", from, to, err)
	}
	r.forget(n)
}

// names lists a directory, without "." and "..".
func (r *rig) names(p string) []string {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	d, err := r.OpenDir(n)
	if err != nil {
		r.t.Fatalf("open directory %s: %v", p, err)
	}
	defer r.ReleaseDir(d)
	entries, err := r.Entries(d, 0)
	if err != nil {
		r.t.Fatalf("list %s: %v", p, err)
	}
	var out []string
	for _, e := range entries {
		if e.Name != "." && e.Name != ".." {
			out = append(out, e.Name)
		}
	}
	return out
}

// rawPath is where p's raw file lies if it is resident.
func (r *rig) rawPath(p string) string {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	return r.content.Path(n.file.rec.ID)
}

// contents are the raw files in content/, by the path below it.
func (r *rig) contents() []string {
	r.t.Helper()
	out, err := filepath.Glob(r.at("content", "*", "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	return out
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

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
