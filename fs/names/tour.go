package names

import (
	"context"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/tree"
)

// Tour is a walk over the regular files of the tree by several goroutines. Each takes a folder, or some names
// of one, at a time, and has to be given its turn for that, but for one that always goes on.
type Tour struct {
	Workers int // at most; 0: one
	// Turn waits until a goroutine may work, which it does until over. nil: it always may.
	Turn func(ctx context.Context) (over func(), err error)
	// Only says, by the number that its folder has for it, which files are looked at; nil: all are.
	Only func(ino uint64) bool
	// File is called with each file, by several goroutines. Its error ends the tour. st is how the inode was
	// found, nil if it was not looked at.
	File func(path string, n *Node, st *unix.Stat_t) error
	// Failed is told of a folder that cannot be listed, or of a name that cannot be looked at. Its error ends
	// the tour. nil: see tour.passed.
	Failed func(dir *Node, path string, err error) error
	// AfterDir, if not nil, is called behind each folder and all that is below it.
	AfterDir func(path string)
}

// namesAtATime is how many names one goroutine takes: a few milliseconds' work.
const namesAtATime = 64

// Tour goes over the tree. Names that go meanwhile are passed over.
func (ns *Names) Tour(ctx context.Context, t Tour) error {
	defer ns.Tours.begin()()
	return ns.tourBelow(ctx, "", ns.root, t)
}

// tourBelow is Tour of the files at or below n, whose path is p.
func (ns *Names) tourBelow(ctx context.Context, p string, n *Node, t Tour) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.IsVirtual() || n.file == nil && !n.IsDir() {
		return nil
	}
	if n.file != nil {
		return t.File(p, n, nil)
	}
	ctx, cancel := context.WithCancel(ctx)
	u := &tour{Tour: t, ns: ns, cancel: cancel}
	if t.Failed == nil {
		u.Failed = u.passed
	}
	u.cond.L = &u.mu
	n.Pin()
	u.todo = []part{{of: newFolder(n, p, nil)}}
	var helpers sync.WaitGroup
	for range t.Workers - 1 {
		helpers.Go(func() { u.help(ctx) })
	}
	u.work(ctx)
	cancel() // nothing is left to help with
	helpers.Wait()
	u.drop()
	return u.err
}

// Tours counts those that are under way: each Tour, and each EachFile.
type Tours struct{ n atomic.Int32 }

// UnderWay reports whether one is.
func (t *Tours) UnderWay() bool { return t.n.Load() > 0 }

func (t *Tours) begin() (end func()) {
	t.n.Add(1)
	return func() { t.n.Add(-1) }
}

// tour is one under way.
type tour struct {
	Tour
	ns     *Names
	cancel context.CancelFunc

	mu     locks.Mutex[leafLock]
	cond   sync.Cond // one of these changed
	todo   []part    // the next one last
	active int       // parts that goroutines have taken
	err    error     // that ended it
}

// folder is one that is not done yet. It is pinned.
type folder struct {
	node *Node
	path string
	up   *folder // nil: the tour began here
	open atomic.Int32
}

func newFolder(n *Node, p string, up *folder) *folder {
	f := &folder{node: n, path: p, up: up}
	f.open.Store(1)
	return f
}

// part is a folder that is to be listed, or some of its names.
type part struct {
	of    *folder
	names []tree.DirEntry
}

// work goes on until all is done.
func (t *tour) work(ctx context.Context) {
	for p, ok := t.take(true); ok; p, ok = t.take(true) {
		t.do(ctx, p)
	}
}

// help works when it has its turn.
func (t *tour) help(ctx context.Context) {
	for t.wait() {
		over := func() {}
		if t.Turn != nil {
			var err error
			if over, err = t.Turn(ctx); err != nil {
				return // it ended
			}
		}
		if p, ok := t.take(false); ok {
			t.do(ctx, p)
		}
		over()
	}
}

// wait returns once there is something to do; false: there will be nothing.
func (t *tour) wait() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waitLocked()
}

func (t *tour) waitLocked() bool {
	for len(t.todo) == 0 && t.active > 0 && t.err == nil {
		t.cond.Wait()
	}
	return len(t.todo) > 0 && t.err == nil
}

// take takes the next part, if need be once there is one.
func (t *tour) take(wait bool) (p part, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait {
		t.waitLocked()
	}
	if len(t.todo) == 0 || t.err != nil {
		return p, false
	}
	p = t.todo[len(t.todo)-1]
	t.todo = t.todo[:len(t.todo)-1]
	t.active++
	return p, true
}

// do does a part. Parts that come of it are next.
func (t *tour) do(ctx context.Context, p part) {
	more, err := t.look(ctx, p)
	t.mu.Lock()
	slices.Reverse(more)
	t.todo = append(t.todo, more...)
	t.active--
	if err != nil && t.err == nil {
		t.err = err
		t.cancel()
	}
	t.cond.Broadcast()
	t.mu.Unlock()
	t.done(p.of)
}

func (t *tour) look(ctx context.Context, p part) (more []part, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := p.of
	if p.names == nil {
		names, err := f.node.ListQuietly()
		if err != nil {
			return nil, t.Failed(f.node, f.path, err)
		}
		if t.Only != nil {
			names = slices.DeleteFunc(names, func(e tree.DirEntry) bool {
				return e.Mode == unix.S_IFREG && !t.Only(e.Ino)
			})
		}
		for some := range slices.Chunk(names, namesAtATime) {
			f.open.Add(1)
			more = append(more, part{f, some})
		}
		return more, nil
	}
	for _, e := range p.names {
		if err := ctx.Err(); err != nil {
			return more, err
		}
		if e.Name == "." || e.Name == ".." ||
			e.Mode != unix.S_IFDIR && e.Mode != unix.S_IFREG && e.Mode != 0 {
			continue
		}
		at := path.Join(f.path, e.Name)
		n, st, err := t.ns.Child(f.node, e.Name)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			if err := t.Failed(f.node, at, err); err != nil {
				return more, err
			}
			continue
		}
		if n.IsDir() {
			f.open.Add(1)
			more = append(more, part{of: newFolder(n, at, f)})
			continue
		}
		if n.file != nil {
			err = t.File(at, n, &st)
		}
		n.Unpin()
		if err != nil {
			return more, err
		}
	}
	return more, nil
}

// passed is what becomes of a walk when something cannot be looked at: folders that go meanwhile, and without
// privileges those that their owner has locked, are left out.
func (t *tour) passed(dir *Node, p string, err error) error {
	switch {
	case err == unix.ENOENT:
		return nil
	case err == unix.EACCES && !t.ns.privileged:
		t.ns.o.Report(slog.LevelWarn, "a locked folder is left out", "path", p)
		return nil
	}
	return err
}

// done says that a part of f is done.
func (t *tour) done(f *folder) {
	for ; f != nil && f.open.Add(-1) == 0; f = f.up {
		if t.AfterDir != nil {
			t.AfterDir(f.path)
		}
		f.node.Unpin()
	}
}

// drop lets go of what an early end left.
func (t *tour) drop() {
	t.AfterDir = nil
	for _, p := range t.todo {
		t.done(p.of)
	}
}
