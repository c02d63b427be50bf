package usage

import (
	"context"
	"errors"
	"maps"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/fs/control"
)

// taken is what some files take of the segments.
type taken struct {
	need    *counts // what they need
	without *counts // of what is counted, what others need
	goes    map[uint32]*goes
}

// goes is what only these files need of a segment.
type goes struct {
	bytes int64
	hash  cas.Hash // of one of its records
	loc   cas.Location
}

// errStale: what was counted is not what is stored any more.
var errStale = errors.New("what is stored changes too fast to be counted")

// take finds out what files take that need manifests, and what would go with others of them.
func (u *Usage) take(ctx context.Context, needs, without []delta) (*taken, error) {
	u.mu.AssertHeld()
	t := &taken{need: newCounts(u.o.Store, u.o.Spill), without: u.counts.without(u.o.Spill),
		goes: map[uint32]*goes{}}
	t.without.took = func(h cas.Hash, l cas.Location, size int64) {
		if t.goes[l.Segment] == nil {
			t.goes[l.Segment] = &goes{hash: h, loc: l}
		}
		t.goes[l.Segment].bytes += size
	}
	if err := t.need.applyAll(ctx, needs); err != nil {
		return nil, err
	}
	if err := t.without.applyAll(ctx, without); err != nil {
		return nil, err
	}
	if t.need.isStale() || t.without.isStale() {
		return nil, errStale
	}
	return t, nil
}

// stored is how many bytes the records take that the files need.
func (t *taken) stored() int64 { return t.need.live }

// alone is the part of stored that goes with the files.
func (t *taken) alone() int64 { return -t.without.live }

// young is the part of alone that a prune with grace leaves for now: its segments are being written, or were
// until lately.
func (u *Usage) young(t *taken) (n int64) {
	deadline := u.o.Now().Add(-control.DefaultGrace)
	for _, g := range t.goes {
		old := false
		_ = u.o.Store.With(g.hash, g.loc, func(r *segment.Reader, _ cas.Location) error {
			ft, err := r.Footer()
			old = err == nil && !ft.Sealed.After(deadline)
			return nil
		})
		if !old {
			n += g.bytes
		}
	}
	return n
}

// newCounts makes counts in which nothing is counted yet.
func newCounts(s *store.Store, dir *disk.Folder) *counts {
	c := &counts{store: s, mu: new(locks.Mutex[countsLock])}
	c.reset(dir)
	return c
}

// without makes counts from which may be taken away what c has, which stays as it is: nothing may be counted
// in it meanwhile. Runs are not counted in them.
func (c *counts) without(dir *disk.Folder) *counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &counts{store: c.store, mu: c.mu, table: c.table.without(dir), unread: maps.Clone(c.unread),
		hurt: maps.Clone(c.hurt), skipped: maps.Clone(c.skipped)}
	w.on.Store(true)
	return w
}
