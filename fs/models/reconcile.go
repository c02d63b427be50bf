package models

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/inspect"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// stepPlace is a file in a step, in what was found at one moment.
type stepPlace struct {
	run   string
	index int // of its step
	step  *steps.Step
	rel   string
	size  int64
	ino   uint64
	path  string

	manifest cas.Hash
	mtime    int64
	waits    bool          // it is to be packed
	remote   bool          // its bytes are not here
	before   *ledger.Entry // what this inode was
	state    int           // of a new model: 0 not entered, 1 about to be, 2 done
}

// reconciler makes one pass over the tree that brings the ledger up to date. Models.mu is held in all its
// methods.
type reconciler struct {
	*Models
	found map[string][]*steps.Step
	fresh map[uint64]*stepPlace // files to be entered, by inode
	at    map[string]*stepPlace // the same, by path
	gone  []departed

	// Sidecars, by path. One that no model of its step can take is a problem.
	refused map[string]error
	taken   map[string]bool

	sets map[string]*Shards // by their indices; nil: it is none
	said map[*steps.Step]saying
}

// settleLocked brings the ledger up to date with the tree.
func (m *Models) settleLocked(ctx context.Context) error {
	m.mu.AssertHeld()
	stale := m.stale.Swap(false)
	looked, err := m.reconcileLocked(ctx)
	if err == nil && !looked {
		return nil
	}
	said := make([]string, 0, len(m.problems))
	for at, problem := range m.problems {
		said = append(said, at+": "+problem)
	}
	for at, st := range m.seen {
		if st.Problem != "" {
			said = append(said, path.Join(steps.Dir, at)+": "+st.Problem)
		}
	}
	if m.beyond > 0 {
		said = append(said, fmt.Sprintf("%s: %d models are known, as many as --memory has room for: %d files that came later have no lineage",
			steps.Dir, m.o.Most, m.beyond))
	}
	slices.Sort(said)
	m.said.Store(&said)
	if err != nil && stale { // what was only looked at is entered by the next look
		m.stale.Store(true)
	}
	return err
}

// reconcileLocked makes one pass. looked is false where nothing can be another than it was.
func (m *Models) reconcileLocked(ctx context.Context) (looked bool, err error) {
	m.mu.AssertHeld()
	if err := m.loadLocked(); err != nil {
		return false, err
	}
	found, gen, err := m.o.Steps.Since(ctx, m.settled)
	if err != nil || found == nil {
		return false, err
	}
	m.presumeLocked(found)
	m.settled = 0
	s := &reconciler{Models: m, found: found, fresh: map[uint64]*stepPlace{},
		at: map[string]*stepPlace{}, refused: map[string]error{},
		taken: map[string]bool{}, sets: map[string]*Shards{}, said: map[*steps.Step]saying{}}
	there := map[string]bool{}
	present := present{of: map[uint64]spot{}}
	var places []*stepPlace
	changed := map[string]bool{} // steps, "run/step", that are new, another or gone
	var same []*stepPlace
	names := slices.SortedFunc(maps.Keys(found), runs.Compare)
	for _, run := range names {
		for i, st := range found[run] {
			key := run + "/" + st.Name
			there[key] = true
			present.add(run, st)
			known := m.seen[key] == st
			if !known {
				changed[key] = true
			}
			if m.o.Steps.State(st) != control.StepComplete || known && st.Declared.IsZero() {
				continue
			}
			for _, f := range st.Files {
				p := &stepPlace{run: run, index: i, step: st, rel: f.Rel, ino: f.Ino, size: f.Size,
					path: path.Join(steps.Dir, key, f.Rel)}
				if known {
					same = append(same, p)
				} else {
					places = append(places, p)
				}
			}
		}
	}
	for key := range m.seen {
		if !there[key] {
			changed[key] = true
			delete(m.seen, key)
			delete(m.problems, path.Join(steps.Dir, key))
		}
	}
	// What a step says of others may be so now, or be so no more.
	for _, p := range same {
		if len(changed) > 0 && (m.problems[path.Join(steps.Dir, p.run, p.step.Name)] != "" ||
			m.namesOneOf(p, changed)) {
			places = append(places, p)
		}
	}
	s.gone = s.unknown(m.departures.take())
	if len(changed) > 0 || len(s.gone) > 0 {
		m.recheck = true
		if err := s.filesLocked(ctx, places, &present); err != nil {
			m.departures.add(s.gone...)
			return true, err
		}
	}
	for run, all := range found {
		for _, st := range all {
			if m.o.Steps.State(st) == control.StepComplete { // one that will be counts as changed then
				m.seen[run+"/"+st.Name] = st
			}
		}
	}
	m.settled = gen
	return true, nil
}

// filesLocked enters what is new among places, and makes tombstones of what is gone.
func (s *reconciler) filesLocked(ctx context.Context, places []*stepPlace, present *present) error {
	book := s.book
	now := s.o.Now().UnixNano()
	var known, open, order []*stepPlace
	looked, claimed := map[uint64]bool{}, map[*ledger.Entry]bool{}
	for _, p := range places {
		at := path.Join(steps.Dir, p.run, p.step.Name)
		delete(s.problems, at)
		if p.step.DeclaredProblem != "" {
			s.problems[at] = p.step.DeclaredProblem
		}
	}
	for _, p := range places {
		if err := ctx.Err(); err != nil {
			return err
		}
		if present.path(p.ino) != p.path || looked[p.ino] { // a further hard link
			continue
		}
		looked[p.ino] = true
		ok, err := s.lookAtPlace(p)
		if err != nil {
			return err
		}
		e := book.ByIno(p.ino)
		switch {
		// elsewhere, what is not packed may be another file that got the inode
		case e != nil && (ok && e.Manifest == p.manifest || !ok && e.Path == p.path):
			claimed[e] = true
			if ok {
				known = append(known, p)
			}
		case e != nil && e.Path == p.path: // written again
			claimed[e] = true
			p.before = e
			order = append(order, p)
		case ok:
			open = append(open, p)
		}
	}
	// What has no file any more. Its inode may be another file's by now; in a store that was copied every
	// inode is another. So a file that is new is first looked for among these, by its manifest.
	var lost []*ledger.Entry
	for _, e := range book.Live() {
		if !claimed[e] && (!present.has(e.Ino) || looked[e.Ino]) {
			lost = append(lost, e)
		}
	}
	slices.SortFunc(lost, func(a, b *ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	take := func(is func(e *ledger.Entry) bool) *ledger.Entry {
		i := slices.IndexFunc(lost, is)
		if i < 0 {
			return nil
		}
		e := lost[i]
		lost = slices.Delete(lost, i, i+1)
		return e
	}
	moved := map[*stepPlace]*ledger.Entry{}
	for _, anywhere := range []bool{false, true} {
		for _, p := range open {
			if moved[p] == nil {
				if e := take(func(e *ledger.Entry) bool {
					return e.Manifest == p.manifest && (anywhere || e.Path == p.path)
				}); e != nil {
					moved[p] = e
				}
			}
		}
	}
	for _, p := range open {
		if moved[p] == nil {
			// another file in its place
			p.before = take(func(e *ledger.Entry) bool { return e.Path == p.path })
			order = append(order, p)
		}
	}
	for _, e := range lost {
		book.Retire(e.Seq, now)
	}
	for _, e := range moved {
		book.Detach(e)
	}
	for _, p := range order {
		if p.before != nil {
			book.Detach(p.before)
		}
		s.fresh[p.ino], s.at[p.path] = p, p
	}
	for p, e := range moved {
		book.Move(e, p.ino, p.path)
		known = append(known, p)
	}
	for _, e := range slices.Collect(maps.Values(book.Live())) {
		if at := present.path(e.Ino); at != "" {
			book.Move(e, e.Ino, at)
		}
	}
	if err := s.buryLocked(ctx, s.gone); err != nil {
		return err
	}
	slices.SortStableFunc(order, func(a, b *stepPlace) int {
		return cmp.Or(cmp.Compare(a.mtime, b.mtime), runs.Compare(a.path, b.path))
	})
	for _, p := range order {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.enterLocked(p); err != nil {
			return err
		}
	}
	for _, p := range known { // a sidecar may have come late
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.againLocked(p); err != nil {
			return err
		}
	}
	for _, p := range places {
		at := path.Join(steps.Dir, p.run, p.step.Name)
		file := path.Join(at, p.rel)
		if err := s.refused[file]; err != nil && !s.taken[file] {
			s.problems[at] = fmt.Sprintf("%s: %v", cmp.Or(p.rel, p.step.Name), err)
		}
	}
	return nil
}

// inode is the inode of a file of the step as it was found, rel being the name that graphOf gives it.
func (p *stepPlace) inode(rel string) uint64 {
	for i := range p.step.Files {
		if f := &p.step.Files[i]; f.Rel == rel || p.step.IsFile {
			return f.Ino
		}
	}
	return 0
}

// open makes the bytes of a file readable until done is called.
func (s *reconciler) open(path string, ino uint64) (r io.ReaderAt, size int64, done func(), err error) {
	f, err := s.o.Files.OpenInode(path, ino)
	if err != nil {
		return nil, 0, nil, err
	}
	return inspect.OpenPinned(f)
}

// lookAtPlace reads the record of a file, which may be any with p.ino 0. False when the file is no model: not
// packed, or gone.
func (m *Models) lookAtPlace(p *stepPlace) (bool, error) {
	r, err := m.o.Files.Record(p.path, p.ino)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == tree.ErrNotRegular {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p.manifest, p.mtime, p.waits, p.remote = r.Manifest, r.Mtime, r.Waits, r.Remote
	return !r.Manifest.IsZero(), nil
}
