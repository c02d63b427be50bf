package content

import (
	"fmt"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/scratch"
	"ckptfs/index/manifest"
)

// provable is the manifest that stands for the local copy of f, which may be dropped; false: there is none
// now.
func provable(f *File) (cas.Hash, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.LoadLocked() != nil {
		return cas.Hash{}, false
	}
	keeps := !f.rec.Packed() || f.rec.Hollow || f.rec.Remote || f.Dead() || f.users.pass > 0 ||
		f.local.hydrating
	return f.rec.Manifest, !keeps
}

// prove reads each chunk of a manifest that was neither written nor read since the daemon began: a disk may
// have lost it, or damaged it, and nobody knows yet. An error that wraps cas.ErrCorrupt or cas.ErrNotFound
// says which chunk is bad; it is suspect from then on, so that its content is stored afresh when it comes
// again.
//
// It takes as long as a read of these chunks, on half of the processors. No lock is held.
func (c *Files) prove(h cas.Hash) error {
	m, err := c.manifest(h)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(max(1, cas.Processors/2))
	for _, o := range m.Objects {
		spans, err := o.Spans(c.store.Get)
		if err != nil {
			_ = g.Wait()
			return fmt.Errorf("chunk list: %w", err)
		}
		for len(spans) > 0 {
			some := spans[:min(len(spans), provenAtOnce)]
			spans = spans[len(some):]
			g.Go(func() error { return c.proveSome(some) })
		}
	}
	return g.Wait()
}

// provenAtOnce is how many chunks one goroutine looks at before it hands over to another one.
const provenAtOnce = 64

// proveSome is prove of some chunks.
func (c *Files) proveSome(spans []manifest.Span) error {
	var hashes []cas.Hash
	for _, s := range spans {
		if !c.known.Proven(s.Hash) {
			hashes = append(hashes, s.Hash)
		}
	}
	locs := make([]cas.Location, len(hashes))
	if err := c.store.Locate(hashes, locs); err != nil {
		return err
	}
	buf := scratch.Get()
	defer scratch.Put(buf)
	for i, h := range hashes {
		if locs[i].Segment == 0 {
			return &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}
		}
		if n := int(locs[i].Raw); cap(*buf) < n {
			*buf = make([]byte, n)
		}
		if err := c.store.ReadInto(locs[i], h, (*buf)[:locs[i].Raw]); err != nil {
			return err
		}
	}
	return nil
}
