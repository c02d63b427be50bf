package share

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/heads"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/names"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/share/tell"
	"ckptfs/fs/steps"
)

// lazy makes names appear that others published: those of a folder when somebody looks into it.
//
//	fetched    grows with each fetch that found something; what was missed before is asked for again
//	upToDate   of each folder that was looked into: fetched as it was then
//	failed     folders that could not be brought up to date, and why: they stay as they are until a fetch
//	           succeeds
//	making     folders that are brought up to date now: what appears in them is not published before it is
//	           known
//	untold     folders that the kernel knew when this process began: of names in them it may know what an
//	           earlier one did not come to tell
//	quiet      names that are removed because others removed them: that is not to be published again
type lazy struct {
	s     *Share
	group singleflight.Group // by folder
	// fetching is held by fetch.
	fetching sync.Mutex
	// changing is held shared while names are made, which have other names for a moment.
	changing sync.RWMutex

	mu       sync.Mutex
	fetched  uint64
	upToDate map[string]uint64
	failed   map[string]error
	making   map[string]bool
	untold   map[string]bool
	quiet    map[string]bool
	hidden   map[string]bool // names that do not appear as long as another is there
	staying  map[string]bool // folders that others replaced, and that stay for what is in them

	tellings *tell.Queue
}

func newLazy(s *Share) *lazy {
	return &lazy{s: s, fetched: 1, tellings: tell.New(),
		upToDate: map[string]uint64{}, failed: map[string]error{}, making: map[string]bool{},
		untold: map[string]bool{}, quiet: map[string]bool{}, hidden: map[string]bool{},
		staying: map[string]bool{}}
}

// Heard waits until the kernel heard of the names that appeared, were replaced or went until now, for as long
// as a request may take at most: the one that the kernel waits for may never be answered. No command about
// names answers before. Nothing is locked meanwhile.
func Heard(ctx context.Context, s *Share) {
	ctx, end := context.WithTimeout(ctx, shared.LookTimeout)
	defer end()
	s.lazy.tellings.Heard(ctx)
}

// Ensure brings the names in a folder up to date with what the remote said at the last fetch: one level, with
// stubs for files. "" is the mount's root, in which runs/ appears. Without the network the folder stays as it
// was; ctx ends the wait alone.
func (s *Share) Ensure(ctx context.Context, at string) {
	if at == "" || record.Below(at, steps.Dir) {
		_ = s.lazy.ensure(ctx, at)
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

func (z *lazy) ensure(ctx context.Context, at string) error {
	z.mu.Lock()
	want := z.fetched
	z.mu.Unlock()
	for { // what another began before a fetch says nothing of what that found
		if is, err := z.isUpToDate(at, want); is {
			return err
		}
		done := z.group.DoChan(at, func() (any, error) {
			ctx, end := context.WithCancel(context.Background())
			defer end()
			late := time.AfterFunc(shared.LookTimeout, end)
			defer late.Stop()
			z.bring(ctx, at, func() { late.Reset(shared.LookTimeout) })
			return nil, nil
		})
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isUpToDate reports whether a folder was brought up to date since a fetch, and why that failed.
func (z *lazy) isUpToDate(at string, fetched uint64) (bool, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.upToDate[at] >= fetched, z.failed[at]
}

// errAgain: something in a folder is in use, or was changed here. It is looked at again after the next fetch.
var errAgain = errors.New("to be looked at again")

// bring brings a folder up to date, and notes that it is. It says so when a name has appeared: a folder of
// very many takes its time, and shows all of them.
func (z *lazy) bring(ctx context.Context, at string, appeared func()) {
	z.mu.Lock()
	fetched := z.fetched
	if _, looked := z.upToDate[at]; !looked {
		z.upToDate[at] = 0 // a fetch comes by from here on
	}
	z.mu.Unlock()
	err := z.level(ctx, at, appeared)
	if errors.Is(err, context.Canceled) {
		err = context.DeadlineExceeded
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.upToDate[at] = fetched; err == nil {
		delete(z.failed, at)
	} else if z.failed[at] = err; !errors.Is(err, errAgain) {
		z.s.o.Report(slog.LevelWarn, "names that others published may be missing", "path", at, "reason", err)
	}
}

// below brings up to date a folder and all below it. It ends where the remote is not reached: each folder
// would wait for it.
func (z *lazy) below(ctx context.Context, at string) error {
	err := z.ensure(ctx, at)
	var asked *bucket.Error
	if errors.As(err, &asked) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	n, err := z.s.o.Names.Resolve(at)
	if err != nil {
		return shared.Gone(err)
	}
	defer n.Unpin()
	if !n.IsDir() {
		return nil
	}
	list, err := n.ListQuietly()
	if err != nil {
		return shared.Gone(err)
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

// fetch calls read, which reads heads and reports whether any changed, and notes what came of it. Others who
// fetch wait: what the first one found is noted when they have found no more.
func (z *lazy) fetch(ctx context.Context, read func(context.Context) (bool, error)) (bool, error) {
	z.fetching.Lock()
	defer z.fetching.Unlock()
	changed, err := read(ctx)
	if err == nil {
		z.found(changed)
	}
	return changed, err
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

// looked notes folders that somebody looked into before there was this Share: the kernel may know names in
// them that it was to be told of.
func (z *lazy) looked(dirs []string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, at := range dirs {
		if at == "" || record.Below(at, steps.Dir) {
			z.upToDate[at], z.untold[at] = 0, true
		}
	}
}

// tellAll reports whether the kernel is to be told of all names of a folder, once.
func (z *lazy) tellAll(at string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	is := z.untold[at]
	delete(z.untold, at)
	return is
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
		_ = z.ensure(ctx, at)
	}
	_ = z.s.o.State.Sync() // what a crash takes before is found again
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
func (z *lazy) level(ctx context.Context, at string, appeared func()) error {
	s := z.s
	if at == "" {
		return z.root(ctx)
	}
	if at != steps.Dir && !z.shows(shared.Run(at)) {
		return nil
	}
	all, err := z.said(ctx, at)
	if err != nil {
		return err
	}
	if len(all) == 0 { // what was removed long ago is not said any more, and stubs of it may be here
		if has, err := s.has(at); !has || err != nil || at == steps.Dir {
			return err
		}
	}
	dir, err := s.o.Names.Resolve(at)
	if err != nil {
		return shared.Gone(err)
	}
	defer dir.Unpin()
	lists := heads.Lists(all)
	if !dir.IsDir() {
		if len(rnames.Level(at, lists...)) > 0 { // perhaps it is replaced by a folder later
			return errAgain
		}
		return nil
	}
	for range 2 { // once more when what others removed has gone from folders that they replaced
		l := &level{lazy: z, at: at, dir: dir, lists: lists, appeared: appeared,
			pull: pull{Share: s, stubs: true, announce: z.tellings.Add, notes: map[string][]byte{},
				cut: map[string]bool{}, full: map[string]*record.Entry{}}}
		err = errors.Join(l.locked(ctx), l.clearLeft(ctx), l.removeFolders(ctx))
		if err == nil && (l.again || len(l.out.Skipped) > 0) {
			err = errAgain
		}
		if err != nil && !errors.Is(err, errAgain) {
			return err
		}
		if again, ferr := l.emptied(ctx); ferr != nil || !again {
			return errors.Join(err, ferr)
		}
	}
	return err
}

// shows reports whether others' names in a run appear here at all.
func (z *lazy) shows(run string) bool {
	if len(z.s.o.Runs) == 0 {
		return true
	}
	return slices.ContainsFunc(z.s.o.Runs, func(pattern string) bool {
		is, err := path.Match(pattern, path.Base(run))
		return is && err == nil
	})
}

// root makes the folder of runs.
func (z *lazy) root(ctx context.Context) error {
	dir, err := z.s.o.Names.Resolve(steps.Dir)
	if err == nil {
		defer dir.Unpin()
		if z.tellAll("") && !names.IsPast(z.s.o.Names, dir.Ino()) {
			z.tellings.Add(z.s.o.Names.Root(), steps.Dir)
		}
		return nil
	}
	if shared.Gone(err) != nil {
		return err
	}
	all, err := z.s.heads.Folders(ctx)
	if err != nil || len(rnames.Level(steps.Dir, heads.Lists(all)...)) == 0 {
		return err
	}
	n, _, err := z.s.o.Tree.Mkdir(z.s.o.Names.Root(), steps.Dir, 0o755, self())
	if err != nil {
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return err
	}
	z.tellings.Add(z.s.o.Names.Root(), steps.Dir)
	n.Unpin()
	return nil
}
