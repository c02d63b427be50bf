package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/heads"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// Fetch reads the heads that changed.
func (s *Share) Fetch(ctx context.Context) (*control.Fetched, error) {
	changed, err := s.heads.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.status.LastContact = s.o.Now()
	s.mu.Unlock()
	out := &control.Fetched{Remote: s.o.Joined.URL(), Changed: changed, Writers: []string{}, Problems: []string{}}
	for _, w := range s.heads.Writers() {
		out.Writers = append(out.Writers, string(w))
	}
	for _, p := range s.heads.Problems() {
		out.Problems = append(out.Problems, p.Error())
	}
	return out, nil
}

func entriesOf(all []heads.Of) [][]record.Entry {
	lists := make([][]record.Entry, len(all))
	for i := range all {
		lists[i] = all[i].Entries
	}
	return lists
}

// shared checks a path that a command is about.
func shared(op, at string) (string, error) {
	if at = cmp.Or(at, steps.Dir); !below(at, steps.Dir) {
		return "", &fs.PathError{Op: op, Path: at,
			Err: fmt.Errorf("what lies below %s/ is shared: %w", steps.Dir, unix.EINVAL)}
	}
	return at, nil
}

// Conflicts lists the names at or below a path of which the remote has several versions.
func (s *Share) Conflicts(ctx context.Context, at string) (*control.Conflicts, error) {
	at, err := shared("conflicts", at)
	if err != nil {
		return nil, err
	}
	all, err := s.heads.Below(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &control.Conflicts{Names: []control.Conflict{}}
	for _, n := range rnames.Tree(entriesOf(all)...) {
		if len(n.Conflicts) == 0 {
			continue
		}
		c := control.Conflict{Path: n.Path}
		versions := n.Conflicts
		if n.Name != nil {
			versions = append([]*record.Entry{n.Name}, versions...)
		}
		for _, e := range versions {
			v := control.Version{Writer: string(e.Origin), Time: time.Unix(0, e.MTime)}
			if e.File != nil {
				v.Size = e.File.Size
			}
			c.Versions = append(c.Versions, v)
		}
		out.Names = append(out.Names, c)
	}
	return out, nil
}

// Pull makes the names at or below a path as others published them, after a Fetch. What was changed here and
// not published is left as it is, and so is what others removed.
func (s *Share) Pull(ctx context.Context, at string, report func(control.Progress)) (*control.Pulled, error) {
	at, err := shared("pull", at)
	if err != nil {
		return nil, err
	}
	s.pushing.Lock() // what is pulled just now is not published before it is known
	defer s.pushing.Unlock()
	if _, err := s.Fetch(ctx); err != nil {
		return nil, err
	}
	all, err := s.heads.Below(ctx, at)
	if err != nil {
		return nil, err
	}
	nodes := rnames.Tree(entriesOf(all)...)
	if len(nodes) == 0 {
		return nil, &fs.PathError{Op: "pull", Path: at, Err: fmt.Errorf("the remote has no such name: %w", unix.ENOENT)}
	}
	p := &pull{Share: s, report: report, out: control.Pulled{Skipped: []control.Skip{}},
		notes: map[string][]byte{}}
	_, before := s.bring.Reader.Stats()
	for i := range nodes {
		if f := nodes[i].Name; f != nil && f.File != nil {
			p.total.TotalFiles++
			p.total.TotalBytes += f.File.Size
		}
	}
	for i := range nodes {
		if err := p.node(ctx, &nodes[i]); err != nil {
			return nil, errors.Join(err, p.flush())
		}
	}
	if err := p.flush(); err != nil {
		return nil, err
	}
	_, after := s.bring.Reader.Stats()
	p.out.Fetched = after - before
	return &p.out, nil
}

type pull struct {
	*Share
	report func(control.Progress)
	out    control.Pulled
	total  control.Progress
	notes  map[string][]byte // that are not kept yet
}

// mostNotes is how many names are noted at a time.
const mostNotes = 256

// flush keeps what was noted. What a crash takes away is found again: the names are there, with what the remote
// has.
func (p *pull) flush() error {
	if len(p.notes) == 0 {
		return nil
	}
	err := p.keep(p.notes)
	p.notes = map[string][]byte{}
	return err
}

func (p *pull) skip(at, why string) {
	p.out.Skipped = append(p.out.Skipped, control.Skip{Path: at, Reason: why})
}

// node makes one name.
func (p *pull) node(ctx context.Context, n *rnames.Node) error {
	e := n.Name
	if e == nil && n.Folder {
		e = &record.Entry{Path: n.Path, Kind: record.KindFolder, Mode: 0o755}
	}
	if e == nil || n.Folder && e.Kind != record.KindFolder {
		return nil // removed, or hidden by what lies below it
	}
	dir, err := p.o.Names.Resolve(path.Dir(n.Path))
	if errors.Is(err, unix.ENOENT) && path.Dir(n.Path) == steps.Dir {
		dir, err = p.mkdir(p.o.Names.Root(), steps.Dir, 0o755)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) { // pulled alone: the folders above it
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
	why, err := p.inDir(ctx, dir, n, e)
	if why != "" {
		p.skip(n.Path, why)
	}
	if err != nil && ctx.Err() == nil && errors.Is(err, unix.EEXIST) {
		p.skip(n.Path, "another was made here meanwhile")
		err = nil
	}
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) || errors.Is(err, bucket.ErrNotFound) {
		p.skip(n.Path, err.Error()) // the remote has lost it, or never had all of it
		err = nil
	}
	if err != nil {
		return fmt.Errorf("pull %s: %w", n.Path, err)
	}
	return nil
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
		p.o.Kernel().InvalidateName(dir.ID(), name)
	}
	return n, err
}

// inDir makes a name in its folder. why says why it was left as it is.
func (p *pull) inDir(ctx context.Context, dir *names.Node, n *rnames.Node, e *record.Entry) (why string, err error) {
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
		if same || why != "" || err != nil {
			if same && err == nil {
				err = p.note(old, n, e, was)
			}
			return why, err
		}
	} else if was != nil && slices.ContainsFunc(p.intents.all(), func(at string) bool { return below(n.Path, at) }) {
		return "removed here, and not published yet", nil
	}
	made, err := p.make(ctx, dir, name, old, e, was)
	if errors.Is(err, errChanged) {
		return "it was changed here meanwhile: push it, and both versions are kept", nil
	}
	if err != nil {
		return "", err
	}
	defer made.Unpin()
	p.o.Kernel().InvalidateName(dir.ID(), name)
	return "", p.note(made, n, e, nil)
}

// here compares what the tree has of a name with an entry. same: they are one. why: what the tree has stays.
func (p *pull) here(ctx context.Context, n *names.Node, at string, e *record.Entry, was *known) (
	same bool, why string, err error) {
	l := &looker{Share: p.Share, ctx: ctx, batch: p.o.Store.Begin()}
	defer l.batch.Release()
	st, err := p.stepAt(at)
	if err != nil {
		return false, "", err
	}
	has, look, err := l.entry(n, at, st, nil)
	if err != nil {
		return false, "it stays as it is here: " + err.Error(), nil
	}
	switch {
	case has == nil:
		return false, "there is something here that is not shared", nil
	case sameBytes(has, e):
		return true, "", nil
	case was == nil || was.look != look:
		return false, "it was changed here and is not published: push it, and both versions are kept", nil
	case has.Kind == record.KindFolder || e.Kind == record.KindFolder:
		return false, "it is a folder on one side only", nil
	}
	return false, "", nil
}

// sameBytes reports whether entries differ in attributes at most.
func sameBytes(a, b *record.Entry) bool {
	if a.Kind != b.Kind || a.Link != b.Link {
		return false
	}
	return a.File == nil || a.File.Manifest == b.File.Manifest && a.File.Inline == b.File.Inline
}

// note notes that the tree shows what the remote has. was is what was known of a name that was there before.
func (p *pull) note(made *names.Node, n *rnames.Node, e *record.Entry, was *known) error {
	l := &looker{Share: p.Share, ctx: context.Background(), batch: p.o.Store.Begin()}
	defer l.batch.Release()
	st, err := p.stepAt(n.Path)
	if err != nil {
		return err
	}
	has, look, err := l.entry(made, n.Path, st, nil)
	k := &known{content: contentOf(e), tips: n.Shown()}
	switch {
	case err == nil && has != nil && sameBytes(has, e):
		if was != nil && was.look != look && contentOf(has) != k.content {
			return nil // its attributes were changed here, and are not published
		}
		k.look = look
	case was != nil:
		return nil // it was changed since it was looked at
	} // else a program changed what was made just now: it looks like nothing that is known
	if p.notes[n.Path] = k.encode(); len(p.notes) < mostNotes {
		return nil
	}
	return p.flush()
}

// make makes a name, in place of old if that is not nil and is as it was when it was known.
func (p *pull) make(ctx context.Context, dir *names.Node, name string, old *names.Node, e *record.Entry,
	was *known) (*names.Node, error) {
	switch e.Kind {
	case record.KindFolder:
		return p.folder(dir, name, e)
	case record.KindLink:
		if old == nil {
			n, _, err := p.o.Tree.Symlink(dir, name, e.Link, self())
			return n, err
		}
		next := fmt.Sprintf("%s%d", pulling, old.Ino())
		n, _, err := p.o.Tree.Symlink(dir, next, e.Link, self())
		if err != nil {
			return nil, err
		}
		if err := p.replace(n, dir, next, name, old, e.Path, was); err != nil {
			n.Unpin()
			return nil, err
		}
		return n, nil
	case record.KindFile:
		return p.file(ctx, dir, name, old, e, was)
	}
	return nil, fmt.Errorf("an entry of kind %d: %w", e.Kind, unix.EINVAL)
}

func (p *pull) folder(dir *names.Node, name string, e *record.Entry) (*names.Node, error) {
	n, err := p.mkdir(dir, name, uint32(e.Mode)|0o700)
	if err != nil {
		return nil, err
	}
	for _, a := range e.Attrs {
		if err := n.SetXattr(a.Name, []byte(a.Value), 0); err != nil {
			n.Unpin()
			return nil, fmt.Errorf("attribute %s: %w", a.Name, err)
		}
	}
	return n, nil
}

// file makes a file, first without a name.
func (p *pull) file(ctx context.Context, dir *names.Node, name string, old *names.Node, e *record.Entry,
	was *known) (*names.Node, error) {
	b := p.o.Store.Begin()
	defer b.Release() // which names the records until the file does
	if e.File.Manifest != ([32]byte{}) {
		if err := p.bring.File(ctx, b, e); err != nil {
			return nil, err
		}
		if err := b.Commit(); err != nil {
			return nil, err
		}
	}
	m, err := p.o.Names.MakeUnnamed(dir, uint32(e.Mode), unix.O_RDWR, self())
	if err != nil {
		return nil, err
	}
	n := m.Node
	done, err := p.fill(m, e)
	if err == nil {
		err = p.place(n, dir, name, old, e.Path, was)
	}
	done()
	if err != nil {
		n.Unpin()
		return nil, err
	}
	p.out.Files++
	p.out.Bytes += e.File.Size
	if p.report != nil {
		p.total.DoneFiles, p.total.DoneBytes = p.total.DoneFiles+1, p.total.DoneBytes+e.File.Size
		p.total.Current = e.Path
		p.report(p.total)
	}
	return n, nil
}

// fill gives a new file its bytes, mode and times. done ends its use, once it has its name, or after an error.
func (p *pull) fill(m names.Made, e *record.Entry) (done func(), err error) {
	done = func() {}
	mtime := tree.TimespecOf(time.Unix(0, e.MTime))
	if e.File.Manifest != ([32]byte{}) && e.File.Size >= tree.HeaderSize {
		m.Close()
		err = content.Adopt(m.Node.File(), e.File.Manifest, e.MTime)
	} else {
		var h *content.Handle
		if h, err = m.Open(unix.O_RDWR, 0); err != nil {
			return done, err
		}
		done = h.Release
		if len(e.File.Inline) > 0 {
			_, err = h.Write([]byte(e.File.Inline), 0)
		}
	}
	if err == nil {
		_, err = p.o.Tree.Setattr(m.Node, &tree.SetAttr{Mtime: &mtime})
	}
	return done, err
}

// pulling begins the name that a file has for a moment.
const pulling = ".ckptfs-pull-"

// place gives a new file its name.
func (p *pull) place(n, dir *names.Node, name string, old *names.Node, at string, was *known) error {
	to := name
	if old != nil {
		to = fmt.Sprintf("%s%d", pulling, n.Ino())
	}
	if _, err := p.o.Tree.Link(n, dir, to); err != nil {
		return err
	}
	n.Unpin() // Link took a reference, too
	if old == nil {
		return nil
	}
	return p.replace(n, dir, to, name, old, at, was)
}

// replace puts what is called next in the place of old. They are exchanged, so that what a program did to old,
// or put in its place, until then comes back. The error is errChanged if there was any.
func (p *pull) replace(n, dir *names.Node, next, name string, old *names.Node, at string, was *known) error {
	before, err := p.unchanged(old, at, was)
	if err == nil {
		err = p.exchange(dir, next, name)
	}
	if errors.Is(err, unix.ENOENT) {
		err = errChanged
	}
	if err != nil {
		return errors.Join(err, p.unlink(dir, next, n))
	}
	if err := p.isStill(dir, next, old, before); err != nil {
		return errors.Join(err, p.exchange(dir, next, name), p.unlink(dir, next, n))
	}
	return p.unlink(dir, next, old)
}

func (p *pull) exchange(dir *names.Node, a, b string) error {
	err := p.o.Tree.Rename(dir, a, dir, b, unix.RENAME_EXCHANGE)
	p.o.Kernel().InvalidateName(dir.ID(), b)
	return err
}

// unlink removes a name, if it is a node's.
func (p *pull) unlink(dir *names.Node, name string, of *names.Node) error {
	n, _, err := p.o.Names.Child(dir, name)
	if err != nil {
		return gone(err)
	}
	defer n.Unpin()
	if n.Ino() != of.Ino() {
		return nil
	}
	return p.o.Tree.Unlink(dir, name)
}

// unchanged is how old is, if it is as it was when it was known.
func (p *pull) unchanged(old *names.Node, at string, was *known) (is content.State, err error) {
	if old.File() == nil {
		return is, nil
	}
	st, err := p.stepAt(at)
	if err != nil {
		return is, err
	}
	a, is, err := settled(old)
	if err != nil || lookOf(&a, &is, st) != was.look {
		return is, errChanged
	}
	return is, nil
}

// isStill checks that a name is old's, which nobody changed.
func (p *pull) isStill(dir *names.Node, name string, old *names.Node, before content.State) error {
	n, _, err := p.o.Names.Child(dir, name)
	if err != nil {
		return errors.Join(errChanged, gone(err))
	}
	defer n.Unpin()
	if n.Ino() != old.Ino() {
		return errChanged
	}
	if old.File() == nil {
		return nil
	}
	if _, is, err := settled(old); err != nil || is.Gen != before.Gen {
		return errChanged
	}
	return nil
}
