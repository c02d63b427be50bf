package tier

import (
	"context"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
	"ckptfs/index/manifest"
)

// Local reports whether all that reading a file takes is in the local store. It asks nobody over the network.
func (t *Tier) Local(f *record.File) (bool, error) {
	if f.Manifest.IsZero() { // it is inline
		return true, nil
	}
	if ok, err := t.holds([]cas.Hash{f.Manifest}); !ok || err != nil {
		return false, err
	}
	p, err := t.o.Store.Get(f.Manifest, nil)
	if err != nil {
		return false, ignoring(err)
	}
	m, err := manifest.Decode(p)
	if err != nil {
		return false, err
	}
	if ok, err := t.holds(m.Lists()); !ok || err != nil {
		return false, err
	}
	chunks, err := m.Chunks(t.o.Store.Get)
	if err != nil {
		return false, ignoring(err)
	}
	hashes := make([]cas.Hash, len(chunks))
	for i, c := range chunks {
		hashes[i] = c.Hash
	}
	return t.holds(hashes)
}

// ignoring is err, unless it is that a record is not there, or not whole.
func ignoring(err error) error {
	if lacks(err) {
		return nil
	}
	return err
}

// holds reports whether the local store has all of some records.
func (t *Tier) holds(hashes []cas.Hash) (bool, error) {
	locs := make([]cas.Location, len(hashes))
	if err := t.o.Store.Locate(hashes, locs); err != nil {
		return false, err
	}
	for _, l := range locs {
		if l.Segment == 0 {
			return false, nil
		}
	}
	return true, nil
}

// sampled: of so many records one is read by Held.
const sampled = 64

// Held returns an error unless the remote has what reading a file takes: its plan, and each object of that at
// its length. sample: one record in 64, and one at least, is read and held against its place. No cache is
// asked.
func (t *Tier) Held(ctx context.Context, f *record.File, sample bool) error {
	p, err := t.origin.Plan(ctx, f)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	for _, o := range p.Objects {
		g.Go(func() error {
			key := o.Class.Key(o.ID)
			_, info, err := t.origin.Bucket.Get(each, key, 0, 0, "")
			if err == nil && info.Size != o.Len {
				err = fmt.Errorf("the object %s has %d bytes, want %d: %w", key, info.Size, o.Len, cas.ErrCorrupt)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || !sample {
		return err
	}
	x := newPlan(p, f.Plan, nil, nil)
	var some []fetch.Record
	for n, i := rand.IntN(sampled), 0; i == 0 || n < len(x.keys); i, n = i+1, n+sampled {
		some = append(some, wanted{x, n % len(x.keys)}.record())
	}
	return t.origin.Each(ctx, some, func(int, *segment.Record, []byte) error { return nil })
}
