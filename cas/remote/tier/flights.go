package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// flights are the records that are on their way to the cache.
type flights struct {
	mu     sync.Mutex
	coming map[place]*flight
	closed bool
	under  sync.WaitGroup // begins under mu, and not once closed is set
}

type place struct {
	id  record.ID
	off int64
}

// flight ends when its record is in the cache, or will not be.
type flight struct {
	over chan struct{}
	err  error // why not; set before over is closed
}

func (f *flights) init() { f.coming = map[place]*flight{} }

// close waits for what is under way; nothing begins any more.
func (f *flights) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.under.Wait()
}

// begin has close wait until under is told that something is done; false: nothing begins any more.
func (f *flights) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.under.Add(1)
	}
	return !f.closed
}

// work runs do in the background; false: not any more.
func (f *flights) work(do func()) bool {
	if !f.begin() {
		return false
	}
	go func() {
		defer f.under.Done()
		do()
	}()
	return true
}

// launched is a record whose flight its holder must end.
type launched struct {
	wanted
	at     fetch.Record
	flight *flight
}

// claim launches those of all that are neither in the cache nor on their way.
func (f *flights) claim(c *cache.Cache, all []wanted) (mine []launched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range all {
		r := w.record()
		at := place{r.Object.ID, r.Off}
		if f.closed || f.coming[at] != nil || c.Has(r.Object.ID, r.Off, r.Len()) {
			continue
		}
		x := &flight{over: make(chan struct{})}
		f.coming[at] = x
		mine = append(mine, launched{w, r, x})
	}
	return mine
}

// flightOf is the flight that a record is on; nil: none.
func (f *flights) flightOf(w wanted) *flight {
	r := w.record()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.coming[place{r.Object.ID, r.Off}]
}

func (f *flights) end(l *launched, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.coming, place{l.at.Object.ID, l.at.Off})
	l.flight.err = err
	close(l.flight.over)
	l.flight = nil
}

// unreachable reports whether the remote could not be read, whatever for: asking again is of no use now.
func unreachable(err error) bool {
	return errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrBusy) ||
		errors.Is(err, bucket.ErrDenied) || errors.Is(err, bucket.ErrNoBucket)
}

// await has a record, and all that it is stored against, come to the cache, and waits for the record. What
// is wrong with that is not its business: its reader finds out.
func (t *Tier) await(ctx context.Context, w wanted) error {
	other := t.flights.flightOf(w)
	if other == nil {
		mine := t.flights.claim(t.o.Cache, append(t.needs([]wanted{w}), w))
		if n := len(mine); n > 0 && mine[n-1].wanted == w {
			other = mine[n-1].flight
		}
		t.dispatch(mine)
	}
	if other == nil {
		return ctx.Err()
	}
	select {
	case <-other.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	if unreachable(other.err) && ctx.Err() == nil && t.ctx.Err() == nil {
		return other.err
	}
	return ctx.Err()
}

// request has records come to the cache that the local store lacks, with all that they are stored against,
// and waits for none of them.
func (t *Tier) request(all []wanted) { t.dispatch(t.launch(all)) }

// launch launches records that the local store lacks, with all that they are stored against.
func (t *Tier) launch(all []wanted) []launched {
	all = t.absent(all)
	return t.flights.claim(t.o.Cache, append(all, t.needs(all)...))
}

// needs are the records that the local store lacks and that others are stored against, as their plan says. It
// goes as deep as records may be stored against each other, whatever a hostile plan says.
func (t *Tier) needs(all []wanted) (more []wanted) {
	seen := map[wanted]bool{}
	for range segment.AnyNumber {
		var next []wanted
		for _, w := range all {
			for _, n := range w.p.against(w.n) {
				if base := (wanted{w.p, n}); !seen[base] {
					seen[base] = true
					next = append(next, base)
				}
			}
		}
		all = t.absent(next)
		more = append(more, all...)
	}
	return more
}

// dispatch fetches records in the background.
func (t *Tier) dispatch(mine []launched) {
	if len(mine) > 0 && !t.flights.work(func() { _ = t.fetch(t.ctx, mine) }) {
		t.land(mine, context.Canceled)
	}
}

// absent are those of all that the local store lacks.
func (t *Tier) absent(all []wanted) (not []wanted) {
	hashes := make([]cas.Hash, len(all))
	for i, w := range all {
		hashes[i] = w.key().hash()
	}
	locs := make([]cas.Location, len(all))
	if t.o.Store.Locate(hashes, locs) != nil {
		return nil // readers meet it
	}
	for i, l := range locs {
		if l.Segment == 0 {
			not = append(not, all[i])
		}
	}
	return not
}

// fetch fetches records to the cache. Who reads them meets what is wrong with them.
func (t *Tier) fetch(ctx context.Context, all []launched) error {
	if len(all) == 0 {
		return nil
	}
	t.meter.begin()
	defer t.meter.end()
	err := t.fly(ctx, all)
	t.land(all, err)
	return err
}

// fly reads records, and ends the flight of each that was read.
func (t *Tier) fly(ctx context.Context, all []launched) error {
	records := make([]fetch.Record, len(all))
	for i := range all {
		records[i] = all[i].at
	}
	return t.reader.Each(ctx, records, func(i int, rec *segment.Record, payload []byte) error {
		l := &all[i]
		if k := l.key(); k != (key{}) && k != keyOf(rec.Hash) {
			return fmt.Errorf("record %s, want %x: %w", rec.Hash.Short(), k[:6], cas.ErrCorrupt)
		}
		t.meter.got(int64(rec.Stored))
		l.p.stream.fetched(l.n < l.p.firstBase(), int64(rec.Stored))
		t.flights.end(l, nil)
		return nil
	})
}

// land ends the flights that are not over.
func (t *Tier) land(all []launched, err error) {
	for i := range all {
		if all[i].flight != nil {
			t.flights.end(&all[i], err)
		}
	}
}
