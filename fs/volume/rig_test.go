package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/segment"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// patience bounds every wait of a test for something that happens in the background.
const patience = 20 * time.Second

// rig is a volume as the kernel uses it: every lookup is counted and forgotten, every handle released. Paths
// are relative to the mount's root. Without a Kernel the handles are served.
type rig struct {
	t    rapid.TB // where failures go: test, or one check of a property
	test testing.TB
	*Volume
	*Requests
	dir string // the store's folder
	log *logbook
	me  tree.Caller
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

// roomy is a disk with room, also where the machine's is nearly full.
func roomy() (size, free int64, err error) { return 1 << 40, 1 << 39, nil }

// asTheDiskIs is an option of tests whose disk is a small one of their own.
func asTheDiskIs(o *Options) { o.Disk = nil }

func hotSize(n int64) func(*Options) { return func(o *Options) { o.HotSize = n } }

// openRig opens the store in dir. After an unclean end it waits until every file was looked at.
func openRig(t testing.TB, dir string, set ...func(*Options)) *rig {
	t.Helper()
	r := openAtOnce(t, dir, set...)
	if r.recovery != nil {
		<-r.surveyed
	}
	return r
}

func openAtOnce(t testing.TB, dir string, set ...func(*Options)) *rig {
	t.Helper()
	log := &logbook{}
	o := Options{Dir: dir, Create: true, HotSize: 1 << 40, CacheBytes: 8 << 20, SumAfter: -1, IDsAfter: -1,
		HydrateAfter: -1, Log: log.report,
		Disk:        roomy,
		PackWorkers: runtime.NumCPU()} // set: packing does not wait for the tests beside this one
	for _, f := range set {
		f(&o)
	}
	v, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v\n%s", err, log)
	}
	r := &rig{t: t, test: t, Volume: v, Requests: v.Requests(), dir: dir, log: log,
		me: tree.Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
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
	r = openRig(r.test, r.dir, set...)
	<-r.surveyed
	return r
}

// withoutIndex is reopen after the index was removed.
func (r *rig) withoutIndex() *rig {
	r.t.Helper()
	r.close()
	if err := os.Remove(r.at(tree.IndexFile)); err != nil {
		r.t.Fatal(err)
	}
	return r.reopen()
}

// wantNothing prunes what removed files left, of which none is there any more.
func (r *rig) wantNothing() {
	r.t.Helper()
	r.prune(now)
	r.prune(now) // bases of what the first one took
	if c := r.check(); c.Records > 0 {
		r.t.Errorf("%d records of nothing", c.Records)
	}
}

// deltas counts the chunks of a file that are stored against others.
func (r *rig) deltas(p string) int {
	return r.countChunks(p, func(loc cas.Location) bool { return loc.Delta })
}

// rounded counts the chunks of a file that are stored as the rounding of others.
func (r *rig) rounded(p string) int {
	return r.countChunks(p, func(loc cas.Location) bool {
		return loc.Delta && loc.Stored <= segment.MaxBaseSize+1
	})
}

func (r *rig) countChunks(p string, which func(cas.Location) bool) (n int) {
	r.t.Helper()
	_, m := r.manifestOf(p)
	for _, o := range m.Objects {
		spans, err := o.Spans(r.store.Get)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, s := range spans {
			var loc [1]cas.Location
			if err := r.store.Locate([]cas.Hash{s.Hash}, loc[:]); err != nil {
				r.t.Fatal(err)
			}
			if which(loc[0]) {
				n++
			}
		}
	}
	return n
}

// crashed opens what a kill -9 would leave now: a copy of the store's folder, with its attributes.
func (r *rig) crashed(set ...func(*Options)) *rig {
	r.t.Helper()
	return openRig(r.test, r.copyStore(), set...)
}

func (r *rig) copyStore() string {
	r.t.Helper()
	to := filepath.Join(r.test.TempDir(), "store")
	if err := os.Mkdir(to, 0o700); err != nil {
		r.t.Fatal(err)
	}
	// The background goes on meanwhile, and a copy is not made in one moment. So a thing is copied before
	// those that it refers to, and nothing is being hydrated.
	r.awaitHydrator()
	script := `cd "$1" && { [ ! -e index.db ] || cp -a index.db "$2"; } && cp -a tree "$2" && for f in *; do [ -e "$2/$f" ] || cp -a "$f" "$2" || exit 1; done`
	if out, err := exec.Command("sh", "-c", script, "sh", r.dir, to).CombinedOutput(); err != nil {
		r.t.Fatalf("cp -a: %v\n%s", err, out)
	}
	return to
}

// at is a path in the store's folder.
func (r *rig) at(elem ...string) string { return filepath.Join(append([]string{r.dir}, elem...)...) }

// The states of a file as state names them.
const (
	resident = "resident"
	both     = "resident+packed"
	packed   = "packed"
)

func (r *rig) state(p string) string {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	return stateOf(n)
}

func stateOf(n *names.Node) string {
	f := n.File()
	f.Lock()
	defer f.Unlock()
	switch is := f.StateLocked(); {
	case is.Record.Hollow:
		return packed
	case is.Packed():
		return both
	}
	return resident
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

// evictAll evicts all packed files, those too that are being hydrated since they were read.
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

// packOut packs and evicts p.
func (r *rig) packOut(p string) {
	r.t.Helper()
	r.pack(p)
	r.evictAll()
	r.want(p, packed)
}

func (r *rig) awaitHydrator() {
	r.t.Helper()
	r.eventually("the hydrator rests", func() bool {
		return r.hydrator.Pending() == 0
	})
}

// buried waits until nothing keeps a file that lost its name.
func (r *rig) buried() {
	r.t.Helper()
	r.eventually("what was removed is gone", func() bool {
		kept := false
		err := r.names.EachFile(context.Background(), names.Tour{
			File: func(_ string, n *names.Node, _ *unix.Stat_t) error {
				kept = kept || n.Dead()
				return nil
			},
		})
		return err == nil && !kept
	})
}

func (r *rig) hydrateAll() {
	r.t.Helper()
	if _, err := r.Hydrate(context.Background(), "", nil); err != nil {
		r.t.Fatalf("hydrate: %v", err)
	}
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

// What the kernel asks of a node itself.

func (r *rig) Stat(n *names.Node) (tree.Attr, error)           { return n.Attr() }
func (r *rig) Readlink(n *names.Node) (string, error)          { return n.ReadlinkFor(r.me) }
func (r *rig) Path(n *names.Node) string                       { return n.Path() }
func (r *rig) Root() *names.Node                               { return r.names.Root() }
func (r *rig) OpenDir(n *names.Node) (*names.DirHandle, error) { return n.OpenDir() }

func (r *rig) ListXattr(n *names.Node, dest []byte, admin bool) (int, error) {
	return r.Volume.ListXattr(n, dest, func() bool { return admin })
}

func (r *rig) Open(n *names.Node, flags uint32) (*Handle, error) {
	return r.OpenBy(context.Background(), r.me, n, flags)
}

func (r *rig) Lookup(dir *names.Node, name string) (*names.Node, tree.Attr, error) {
	return r.Volume.Lookup(context.Background(), r.me, dir, name)
}

func (r *rig) Entries(d *names.DirHandle, pos uint64) ([]names.Listed, error) {
	return r.Volume.Entries(r.me, d, pos)
}
