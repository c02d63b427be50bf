package share

import (
	"context"
	"errors"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/names"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// level is a folder that is brought up to date.
type level struct {
	*lazy
	pull
	at    string
	dir   *names.Node
	lists [][]record.Entry

	appeared func()                   // is told of each name
	here     map[string]tree.DirEntry // what it has
	was      map[string]*known.Name
	folders  map[string]bool // by name: whether heads say of names in it
	gone     []string        // folders that others removed
	again    bool            // some of it is in use, and is to be looked at again
	left     bool            // a pull that was killed left something
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
	z.setStaying(l.at, l.full)
	return err
}

// clearLeft looks at what a pull that was killed left, unless a pull or a push is under way, which does so.
func (l *level) clearLeft(ctx context.Context) error {
	if !l.left {
		return nil
	}
	_, err := clearUnasked(ctx, l.Share, l.at)
	return err
}

// make makes the names that are missing, replaces those that others replaced, and removes those that others
// removed.
func (l *level) make(ctx context.Context) error {
	if err := l.look(); err != nil {
		return err
	}
	if l.lazy.tellAll(l.at) {
		l.tellAll()
	}
	nodes := rnames.Level(l.at, l.lists...)
	files, err := l.plans(nodes)
	if err != nil {
		return err
	}
	l.folders = map[string]bool{}
	var errs []error // the others are there, all the same
	nodes = slices.DeleteFunc(nodes, func(n rnames.Node) bool {
		none, err := l.empty(ctx, &n)
		if !none {
			l.folders[path.Base(n.Path)] = n.Folder
		}
		if err != nil {
			errs = append(errs, err)
			return true
		}
		l.appeared() // the remote may have been asked for it
		return none || !l.wants(&n)
	})
	for more := true; more; more = len(nodes) > 0 { // also for files alone
		n := min(len(nodes), mostExpected)
		some, err := l.expect(ctx, files, nodes[:n:n])
		if err != nil {
			return err
		}
		files, nodes = nil, nodes[n:]
		l.appeared()
		for i := range some {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := l.pull.node(ctx, &some[i]); err != nil {
				errs = append(errs, err)
			}
			l.appeared()
		}
	}
	return errors.Join(append(errs, l.removed(ctx))...)
}

// mostExpected is how many names are expected at a time: a look waits only so long for the first one.
const mostExpected = 1024

// plans are the files whose plans are elsewhere than is known.
func (l *level) plans(nodes []rnames.Node) (files []*record.File, err error) {
	for i := range nodes {
		e := nodes[i].Name
		if e == nil || e.File == nil || e.File.Manifest.IsZero() {
			continue
		}
		had, err := l.o.State.File(e.File.Manifest)
		if err != nil {
			return nil, err
		}
		if had == nil || had.Plan != e.File.Plan {
			files = append(files, e.File)
		}
	}
	return files, nil
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
	l.was = map[string]*known.Name{}
	return l.o.State.EachName(l.at, func(p string, b []byte) error {
		if path.Dir(p) != l.at {
			return nil
		}
		k, err := known.Decode(p, b)
		if err == nil { // else it is found out again
			l.was[path.Base(p)] = k
		}
		return nil
	})
}

// tellAll tells the kernel of each name that appeared, or went, but for those of inodes that it knows: it was
// told of these. What it asks for again is no working folder any more, and what is open has no path.
func (l *level) tellAll() {
	for name, e := range l.here {
		if !names.IsPast(l.o.Names, e.Ino) {
			l.announce(l.dir, name)
		}
	}
	for name := range l.was {
		if _, here := l.here[name]; !here {
			l.announce(l.dir, name)
		}
	}
}

// wants reports whether a name is to be made, or compared with what is there.
func (l *level) wants(n *rnames.Node) bool {
	name := path.Base(n.Path)
	if !shared.MayPublish(name) || record.CheckPath(n.Path) != nil {
		return false
	}
	if l.at == steps.Dir && !l.shows(n.Path) {
		return false
	}
	is, here := l.here[name]
	if _, left := l.here[pulling+strconv.FormatUint(is.Ino, 10)]; left {
		l.left, l.again = true, true
		return false // what a pull put aside for it is looked at first (clearLeft)
	}
	was := l.was[name]
	if n.Name == nil {
		return !here || is.Mode&unix.S_IFMT != unix.S_IFDIR ||
			!was.Bare() && !slices.Equal(was.Tips, n.Shown())
	}
	return !here || was == nil || was.Next != nil || was.Content != known.ContentOf(n.Name) ||
		!slices.Equal(was.Tips, n.Shown())
}

// empty reports whether all of a run is removed whose folder nobody has an entry of, or that was removed. Its
// names are read for that.
func (l *level) empty(ctx context.Context, n *rnames.Node) (bool, error) {
	if l.at != steps.Dir || n.Name != nil {
		return false, nil
	}
	nodes, err := l.nodes(ctx, n.Path)
	return err == nil && len(nodes) == 0, err
}

// removed removes what others removed of what is as it is known.
func (l *level) removed(ctx context.Context) error {
	said := map[string][]*record.Entry{}
	for p, held := range rnames.Paths(l.lists...) {
		if path.Dir(p) == l.at {
			said[path.Base(p)] = held
		}
	}
	var errs []error
	for name := range l.here {
		if l.at == steps.Dir && !l.shows(name) {
			continue
		}
		deleted, err := l.isDeleted(name, said[name])
		if deleted {
			err = l.remove(ctx, path.Join(l.at, name), name, l.was[name])
		}
		if errors.Is(err, errChanged) {
			l.again, err = true, nil
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, l.neverCame(said))...)
}

// neverCame forgets what was about to come before a crash, and is no more.
func (l *level) neverCame(said map[string][]*record.Entry) error {
	none := map[string]revised{}
	for name, was := range l.was {
		if _, here := l.here[name]; here || !was.Bare() || l.folders[name] ||
			rnames.Merge(said[name]).Name != nil {
			continue
		}
		none[path.Join(l.at, name)] = revised{was.Encode(), nil}
	}
	if len(none) == 0 || !l.pushing.TryLock() { // perhaps a pull makes it just now
		return nil
	}
	defer l.pushing.Unlock()
	_, err := l.revise(none, l.o.State.NoteNames)
	return err
}

// isDeleted is deleted of what is known, and of a stub of which only the heads know something.
func (l *level) isDeleted(name string, held []*record.Entry) (bool, error) {
	if was := l.was[name]; !was.Bare() {
		return l.deleted(name, held, was.Tips), nil
	} else if was != nil && was.Next != nil && l.deleted(name, held, was.Next.Tips) {
		return l.here[name].Mode&unix.S_IFMT != unix.S_IFDIR, nil // a program may have made an empty folder
	}
	if len(held) == 0 || !l.deleted(name, held, nil) {
		return false, nil
	}
	n, _, err := l.o.Names.Child(l.dir, name)
	if err != nil {
		return false, shared.Gone(err)
	}
	defer n.Unpin()
	return l.isLost(n)
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
		return !l.heads.TookOut(r) && !slices.ContainsFunc(held, func(e *record.Entry) bool {
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
func (l *level) remove(ctx context.Context, p, name string, was *known.Name) error {
	s := l.Share
	n, _, err := s.o.Names.Child(l.dir, name)
	if err != nil {
		return shared.Gone(err)
	}
	defer n.Unpin()
	if n.IsDir() {
		l.gone = append(l.gone, name)
		return nil
	}
	before, err := l.unchanged(n, p, was)
	if errors.Is(err, errChanged) { // perhaps in nothing that is published
		if _, _, herr := shown(ctx, l.Share, n, p, was); herr == nil {
			before, err = l.unchanged(n, p, was)
		}
	}
	if err != nil {
		return err
	}
	return l.lazy.quietly(p, func() error {
		to := aside + strconv.FormatUint(n.Ino(), 10) // a kill leaves it to be looked at
		if err := s.o.Tree.Rename(l.dir, name, l.dir, to, unix.RENAME_NOREPLACE); err != nil {
			return shared.Gone(err)
		}
		l.announce(l.dir, name)
		if err := l.isStill(l.dir, to, n, before); err != nil {
			return errors.Join(err, s.o.Tree.Rename(l.dir, to, l.dir, name, unix.RENAME_NOREPLACE))
		}
		if err := s.o.Tree.Unlink(l.dir, to); err != nil {
			return err
		}
		return l.forget(p)
	})
}

// forget notes that nothing is known of a name.
func (l *level) forget(p string) error {
	l.noting.Lock()
	defer l.noting.Unlock()
	return l.o.State.SetNames(map[string][]byte{p: nil})
}

// removeFolders removes the folders that others removed, if nothing else is in them.
func (l *level) removeFolders(ctx context.Context) error {
	var errs []error
	for _, name := range l.gone {
		errs = append(errs, l.removeFolder(ctx, path.Join(l.at, name), name))
	}
	return errors.Join(errs...)
}

// removeFolder waits for no push or pull: what a killed one left there is looked at by the next fetch then.
func (l *level) removeFolder(ctx context.Context, p, name string) error {
	if err := l.lazy.below(ctx, p); err != nil {
		return err
	}
	if went, err := l.rmdir(p, name); went || err != nil {
		return err
	}
	if did, err := clearUnasked(ctx, l.Share, p); !did || err != nil {
		l.again = true
		return err
	}
	_, err := l.rmdir(p, name)
	return err
}

// rmdir removes a folder unless something is in it.
func (l *level) rmdir(p, name string) (went bool, err error) {
	err = l.lazy.quietly(p, func() error {
		err := l.o.Tree.Rmdir(l.dir, name)
		if went = shared.Gone(err) == nil; err != nil {
			if shared.NotEmpty(err) {
				return nil
			}
			return shared.Gone(err)
		}
		l.announce(l.dir, name)
		return l.forget(p)
	})
	return went, err
}
