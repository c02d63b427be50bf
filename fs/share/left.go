package share

import (
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/tree"
)

// The names that what is pulled has for a moment: pulling and the inode number of what is new. Once they were
// exchanged, what was there before has that name. making is that of a link before its number is known.
const (
	working = ".ckptfs-" // begins all of them
	pulling = working + "pull-"
	making  = pulling + "new"
	aside   = working + "aside-" // begins the names of what a killed pull may have taken from a program
)

var errAside = errors.New("a pull that was killed put this aside for what was published, and a program may have written it just then: rename it, or remove it")

func pullingName(n *names.Node) string { return pulling + strconv.FormatUint(n.Ino(), 10) }

// Shares reports whether a path is one that may be published, or that a pull works with.
func Shares(p string) bool {
	if shared.Step(p) == "" {
		return false
	}
	for _, name := range strings.Split(p, "/")[1:] {
		if !shared.MayPublish(name) && !strings.HasPrefix(name, working) {
			return false
		}
	}
	return true
}

// clear removes what a pull that was killed has left in a folder, but for what a program may have written.
// It is done before any of the folder's names is published or pulled again.
func (l *looker) clear(dir *names.Node, at string, list []tree.DirEntry) (kept []control.Skip, err error) {
	if !slices.ContainsFunc(list, func(e tree.DirEntry) bool {
		return strings.HasPrefix(e.Name, pulling) || strings.HasPrefix(e.Name, aside)
	}) {
		return nil, nil
	}
	l.lazy.changing.Lock() // what a lookup makes now has such a name, too
	defer l.lazy.changing.Unlock()
	if list, err = dir.ListQuietly(); err != nil {
		return nil, shared.Gone(err)
	}
	for _, e := range list {
		number, ok := strings.CutPrefix(e.Name, pulling)
		to, needed := e.Name, false // the name that it keeps if it may be needed
		unlink := l.o.Tree.Unlink
		switch ino, perr := strconv.ParseUint(number, 10, 64); {
		case !ok && !strings.HasPrefix(e.Name, aside):
			continue
		case e.Mode&unix.S_IFMT == unix.S_IFDIR: // nobody changed what it is besides what is in it
			unlink = l.o.Tree.Rmdir
			needed, err = l.holds(dir, e.Name)
			to = aside + strconv.FormatUint(e.Ino, 10)
		case !ok:
			needed, err = l.isOwn(dir, at, e.Name, list)
		case perr == nil && ino != e.Ino:
			to = aside + number
			needed, err = l.mayBeNeeded(dir, at, e.Name, ino, list)
		}
		if err == nil && needed && to != e.Name {
			err = l.o.Tree.Rename(dir, e.Name, dir, to, unix.RENAME_NOREPLACE)
		}
		if err != nil {
			return kept, err
		}
		if needed {
			kept = append(kept, control.Skip{Path: at + "/" + to, Reason: errAside.Error()})
			continue
		}
		if err := unlink(dir, e.Name); shared.Gone(err) != nil {
			return kept, err
		}
	}
	return kept, nil
}

// holds reports whether something is in a folder.
func (l *looker) holds(dir *names.Node, name string) (bool, error) {
	n, _, err := l.o.Names.Child(dir, name)
	if err != nil {
		return false, shared.Gone(err)
	}
	defer n.Unpin()
	return shared.HoldsSome(n)
}

// mayBeNeeded reports whether what was at a name before the one with number ino was put in its place may
// have been changed by a program meanwhile: the kill came before that was looked for. It is nobody's if the
// remote has it, or if the exchange was noted as done.
func (l *looker) mayBeNeeded(dir *names.Node, at, left string, ino uint64, list []tree.DirEntry) (
	bool, error) {
	for _, e := range list {
		if e.Ino != ino || e.Name == left {
			continue
		}
		k, err := l.known(at + "/" + e.Name)
		if err != nil || k == nil {
			return true, err
		}
		for _, name := range []string{left, e.Name} {
			has, err := l.contentOf(dir, name, at+"/"+e.Name)
			if err != nil && l.ctx.Err() != nil {
				return true, err
			}
			if err == nil && has == k.Content {
				return false, nil
			}
		}
	}
	return true, nil
}

// isOwn reports whether what was put aside may have been changed by a program: it is not what the remote had
// of a name that is missing beside it, which the kill kept from being removed as a whole.
func (l *looker) isOwn(dir *names.Node, at, left string, list []tree.DirEntry) (own bool, err error) {
	here := make(map[string]bool, len(list))
	for _, e := range list {
		here[e.Name] = true
	}
	missing := map[string]known.Sum{}
	err = l.o.State.EachName(at, func(p string, b []byte) error {
		if k, err := known.Decode(p, b); err == nil && path.Dir(p) == at && !here[path.Base(p)] {
			missing[p] = k.Content
		}
		return nil
	})
	if err != nil {
		return true, err
	}
	for p, had := range missing {
		has, err := l.contentOf(dir, left, p)
		if err != nil && l.ctx.Err() != nil {
			return true, err
		}
		if err == nil && has == had {
			return false, nil
		}
	}
	return true, nil
}

// contentOf is the content of what has a name in a folder, as if its path were at.
func (l *looker) contentOf(dir *names.Node, name, at string) (s known.Sum, err error) {
	n, _, err := l.o.Names.Child(dir, name)
	if err != nil {
		return s, err
	}
	defer n.Unpin()
	st, err := l.stepAt(at)
	if err != nil {
		return s, err
	}
	e, _, err := l.entry(n, at, st, nil)
	if err == nil && e == nil {
		err = unix.ENOENT
	}
	if err != nil {
		return s, err
	}
	return known.ContentOf(e), nil
}

// clearUnasked is clearFolder, unless a pull or a push is under way, which does so.
func clearUnasked(ctx context.Context, s *Share, at string) (did bool, err error) {
	if !s.pushing.TryLock() {
		return false, nil
	}
	defer s.pushing.Unlock()
	dir, err := s.o.Names.Resolve(at)
	if err != nil {
		return true, shared.Gone(err)
	}
	defer dir.Unpin()
	_, err = s.clearFolder(ctx, dir, at)
	return true, err
}

// clearFolder is clear of a folder that is not listed otherwise.
func (s *Share) clearFolder(ctx context.Context, dir *names.Node, at string) ([]control.Skip, error) {
	list, err := dir.ListQuietly()
	if err != nil {
		return nil, shared.Gone(err)
	}
	l := &looker{Share: s, ctx: ctx, batch: s.o.Store.Begin()}
	defer l.batch.Release()
	return l.clear(dir, at, list)
}
