package share

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/heads"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/attrs"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// Fetch reads the heads that changed. The kernel knows of no name otherwise than they say when it returns.
func (s *Share) Fetch(ctx context.Context) (*control.Fetched, error) {
	out, err := fetchHeads(ctx, s)
	Heard(ctx, s)
	return out, err
}

func fetchHeads(ctx context.Context, s *Share) (*control.Fetched, error) {
	var changed bool
	err := s.contact.Answering(ctx, func(ctx context.Context) (err error) {
		changed, err = s.lazy.fetch(ctx, s.heads.Refresh)
		if err != nil && ctx.Err() == nil { // else Answering noted why it ended
			s.contact.Failed(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.contact.Reached()
	s.lazy.refresh(ctx)
	out := &control.Fetched{Remote: s.o.Joined.URL(), Changed: changed, Writers: []string{},
		Problems: []control.BadHead{}}
	for _, w := range s.heads.Writers() {
		if w.IsStore() {
			out.Writers = append(out.Writers, string(w))
		}
	}
	bad := s.heads.Problems()
	for _, w := range slices.Sorted(maps.Keys(bad)) {
		out.Problems = append(out.Problems, control.BadHead{Key: record.HeadKey(w), What: bad[w].Error()})
	}
	return out, nil
}

// announce tells the kernel of a name that appeared or was replaced. No request waits for the caller.
func (s *Share) announce(dir *names.Node, name string) { s.o.Kernel().InvalidateName(dir.ID(), name) }

// nodes are the names at or below a path that heads say of, ascending, and the folders above it.
func (s *Share) nodes(ctx context.Context, at string) ([]rnames.Node, error) {
	all, err := s.heads.Below(ctx, at)
	return rnames.Tree(heads.Lists(all)...), err
}

// heldBelow are the entries of all heads at or below a path, by path.
func (s *Share) heldBelow(ctx context.Context, at string) (map[string][]*record.Entry, error) {
	all, err := s.heads.Below(ctx, at)
	return maps.Collect(rnames.Paths(heads.Lists(all)...)), err
}

// mostNotes is how many names are noted at a time.
const mostNotes = 256

// expect notes what names are about to get, and keeps where the plans of files are, before it is done: what
// is there after a crash is not taken for what a program wrote. The names of which that is noted are
// returned; the others stay as they are.
func (p *pull) expect(ctx context.Context, files []*record.File, nodes []rnames.Node) (
	all []rnames.Node, err error) {
	next := map[string]revised{}
	for i := range nodes {
		n := &nodes[i]
		r, why, err := p.about(ctx, n)
		if err != nil {
			return nil, err
		}
		if why != "" {
			p.skip(n.Path, why)
			continue
		}
		if r.is != nil {
			next[n.Path] = r
		}
		all = append(all, *n)
	}
	others, err := p.revise(next, func(set map[string][]byte) error { return p.o.State.Expect(files, set) })
	return slices.DeleteFunc(all, func(n rnames.Node) bool {
		why := ""
		if others[n.Path] {
			why = changedMeanwhile
		} else if p.full[n.Path] != nil {
			why = inTheWay
		}
		if why != "" {
			p.skip(n.Path, why)
		}
		return why != ""
	}), err
}

// about is what is noted of a name before it is made; nothing, if that is known. why says why it cannot be.
func (p *pull) about(ctx context.Context, n *rnames.Node) (r revised, why string, err error) {
	e := n.AsFolder()
	if e == nil {
		return r, "", nil
	}
	was, err := p.known(n.Path)
	if err == nil && (was == nil || n.Name == nil) {
		there, folder, err := p.kind(n.Path)
		if err != nil || folder || there && was == nil || !there && n.Name == nil {
			return r, "", err // it stays as it is, or nothing is said of it
		}
	}
	if err != nil {
		return r, "", err
	}
	r = revised{was.Encode(), was.About(e, n.Shown())}
	if was == nil || was.Next == nil && r.is == nil {
		return r, "", nil
	}
	as, why, err := p.asKnown(ctx, n.Path, e, was)
	if why != "" || err != nil || !as {
		return revised{}, why, err
	}
	r.is = was.About(e, n.Shown()) // what came before a crash is known no more hereafter
	return r, "", nil
}

// asKnown reports whether a name is as it is known, or no program changed it since it was about to get
// something: it has that, as which it is known then, or a crash cut it off (settle).
func (p *pull) asKnown(ctx context.Context, at string, e *record.Entry, was *known.Name) (
	is bool, why string, err error) {
	n, err := p.o.Names.Resolve(at)
	if err != nil {
		if shared.Gone(err) == nil {
			err = nil
		}
		return was.Bare() || !p.goes(at), "", err
	}
	defer n.Unpin()
	cut := was.Next != nil
	_, look, err := shown(ctx, p.Share, n, at, was)
	switch {
	case err != nil && ctx.Err() == nil:
		return false, staysFor(err), nil
	case err != nil:
		return true, "", err
	case look != was.Look:
		p.cut[at] = cut
		is = cut
	default:
		is = true
	}
	full, err := isFull(n, e)
	if is && full {
		p.full[at] = e
	}
	return is, "", err
}

// flush keeps what was noted. What a crash takes away is found again, by what expect noted.
func (p *pull) flush() error {
	if len(p.notes) == 0 {
		return nil
	}
	err := p.keep(p.notes, p.o.State.NoteNames)
	clear(p.notes)
	return err
}

func (p *pull) skip(at, why string) {
	p.out.Skipped = append(p.out.Skipped, control.Skip{Path: at, Reason: why})
}

// node makes one name.
func (p *pull) node(ctx context.Context, n *rnames.Node) error {
	e := n.AsFolder()
	if e == nil {
		return nil // removed
	}
	dir, err := p.o.Names.Resolve(path.Dir(n.Path))
	if errors.Is(err, unix.ENOENT) && path.Dir(n.Path) == steps.Dir {
		dir, err = p.mkdir(p.o.Names.Root(), steps.Dir, 0o755)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) { // pulled alone: the folders above it
		if was, err := p.known(n.Path); err != nil || !was.Bare() && p.goes(n.Path) {
			p.skip(n.Path, removedHere)
			return err
		}
		dir, err = p.above(path.Dir(n.Path))
	}
	if err != nil {
		return &fs.PathError{Op: "pull", Path: n.Path, Err: err}
	}
	defer dir.Unpin()
	if !dir.IsDir() {
		p.skip(n.Path, "what should be its folder is none here")
		return nil
	}
	why, err := "", p.clearOnce(ctx, dir, path.Dir(n.Path))
	if err == nil {
		why, err = p.inDir(ctx, dir, n, e)
	}
	if why != "" {
		p.skip(n.Path, why)
	}
	if err != nil && ctx.Err() == nil && errors.Is(err, unix.EEXIST) {
		p.skip(n.Path, "another was made here meanwhile")
		err = nil
	}
	if err != nil && lost(err) {
		p.skip(n.Path, err.Error())
		err = nil
	}
	if err != nil {
		return fmt.Errorf("pull %s: %w", n.Path, err)
	}
	return nil
}

// clearOnce removes what an earlier pull left in a folder.
func (p *pull) clearOnce(ctx context.Context, dir *names.Node, at string) error {
	if p.stubs || p.cleared[at] {
		return nil
	}
	p.cleared[at] = true
	kept, err := p.clearFolder(ctx, dir, at)
	p.out.Skipped = append(p.out.Skipped, kept...)
	return err
}

// self is who mounts: what is pulled belongs to them.
func self() tree.Caller { return tree.Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())} }

// above makes the folders down to a path.
func (p *pull) above(at string) (*names.Node, error) {
	n, err := p.o.Names.Resolve(at)
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		return n, err
	}
	dir, err := p.above(path.Dir(at))
	if err != nil || !dir.IsDir() {
		return dir, err
	}
	defer dir.Unpin()
	return p.mkdir(dir, path.Base(at), 0o755)
}

func (p *pull) mkdir(dir *names.Node, name string, mode uint32) (*names.Node, error) {
	n, _, err := p.o.Tree.Mkdir(dir, name, mode, self())
	if err == nil {
		p.announce(dir, name)
	}
	return n, err
}

// inDir makes a name in its folder. why says why it was left as it is.
func (p *pull) inDir(ctx context.Context, dir *names.Node, n *rnames.Node, e *record.Entry) (
	why string, err error) {
	name := path.Base(n.Path)
	was, err := p.known(n.Path)
	if err != nil {
		return "", err
	}
	old, _, err := p.o.Names.Child(dir, name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return "", err
	}
	if old != nil {
		defer old.Unpin()
		same, why, err := p.here(ctx, old, n.Path, e, was)
		if same && n.Name == nil { // it is a folder on both sides, and nothing is said of it
			return "", errors.Join(err, p.noteTips(ctx, n, old, was))
		}
		if same || why != "" || err != nil {
			if same && err == nil {
				err = p.unstub(ctx, old, e)
			}
			if errors.Is(err, errChanged) {
				return changedMeanwhile, nil
			}
			if same && err == nil {
				err = p.note(old, n, e, was)
			}
			return why, err
		}
	} else if !was.Bare() && p.goes(n.Path) {
		return removedHere, nil
	}
	made, err := p.make(ctx, dir, name, old, e, was)
	if errors.Is(err, errChanged) {
		return changedMeanwhile, nil
	}
	if err != nil {
		return "", err
	}
	defer made.Unpin()
	p.announce(dir, name)
	if made.IsDir() { // no step yet: nothing is in it
		return "", p.noteAs(nil, made, n, e, nil)
	}
	return "", p.note(made, n, e, nil)
}

const removedHere = "removed here, and not published yet"

const changedHere = "it was changed here and is not published: push it, and both versions are kept"

const changedMeanwhile = "it was changed here meanwhile: push it, and both versions are kept"

func staysFor(err error) string { return "it stays as it is here: " + err.Error() }

// goes reports whether a program removed a name, or one above it, and that is not published yet.
func (p *pull) goes(at string) bool {
	return slices.ContainsFunc(p.removals.All(), func(gone string) bool { return record.Below(at, gone) })
}

// here compares what the tree has of a name with an entry. same: they are one. why: what the tree has stays.
func (p *pull) here(ctx context.Context, n *names.Node, at string, e *record.Entry, was *known.Name) (
	same bool, why string, err error) {
	has, look, err := shown(ctx, p.Share, n, at, was)
	if err != nil {
		return false, staysFor(err), nil
	}
	switch {
	case has == nil:
		return false, "there is something here that is not shared", nil
	case rnames.Equal(has, e):
		return true, "", nil
	case was.Bare():
		gone, err := p.isLost(n)
		if gone || err != nil {
			return false, "", err
		}
		return false, changedHere, nil
	case was.Look != look && !(n.IsDir() && p.cut[at]):
		return false, changedHere, nil
	}
	full, err := isFull(n, e)
	if full {
		why = inTheWay
	}
	return false, why, err
}

// shown is what the tree has of a name. Where that is what is published although it looks otherwise (it was
// changed and changed back, or another name of its inode went), was has its look from here on.
func shown(ctx context.Context, s *Share, n *names.Node, at string, was *known.Name) (
	*record.Entry, known.Sum, error) {
	l := &looker{Share: s, ctx: ctx, waits: true, batch: s.o.Store.Begin()}
	defer l.batch.Release()
	st, err := s.stepAt(at)
	if err != nil {
		return nil, known.Sum{}, err
	}
	e, look, err := l.entry(n, at, st, nil)
	if err == nil && was.Shown(e, look) {
		s.o.Steps.Writing.Gone(n.Ino()) // a pull that was killed may have written it: it is whole
	}
	return e, look, err
}

// note notes that the tree shows what the remote has. was is what was known of a name that was there before.
func (p *pull) note(made *names.Node, n *rnames.Node, e *record.Entry, was *known.Name) error {
	st, err := p.stepAt(n.Path)
	if err != nil {
		return err
	}
	return p.noteAs(st, made, n, e, was)
}

// noteAs is note of a name that is a step, or nil.
func (p *pull) noteAs(st *steps.Step, made *names.Node, n *rnames.Node, e *record.Entry,
	was *known.Name) error {
	l := &looker{Share: p.Share, ctx: context.Background(), batch: p.o.Store.Begin()}
	defer l.batch.Release()
	has, look, err := l.entry(made, n.Path, st, nil)
	k := &known.Name{Content: known.ContentOf(e), Tips: n.Shown()}
	switch {
	case err == nil && has != nil && rnames.Equal(has, e):
		switch {
		case !was.Bare() && was.Look != look && known.ContentOf(has) != k.Content && !p.cut[n.Path],
			was == nil && !slices.Equal(has.Attrs, e.Attrs):
			return nil // its attributes were changed here, and are not published
		case was != nil && was.Bare() && e.Kind != record.KindFolder: // it got its attributes before its name
		case was != nil && !attrs.Same(has, e):
			if was.Bare() {
				has.Attrs = nil // what a program gave it stays
			}
			if look, err = p.takeOver(l, made, has, e); err != nil {
				return err
			}
		}
		k.Look = look
	case was != nil:
		return nil // it was changed since it was looked at
	} // else a program changed what was made just now: it looks like nothing that is known
	return p.noted(n.Path, k.Encode())
}

// noted notes what is known of a name from now on.
func (p *pull) noted(at string, k []byte) error {
	if p.notes[at] = k; len(p.notes) < mostNotes {
		return nil
	}
	return p.flush()
}
