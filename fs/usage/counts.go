package usage

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/store"
	"ckptfs/fs/control"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

// counts are what manifests refer to. A manifest is counted once for each run that has files with it, a list
// once for each run that has manifests with it, and a chunk likewise.
type counts struct {
	store *store.Store
	on    atomic.Bool // something was counted

	mu    *locks.Mutex[countsLock]
	table table
	// took is told, with mu held, of each record that files begin or cease to need, and of the room that it
	// takes. May be nil.
	took func(h cas.Hash, l cas.Location, size int64)
	runs []control.RunStats // by the numbers in table; the first is no run's
	sum  control.Stats
	live int64 // bytes of the records that files need
	by   [codec.Count]control.Encoding
	// unread are manifests and lists that could not be read when they were counted, and hurt the manifests
	// that they are, or are of. skipped says how often what they refer to was not counted, for whom; of
	// records that are stored against others, asBase.
	unread, hurt map[cas.Hash]bool
	skipped      map[reference]int
	found        bool // a list was found to be unread: manifests that were counted may be hurt
	// stale: a counted record was replaced, or could not be read any more. All is to be counted again.
	stale bool
}

// reference is that of a run to a record.
type reference struct {
	hash cas.Hash
	run  uint32
}

// reset forgets all that was counted. What is counted from now on may lie in a file of a folder.
func (c *counts) reset(dir *disk.Folder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on.Store(true)
	c.table = newTable(dir)
	c.runs = make([]control.RunStats, 1)
	c.sum, c.live, c.by = control.Stats{}, 0, [codec.Count]control.Encoding{}
	c.unread, c.hurt, c.skipped = map[cas.Hash]bool{}, map[cas.Hash]bool{}, map[reference]int{}
	c.stale, c.found = false, false
}

// isStale reports whether all is to be counted again.
func (c *counts) isStale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale || c.on.Load() && c.table.err() != nil
}

func (c *counts) spoil() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// apply counts what manifests runs get and lose. names are those of the runs by their numbers.
func (c *counts) apply(ctx context.Context, changes []delta, names []string) error {
	c.mu.Lock()
	c.runs = append(c.runs, make([]control.RunStats, len(names)-len(c.runs))...)
	for n := range c.runs {
		c.runs[n].Run = names[n] // a number may be another run's by now
	}
	c.mu.Unlock()
	got := slices.DeleteFunc(slices.Clone(changes), func(d delta) bool { return d.by < 0 })
	if err := c.applyAll(ctx, got); err != nil {
		return err
	}
	// Last, so that what a file had before and has now is not counted again.
	for _, d := range changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.by < 0 {
			if err := (&change{c: c, run: d.run, by: -1}).manifest(d.manifest); err != nil {
				return err
			}
		}
	}
	return nil
}

// applyAll counts manifests that runs get, or lose, on all processors.
func (c *counts) applyAll(ctx context.Context, changes []delta) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(cas.Processors)
	for some := range slices.Chunk(changes, partFiles) {
		g.Go(func() error {
			for _, d := range some {
				if err := (&change{c: c, run: d.run, by: d.by}).manifest(d.manifest); err != nil {
					return err
				}
				if err := inner.Err(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// findHurt finds the manifests of which a list is unread that was not known to be when they were counted.
func (c *counts) findHurt(m *mirror) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.found {
		return nil
	}
	c.found = false
	for _, f := range m.files {
		h := f.manifest
		if h.IsZero() || c.hurt[h] {
			continue
		}
		c.mu.Unlock()
		p, err := c.store.Get(h, nil)
		var doc *manifest.Manifest
		if err == nil {
			doc, err = manifest.Decode(p)
		}
		c.mu.Lock()
		if err != nil && !damaged(err) {
			return err
		}
		c.hurt[h] = err != nil || slices.ContainsFunc(doc.Objects, func(o manifest.Object) bool {
			return o.List && c.unread[o.Digest]
		})
	}
	return nil
}

// change is a manifest that a run gets, or with by -1 loses, by one of its files.
type change struct {
	c   *counts
	run uint32
	by  int64

	turned []turned
}

// turned is a record that files, or records that are stored against it, begin or cease to need.
type turned struct {
	hash cas.Hash
	base bool // the others, whatever files do: they do not
	file bool // files do
}

// manifest counts a manifest, and what it refers to.
func (x *change) manifest(h cas.Hash) error {
	m, err := x.readManifest(h)
	if m == nil {
		return err
	}
	var lists []manifest.Object
	if !x.begin(h, m, &lists) {
		return nil
	}
	for _, o := range lists {
		if err := x.list(h, o); err != nil {
			return err
		}
	}
	return x.settle()
}

// readManifest reads a manifest; nil without an error: one that cannot be read, and is not counted.
func (x *change) readManifest(h cas.Hash) (*manifest.Manifest, error) {
	p, err := x.c.store.Get(h, nil)
	var m *manifest.Manifest
	if err == nil {
		m, err = manifest.Decode(p)
	}
	if err != nil && !damaged(err) {
		return nil, err
	}
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	if x.skip(h, h, err) {
		return nil, nil
	}
	return m, nil
}

// skip reports whether a manifest, or a list of it, is passed over, which was read with err. c.mu is held.
func (x *change) skip(m, h cas.Hash, err error) bool {
	c, r := x.c, reference{h, x.run}
	switch {
	case x.by < 0 && c.skipped[r] > 0:
		c.skipped[r]--
	case err == nil && (x.by < 0 || !c.unread[h]):
		return false
	case err == nil || x.by < 0: // it was lost, and is there again; or the other way round
		c.stale = true
	default:
		c.unread[h], c.hurt[m] = true, true
		c.found = c.found || m != h
		c.skipped[r]++
	}
	return true
}

// damaged reports whether err says that what was stored is not there any more, or that the disk has not the
// bytes.
func damaged(err error) bool {
	return errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) || disk.Unreadable(err)
}

// begin counts a manifest and its objects. lists are those whose chunks are to be counted; false: it has been
// counted, or is still.
func (x *change) begin(h cas.Hash, m *manifest.Manifest, lists *[]manifest.Object) bool {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	is := x.refer(&h)
	if !is.own {
		return false
	}
	if is.alone {
		c.sum.Manifests += x.by
		c.sum.Tensors += x.by * int64(len(m.Tensors))
	}
	for _, o := range m.Objects {
		if o.List && c.unread[o.Digest] {
			c.hurt[h] = true
		}
		switch is := x.refer(&o.Digest); {
		case !is.own:
		case o.List:
			*lists = append(*lists, o)
		default:
			x.chunk(is, o.Len)
		}
	}
	return true
}

// list counts the chunks of a list.
func (x *change) list(of cas.Hash, o manifest.Object) error {
	c := x.c
	spans, err := o.Spans(c.store.Get)
	if err != nil && !damaged(err) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.skip(of, o.Digest, err) {
		return nil
	}
	for _, s := range spans {
		if is := x.refer(&s.Hash); is.own {
			x.chunk(is, int64(s.Len))
		}
	}
	return nil
}

// refer counts a reference of the run to a record. c.mu is held.
func (x *change) refer(h *cas.Hash) turn {
	is, ok := x.c.table.add(h, x.run, int(x.by))
	if !ok {
		x.c.stale = true
	}
	if is.own && is.alone {
		x.turned = append(x.turned, turned{*h, is.base, true})
	}
	return is
}

// chunk counts a chunk that the run begins, or ceases, to need. c.mu is held.
func (x *change) chunk(is turn, size int64) {
	c := x.c
	if is.alone {
		c.sum.Chunks += x.by
		c.sum.UniqueBytes += x.by * size
	}
	if x.run == noRun || c.table.under != nil {
		return
	}
	c.runs[x.run].UniqueBytes += x.by * size
	next := uint32(noRun) // the first of the other runs
	for _, p := range is.all {
		if p.Who != x.run && p.Who != noRun && p.Who != asBase &&
			(next == noRun || runs.Compare(c.runs[p.Who].Run, c.runs[next].Run) < 0) {
			next = p.Who
		}
	}
	switch {
	case next == noRun:
	case runs.Compare(c.runs[next].Run, c.runs[x.run].Run) < 0:
		return
	default:
		c.runs[next].NewBytes -= x.by * size
	}
	c.runs[x.run].NewBytes += x.by * size
}

// settle counts the room that the records take that turned, and what these are stored against.
func (x *change) settle() error {
	c := x.c
	for len(x.turned) > 0 {
		now := x.turned
		x.turned = nil
		hashes, locs := make([]cas.Hash, len(now)), make([]cas.Location, len(now))
		for i := range now {
			hashes[i] = now[i].hash
		}
		if err := c.store.Locate(hashes, locs); err != nil {
			return err
		}
		for i := range now {
			if locs[i].Segment == 0 {
				if x.by < 0 { // it may have had a place when it was counted
					c.spoil()
				}
				continue
			}
			x.room(&now[i], locs[i])
			if now[i].base && now[i].file || !locs[i].Delta {
				continue
			}
			if err := x.bases(now[i].hash, locs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// room counts what a record takes.
func (x *change) room(r *turned, l cas.Location) {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	size := x.by * l.RecordSize()
	if !r.base || !r.file {
		c.live += size
		if c.took != nil {
			c.took(r.hash, l, l.RecordSize())
		}
	}
	switch {
	case !r.file:
		c.sum.BaseBytes += size
	case r.base:
		c.sum.BaseBytes -= size
	}
	if !r.file {
		return
	}
	if l.Codec < codec.Count {
		e := &c.by[l.Codec]
		e.Records, e.RawBytes, e.Bytes = e.Records+x.by, e.RawBytes+x.by*int64(l.Raw), e.Bytes+size
	}
	if l.Delta {
		c.sum.Deltas += x.by
		c.sum.DeltaRawBytes += x.by * int64(l.Raw)
		c.sum.DeltaBytes += size
	}
}

// bases counts what a record is stored against. One that is lost takes no room.
func (x *change) bases(h cas.Hash, l cas.Location) error {
	bases, err := x.c.store.BasesOf(h, l)
	if err != nil && !damaged(err) {
		return err
	}
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	r := reference{h, asBase}
	switch {
	case x.by < 0 && x.c.skipped[r] > 0: // the disk may read it by now, but they were not counted
		x.c.skipped[r]--
		return nil
	case err != nil && x.by < 0:
		x.c.stale = true
	case err != nil:
		x.c.skipped[r]++
	}
	for _, b := range bases {
		is, ok := x.c.table.add(&b, asBase, int(x.by))
		if !ok {
			x.c.stale = true
		}
		if is.own && is.alone {
			x.turned = append(x.turned, turned{hash: b, base: true})
		}
	}
	return nil
}
