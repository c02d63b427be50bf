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

// stepAt is a step, in what was found at one moment.
type stepAt struct {
	run   string
	index int // in its run
	step  *steps.Step
}

func (at stepAt) path() string { return path.Join(steps.Dir, at.run, at.step.Name) }

// stepPlace is a file in a step.
type stepPlace struct {
	stepAt
	rel  string
	size int64
	ino  uint64
	path string

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
	// steps that were passed over, for which there was no room
	passed []stepAt

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
	if m.beyond {
		said = append(said, fmt.Sprintf("%s: %d models are known, as many as --memory has room for: files that came later have no lineage",
			steps.Dir, m.o.Most))
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
	var left *leftModels
	var all bool
	if !m.presumed {
		if _, left, all = m.readLeftLocked(); left != nil {
			m.o.Steps.Recall(left.prints)
			defer m.o.Steps.Recall(nil)
		}
	}
	found, gen, err := m.o.Steps.Since(ctx, m.settled)
	if err != nil || found == nil {
		return false, err
	}
	m.presumeLocked(found, left, all)
	m.settled = 0
	s := &reconciler{Models: m, found: found, fresh: map[uint64]*stepPlace{},
		at: map[string]*stepPlace{}, refused: map[string]error{},
		taken: map[string]bool{}, sets: map[string]*Shards{}, said: map[*steps.Step]saying{}}
	there, state := map[string]bool{}, m.o.Steps.States()
	present := newPresent(found)
	var todo, same []stepAt
	changed := map[string]bool{} // steps, "run/step", that are new, another or gone
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
			if state(st) != control.StepComplete || known && st.Declared().IsZero() {
				continue
			}
			at := stepAt{run: run, index: i, step: st}
			if known {
				same = append(same, at)
			} else {
				todo = append(todo, at)
			}
		}
	}
	present.sort()
	for key := range m.seen {
		if !there[key] {
			changed[key] = true
			delete(m.seen, key)
			delete(m.problems, path.Join(steps.Dir, key))
		}
	}
	// What a step says of others may be so now, or be so no more.
	for _, at := range same {
		if len(changed) > 0 && (m.problems[at.path()] != "" || m.namesOneOf(at, changed)) {
			todo = append(todo, at)
		}
	}
	s.gone = s.unknown(m.departures.take())
	if len(changed) > 0 || len(s.gone) > 0 {
		m.recheck = true
		if err := s.allFilesLocked(ctx, todo, present); err != nil {
			m.departures.add(s.gone...)
			return true, err
		}
	}
	state = m.o.Steps.States()
	for run, all := range found {
		for _, st := range all {
			if state(st) == control.StepComplete { // one that will be counts as changed then
				m.seen[run+"/"+st.Name] = st
			}
		}
	}
	m.settled = gen
	return true, nil
}

// allFilesLocked is filesLocked, and again of what was passed over as long as there is room for much of it:
// not all that is packed is a model.
func (s *reconciler) allFilesLocked(ctx context.Context, todo []stepAt, present *present) error {
	for {
		if err := s.filesLocked(ctx, todo, present); err != nil {
			return err
		}
		if todo = s.passed; len(todo) == 0 || s.o.Most-s.book.Len() < s.o.Most/16+1 {
			s.beyond = s.beyond || anyModel(todo)
			return nil
		}
		s.gone = nil
	}
}

// filesLocked enters the new files of steps, and makes tombstones of what is gone.
func (s *reconciler) filesLocked(ctx context.Context, todo []stepAt, present *present) error {
	book := s.book
	now := s.o.Now().UnixNano()
	found, err := s.lookLocked(ctx, todo, present)
	if err != nil {
		return err
	}
	s.passed = found.over
	known, order := found.known, found.again
	// What has no file any more. Its inode may be another file's by now; in a store that was copied every
	// inode is another. So a file that is new is first looked for among these, by its manifest.
	var noFile []*ledger.Entry
	for _, e := range book.Live() {
		if !found.claimed[e] && (!present.has(e.Ino) || found.inodes[e.Ino]) {
			noFile = append(noFile, e)
		}
	}
	lost, moved := newLost(noFile), map[*stepPlace]*ledger.Entry{}
	for _, anywhere := range []bool{false, true} {
		for _, p := range found.open {
			if moved[p] == nil {
				if e := lost.takeSame(p, anywhere); e != nil {
					moved[p] = e
				}
			}
		}
	}
	for _, p := range found.open {
		if moved[p] == nil {
			p.before = lost.takePlace(p)
			order = append(order, p)
		}
	}
	for _, e := range lost.all {
		if !lost.taken[e] {
			book.Retire(e.Seq, now)
		}
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
	for _, at := range todo {
		for _, f := range at.step.Files.All() {
			file := path.Join(at.path(), f.Rel)
			if err := s.refused[file]; err != nil && !s.taken[file] {
				s.problems[at.path()] = fmt.Sprintf("%s: %v", cmp.Or(f.Rel, at.step.Name), err)
			}
		}
	}
	return nil
}

// inode is the inode of a file of the step as it was found, rel being the name that graphOf gives it.
func (p *stepPlace) inode(rel string) uint64 {
	for _, f := range p.step.Files.All() {
		if f.Rel == rel || p.step.IsFile {
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
