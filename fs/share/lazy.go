package share

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/heads"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// lazy makes names appear that others published: those of a folder when somebody looks into it.
//
//	fetched    grows with each fetch that found something; what was missed before is asked for again
//	upToDate   of each folder that was looked into: fetched as it was then
//	failed     folders that could not be brought up to date: they stay as they are until a fetch succeeds
//	making     folders that are brought up to date now: what appears in them is not published before it is
//	           known
//	quiet      names that are removed because others removed them: that is not to be published again
type lazy struct {
	s     *Share
	group singleflight.Group // by folder
	// changing is held shared while names are made, which have other names for a moment.
	changing sync.RWMutex

	mu        sync.Mutex
	fetched   uint64
	upToDate  map[string]uint64
	failed    map[string]bool
	making    map[string]bool
	quiet     map[string]bool
	conflicts map[string]bool // names of which the remote has several versions
	hidden    map[string]bool // names that do not appear as long as another is there

	tellings tellings
}

func newLazy(s *Share) *lazy {
	return &lazy{s: s, fetched: 1, tellings: tellings{wake: make(chan struct{}, 1)},
		upToDate: map[string]uint64{}, failed: map[string]bool{}, making: map[string]bool{},
		quiet: map[string]bool{}, conflicts: map[string]bool{}, hidden: map[string]bool{}}
}

// lookTimeout bounds for how long a lookup waits for the remote: what was seen last is shown then.
const lookTimeout = 20 * time.Second

// Ensure brings the names in a folder up to date with what the remote said at the last fetch: one level, with
// stubs for files. "" is the mount's root, in which runs/ appears. Without the network the folder stays as it
// was; ctx ends the wait alone.
func (s *Share) Ensure(ctx context.Context, at string) {
	if at == "" || record.Below(at, steps.Dir) {
		s.lazy.ensure(ctx, at)
	}
}

// EnsureBelow is Ensure of a folder, and of all folders below it.
func (s *Share) EnsureBelow(ctx context.Context, at string) error {
	s.Ensure(ctx, "")
	if !record.Below(at, steps.Dir) {
		return nil
	}
	for i, c := range at { // the folders above come first
		if c == '/' {
			s.Ensure(ctx, at[:i])
		}
	}
	return s.lazy.below(ctx, at)
}

func (z *lazy) ensure(ctx context.Context, at string) {
	z.mu.Lock()
	fetched := z.fetched
	is := z.upToDate[at] == fetched
	z.mu.Unlock()
	if is {
		return
	}
	done := z.group.DoChan(at, func() (any, error) {
		ctx, end := context.WithTimeout(context.Background(), lookTimeout)
		defer end()
		z.bring(ctx, at, fetched)
		return nil, nil
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// errAgain: something in a folder is in use, or was changed here. It is looked at again after the next fetch.
var errAgain = errors.New("to be looked at again")

// bring brings a folder up to date, and notes that it is.
func (z *lazy) bring(ctx context.Context, at string, fetched uint64) {
	err := z.level(ctx, at)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.upToDate[at] = fetched
	if err == nil {
		return
	}
	if z.failed[at] = true; errors.Is(err, errAgain) {
		return
	}
	z.s.o.Report(slog.LevelWarn, "names that others published may be missing", "path", at, "reason", err)
}

// below brings up to date a folder and all below it.
func (z *lazy) below(ctx context.Context, at string) error {
	z.ensure(ctx, at)
	n, err := z.s.o.Names.Resolve(at)
	if err != nil {
		return gone(err)
	}
	defer n.Unpin()
	if !n.IsDir() {
		return nil
	}
	list, err := n.ListQuietly()
	if err != nil {
		return gone(err)
	}
	for _, e := range list {
		if e.Mode&unix.S_IFMT != unix.S_IFDIR || strings.HasPrefix(e.Name, ".") {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := z.below(ctx, path.Join(at, e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// found notes that a fetch succeeded. changed: it found something.
func (z *lazy) found(changed bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for at := range z.failed {
		z.upToDate[at] = 0
	}
	clear(z.failed)
	if changed {
		z.fetched++
	}
}

// refresh brings the folders up to date that somebody looked into: the kernel knows names in them, and asks
// for none of these again.
func (z *lazy) refresh(ctx context.Context) {
	z.mu.Lock()
	var dirs []string
	for at, fetched := range z.upToDate {
		if fetched != z.fetched {
			dirs = append(dirs, at)
		}
	}
	z.mu.Unlock()
	slices.SortFunc(dirs, record.ComparePaths)
	for _, at := range dirs {
		if ctx.Err() != nil {
			return
		}
		z.ensure(ctx, at)
	}
}

// isMaking reports whether names in a folder appear just now.
func (z *lazy) isMaking(at string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.making[at]
}

func (z *lazy) setMaking(at string, is bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if is {
		z.making[at] = true
	} else {
		delete(z.making, at)
	}
}

// went notes that a program removed a name: another may appear in its place.
func (z *lazy) went(p string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.hidden[p] {
		delete(z.hidden, p)
		z.upToDate[path.Dir(p)] = 0
	}
}

func (z *lazy) isQuiet(p string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.quiet[p]
}

// quietly calls f, which removes a name that others removed.
func (z *lazy) quietly(p string, f func() error) error {
	z.mu.Lock()
	z.quiet[p] = true
	z.mu.Unlock()
	defer func() {
		z.mu.Lock()
		delete(z.quiet, p)
		z.mu.Unlock()
	}()
	return f()
}

// said reads what the heads say of the names in a folder.
func (z *lazy) said(ctx context.Context, at string) ([]heads.Of, error) {
	if at == steps.Dir {
		return z.s.heads.Folders(ctx)
	}
	return z.s.heads.Below(ctx, at)
}

// level brings one folder up to date.
func (z *lazy) level(ctx context.Context, at string) error {
	s := z.s
	if at == "" {
		return z.root(ctx)
	}
	all, err := z.said(ctx, at)
	if err != nil || len(all) == 0 {
		return err
	}
	dir, err := s.o.Names.Resolve(at)
	if err != nil {
		return gone(err)
	}
	defer dir.Unpin()
	if !dir.IsDir() {
		return nil
	}
	l := &level{lazy: z, at: at, dir: dir, lists: entriesOf(all),
		pull: pull{Share: s, stubs: true, announce: z.tellings.add, notes: map[string][]byte{}}}
	err = errors.Join(l.locked(ctx), l.removeFolders(ctx))
	if err == nil && (l.again || len(l.out.Skipped) > 0) {
		err = errAgain
	}
	return err
}

// root makes the folder of runs.
func (z *lazy) root(ctx context.Context) error {
	if there, err := z.s.exists(steps.Dir); there || err != nil {
		return err
	}
	all, err := z.s.heads.Folders(ctx)
	if err != nil || len(rnames.Level(steps.Dir, entriesOf(all)...)) == 0 {
		return err
	}
	n, _, err := z.s.o.Tree.Mkdir(z.s.o.Names.Root(), steps.Dir, 0o755, self())
	if err != nil {
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return err
	}
	z.tellings.add(z.s.o.Names.Root(), steps.Dir)
	n.Unpin()
	return nil
}

// level is a folder that is brought up to date.
type level struct {
	*lazy
	pull
	at    string
	dir   *names.Node
	lists [][]record.Entry

	here    map[string]tree.DirEntry // what it has
	was     map[string]*known
	folders map[string]bool // by name: whether heads say of names in it
	gone    []string        // folders that others removed
	again   bool            // some of it is in use, and is to be looked at again
}

// locked brings all up to date but for folders that others removed.
func (l *level) locked(ctx context.Context) error {
	z := l.lazy
	z.changing.RLock()
	defer z.changing.RUnlock()
	z.setMaking(l.at, true)
	defer z.setMaking(l.at, false)
	err := errors.Join(l.make(ctx), l.flush())
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, s := range l.out.Skipped {
		z.hidden[s.Path] = true
	}
	return err
}

// make makes the names that are missing, replaces those that others replaced, and removes those that others
// removed.
func (l *level) make(ctx context.Context) error {
	if err := l.look(); err != nil {
		return err
	}
	nodes := rnames.Level(l.at, l.lists...)
	if err := l.plans(nodes); err != nil {
		return err
	}
	l.folders = map[string]bool{}
	for i := range nodes {
		l.folders[path.Base(nodes[i].Path)] = nodes[i].Folder
	}
	nodes = slices.DeleteFunc(nodes, func(n rnames.Node) bool { return !l.wants(&n) })
	if l.at == steps.Dir {
		nodes = slices.DeleteFunc(nodes, func(n rnames.Node) bool { return l.empty(ctx, &n) })
	}
	var errs []error
	for i := range nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.pull.node(ctx, &nodes[i]); err != nil {
			errs = append(errs, err) // the others are there, all the same
		}
	}
	return errors.Join(append(errs, l.removed())...)
}

// plans keeps where the plans of files are, before these have their names.
func (l *level) plans(nodes []rnames.Node) error {
	var files []*record.File
	for i := range nodes {
		e := nodes[i].Name
		if e == nil || e.File == nil || e.File.Manifest.IsZero() {
			continue
		}
		had, err := l.o.State.File(e.File.Manifest)
		if err != nil {
			return err
		}
		if had == nil || had.Plan != e.File.Plan {
			files = append(files, e.File)
		}
	}
	return l.o.State.SetFiles(files)
}

// look finds out what the folder has, and what is known of that.
func (l *level) look() error {
	list, err := l.dir.ListQuietly()
	if err != nil {
		return err
	}
	l.here = make(map[string]tree.DirEntry, len(list))
	for _, e := range list {
		l.here[e.Name] = e
	}
	l.was = map[string]*known{}
	return l.o.State.EachName(l.at, func(p string, b []byte) error {
		if path.Dir(p) != l.at {
			return nil
		}
		k, err := decodeKnown(p, b)
		if err == nil { // else it is found out again
			l.was[path.Base(p)] = k
		}
		return nil
	})
}

// wants reports whether a name is to be made, or compared with what is there.
func (l *level) wants(n *rnames.Node) bool {
	name := path.Base(n.Path)
	l.noteConflict(n)
	if !mayPublish(name) || record.CheckPath(n.Path) != nil {
		return false
	}
	_, here := l.here[name]
	was := l.was[name]
	if n.Name == nil {
		return !here
	}
	return !here || was == nil || was.content != contentOf(n.Name) || !slices.Equal(was.tips, n.Shown())
}

// inConflict reports whether the remote has several versions of a name in a folder that somebody looked into.
func (z *lazy) inConflict(p string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.conflicts[p]
}

func (l *level) noteConflict(n *rnames.Node) {
	l.lazy.mu.Lock()
	defer l.lazy.mu.Unlock()
	if len(n.Conflicts) > 0 {
		l.lazy.conflicts[n.Path] = true
	} else {
		delete(l.lazy.conflicts, n.Path)
	}
}

// empty reports whether all of a run is removed whose folder nobody has an entry of. Its names are read for
// that.
func (l *level) empty(ctx context.Context, n *rnames.Node) bool {
	if n.Name == nil || n.Name.Version > 0 {
		return false
	}
	nodes, err := l.nodes(ctx, n.Path)
	return err != nil || len(nodes) == 0
}

// removed removes what others removed of what is as it is known.
func (l *level) removed() error {
	said := map[string][]*record.Entry{}
	for p, held := range rnames.Paths(l.lists...) {
		if path.Dir(p) == l.at {
			said[path.Base(p)] = held
		}
	}
	var errs []error
	for name, was := range l.was {
		if _, here := l.here[name]; !here || !l.deleted(name, said[name], was.tips) {
			continue
		}
		err := l.remove(path.Join(l.at, name), name, was)
		if errors.Is(err, errChanged) {
			l.again, err = true, nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// deleted reports whether a name is no more because what was shown of it was removed. That heads say nothing
// of it shows that only of a stub: bytes that are here are not removed on that.
func (l *level) deleted(name string, held []*record.Entry, shown []record.Replaced) bool {
	if m := rnames.Merge(held); m.Name != nil || l.folders[name] {
		return false
	}
	if len(held) == 0 {
		return l.at != steps.Dir && len(l.heads.Problems()) == 0 && l.hasStub(name)
	}
	return !slices.ContainsFunc(shown, func(r record.Replaced) bool {
		return !slices.ContainsFunc(held, func(e *record.Entry) bool {
			return e.Origin == r.Writer && e.Version >= r.Version || slices.ContainsFunc(e.Over,
				func(o record.Replaced) bool { return o.Writer == r.Writer && o.Version >= r.Version })
		})
	})
}

func (l *level) hasStub(name string) bool {
	n, _, err := l.o.Names.Child(l.dir, name)
	if err != nil {
		return false
	}
	defer n.Unpin()
	return isStub(n)
}

// remove removes a name that is as it is known. It is moved aside first: what a program did to it until then
// brings it back.
func (l *level) remove(p, name string, was *known) error {
	s := l.Share
	n, _, err := s.o.Names.Child(l.dir, name)
	if err != nil {
		return gone(err)
	}
	defer n.Unpin()
	if n.IsDir() {
		l.gone = append(l.gone, name)
		return nil
	}
	before, err := l.unchanged(n, p, was)
	if err != nil {
		return err
	}
	return l.lazy.quietly(p, func() error {
		to := aside + strconv.FormatUint(n.Ino(), 10) // a kill leaves it to be looked at
		if err := s.o.Tree.Rename(l.dir, name, l.dir, to, unix.RENAME_NOREPLACE); err != nil {
			return gone(err)
		}
		l.announce(l.dir, name)
		if err := l.isStill(l.dir, to, n, before); err != nil {
			return errors.Join(err, s.o.Tree.Rename(l.dir, to, l.dir, name, unix.RENAME_NOREPLACE))
		}
		if err := s.o.Tree.Unlink(l.dir, to); err != nil {
			return err
		}
		return s.o.State.SetNames(map[string][]byte{p: nil})
	})
}

// removeFolders removes the folders that others removed, if nothing else is in them.
func (l *level) removeFolders(ctx context.Context) error {
	var errs []error
	for _, name := range l.gone {
		errs = append(errs, l.removeFolder(ctx, path.Join(l.at, name), name))
	}
	return errors.Join(errs...)
}

func (l *level) removeFolder(ctx context.Context, p, name string) error {
	s := l.Share
	if err := l.lazy.below(ctx, p); err != nil {
		return err
	}
	return l.lazy.quietly(p, func() error {
		err := s.o.Tree.Rmdir(l.dir, name)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || gone(err) == nil && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		l.announce(l.dir, name)
		return s.o.State.SetNames(map[string][]byte{p: nil})
	})
}

// tellings tells the kernel of names that appeared, were replaced or went: never from a goroutine that a
// request waits for, since the kernel holds the folder until that is answered.
type tellings struct {
	mu      sync.Mutex
	waiting []telling
	wake    chan struct{}
}

type telling struct {
	dir  content.NodeID
	name string
}

func (t *tellings) add(dir *names.Node, name string) {
	t.mu.Lock()
	t.waiting = append(t.waiting, telling{dir.ID(), name})
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run tells the kernel until ctx ends.
func (t *tellings) run(ctx context.Context, kernel func() content.Kernel) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		t.mu.Lock()
		all := t.waiting
		t.waiting = nil
		t.mu.Unlock()
		for _, one := range all {
			kernel().InvalidateName(one.dir, one.name)
		}
	}
}
