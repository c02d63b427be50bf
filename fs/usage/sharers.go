package usage

import (
	"cmp"
	"context"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/spilled"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

// maxSharers bounds who is named in an answer.
const maxSharers = 16

// sharing finds who needs some of the records that some files need.
type sharing struct {
	u    *Usage
	mine selection // names of these files, sorted

	mu      sync.Mutex
	records *spilled.Table // these, by keys
	all     []sharer
	more    int
}

// sharer is a step, or a file in no step.
type sharer struct {
	dir   *folder
	ino   uint64 // 0: it is the step
	bytes int64
}

// sharers says who needs what t needs, too. It looks at the files of the runs that name a shared record; where
// one is the base of what others need, it looks at all.
func (u *Usage) sharers(ctx context.Context, d *control.Du, t *taken, mine selection) error {
	s := &sharing{u: u, mine: mine, records: spilled.New(u.o.Spill)}
	near := s.shared(t)
	if err := s.look(ctx, func(d *folder) bool { return near[d.run] || near[asBase] }); err != nil {
		return err
	}
	s.cut()
	for _, x := range s.all {
		of := x.dir.path()
		if x.ino != 0 {
			if err := u.namesIn(x.dir, func(ino uint64, name string) {
				if ino == x.ino {
					of = path.Join(x.dir.path(), name)
				}
			}); err != nil {
				return err
			}
		}
		d.SharedWith = append(d.SharedWith, control.Sharer{Path: of, Bytes: x.bytes})
	}
	d.MoreShare = s.more
	return s.records.Err()
}

// shared notes the records that t needs and others, too, and returns who refers to them.
func (s *sharing) shared(t *taken) (near map[uint32]bool) {
	near = map[uint32]bool{}
	w := t.without
	w.mu.Lock()
	defer w.mu.Unlock()
	t.need.table.refs.Each(func(slot spilled.Slot) {
		for _, other := range w.table.whose(slot.Key) {
			s.records.Set(slot.Key, 0, 1)
			near[other.Who] = true
		}
	})
	return near
}

// look looks for sharers in the folders that are wanted.
func (s *sharing) look(ctx context.Context, wanted func(*folder) bool) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(cas.Processors)
	err := s.each(s.u.mirror.root, wanted, func(x sharer, needs []delta) error {
		g.Go(func() error { return s.see(inner, x, needs) })
		return inner.Err()
	})
	return cmp.Or(g.Wait(), err)
}

// each calls f with who may share, and what they need.
func (s *sharing) each(d *folder, wanted func(*folder) bool, f func(sharer, []delta) error) error {
	if isStep(d, s.u.mirror.root) {
		var needs []delta
		if wanted(d) {
			for _, n := range s.u.mirror.below(nil, d) {
				needs = s.needs(needs, n)
			}
		}
		if len(needs) == 0 {
			return nil
		}
		return f(sharer{dir: d}, needs)
	}
	if wanted(d) {
		for i, ino := range d.files {
			if i > 0 && d.files[i-1] == ino {
				continue
			}
			if needs := s.needs(nil, name{ino, d.number}); len(needs) > 0 {
				if err := f(sharer{dir: d, ino: ino}, needs); err != nil {
					return err
				}
			}
		}
	}
	for _, sub := range d.subs {
		if err := s.each(sub, wanted, f); err != nil {
			return err
		}
	}
	return nil
}

// isStep reports whether a folder is a step of a run.
func isStep(d, root *folder) bool {
	run := d.parent
	return run != nil && run.parent != nil && run.parent.parent == root && run.parent.name == steps.Dir
}

// needs appends what a file needs by a name that is not one of those that were asked for.
func (s *sharing) needs(all []delta, n name) []delta {
	f := s.u.mirror.files[n.ino]
	if f == nil || !f.known || f.manifest.IsZero() {
		return all
	}
	if s.asked(n) {
		return all
	}
	return append(all, delta{f.manifest, noRun, 1})
}

// asked reports whether all names that a file has in a folder are of those that were asked for.
func (s *sharing) asked(n name) bool {
	files := s.u.mirror.dirs[n.dir].files
	i, _ := slices.BinarySearchFunc(s.mine, n, name.compare)
	k, _ := slices.BinarySearch(files, n.ino)
	for ; i < len(s.mine) && s.mine[i] == n; i++ {
		k++
	}
	return k == len(files) || files[k] != n.ino
}

// see finds what a sharer shares.
func (s *sharing) see(ctx context.Context, x sharer, needs []delta) error {
	c := newCounts(s.u.o.Store, s.u.o.Spill)
	c.took = func(h cas.Hash, _ cas.Location, size int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.records.Has(keyOf(&h)) {
			x.bytes += size
		}
	}
	if err := c.applyAll(ctx, needs); err != nil {
		return err
	}
	if x.bytes == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = append(s.all, x); len(s.all) == 64*maxSharers {
		s.cut()
	}
	return nil
}

// cut leaves those who share most.
func (s *sharing) cut() {
	slices.SortFunc(s.all, func(a, b sharer) int {
		if n := cmp.Compare(b.bytes, a.bytes); n != 0 {
			return n // paths take longer
		}
		return cmp.Or(cmp.Compare(a.dir.path(), b.dir.path()), cmp.Compare(a.ino, b.ino))
	})
	n := min(maxSharers, len(s.all))
	s.more += len(s.all) - n
	s.all = s.all[:n]
}
