package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"ckptfs/cas"
	"ckptfs/cas/codec"
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
	here   bool // in the cache; what it is stored against may not be
}

// claim launches those of all that are not on their way, and not settled.
func (f *flights) claim(c *cache.Cache, all []wanted) (mine []launched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range all {
		if l, _ := f.claimLocked(c, w); l != nil {
			mine = append(mine, *l)
		}
	}
	return mine
}

// claimLocked launches a record, or returns the flight that it is on; neither: it is in the cache, and what
// it is stored against was on its way.
func (f *flights) claimLocked(c *cache.Cache, w wanted) (*launched, *flight) {
	r := w.record()
	at := place{r.Object.ID, r.Off}
	if x := f.coming[at]; x != nil {
		return nil, x
	}
	here := c.Has(r.Object.ID, r.Off, r.Len())
	if f.closed || here && (w.p.settled[w.n] || len(w.p.Bases) == 0) {
		return nil, nil
	}
	x := &flight{over: make(chan struct{})}
	f.coming[at] = x
	return &launched{w, r, x, here}, nil
}

// here reports whether a record is in the cache, or on its way.
func (f *flights) here(c *cache.Cache, w wanted) bool {
	r := w.record()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.coming[place{r.Object.ID, r.Off}] != nil || c.Has(r.Object.ID, r.Off, r.Len())
}

// unsettle forgets what was asked for: some of it left the cache.
func (f *flights) unsettle(p *plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(p.settled)
}

func (f *flights) end(l *launched, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.coming, place{l.at.Object.ID, l.at.Off})
	l.p.settled[l.n] = l.p.settled[l.n] || err == nil
	l.flight.err = err
	close(l.flight.over)
	l.flight = nil
}

// unreachable reports whether the remote could not be read, whatever for: asking again is of no use now.
func unreachable(err error) bool {
	return errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrBusy) ||
		errors.Is(err, bucket.ErrDenied) || errors.Is(err, bucket.ErrNoBucket)
}

// await has a record come to the cache, and waits for it. What is wrong with the record is not its business:
// its reader finds out.
func (t *Tier) await(ctx context.Context, w wanted) error {
	t.flights.mu.Lock()
	mine, others := t.flights.claimLocked(t.o.Cache, w)
	t.flights.mu.Unlock()
	var err error
	switch {
	case mine != nil:
		err = t.fetch(ctx, []launched{*mine}, nil)
	case others != nil:
		select {
		case <-others.over:
			err = others.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if unreachable(err) && ctx.Err() == nil && t.ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// request has records come to the cache that the local store lacks, and waits for none of them.
func (t *Tier) request(all []wanted) {
	t.dispatch(t.flights.claim(t.o.Cache, t.absent(all)), nil)
}

// dispatch fetches records in the background, when room, if it is not nil, has some.
func (t *Tier) dispatch(mine []launched, room *semaphore.Weighted) {
	if len(mine) > 0 && !t.flights.work(func() {
		if room != nil {
			if room.Acquire(t.ctx, 1) != nil {
				t.land(mine, t.ctx.Err())
				return
			}
			defer room.Release(1)
		}
		_ = t.fetch(t.ctx, mine, room) // who reads them meets it
	}) {
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

// basesAtOnce is how many bytes of what was fetched is stored against are asked for together.
const basesAtOnce = 4 << 20

// fetch fetches records to the cache. What they are stored against is asked for, when room, if it is not nil,
// has some, and not waited for.
func (t *Tier) fetch(ctx context.Context, all []launched, room *semaphore.Weighted) (err error) {
	if len(all) == 0 {
		return nil
	}
	t.meter.begin()
	defer t.meter.end()
	b := bases{t: t, room: room}
	err = b.each(ctx, all)
	b.flush()
	t.land(all, err)
	return err
}

// land ends the flights that are not over.
func (t *Tier) land(all []launched, err error) {
	for i := range all {
		if all[i].flight != nil {
			t.flights.end(&all[i], err)
		}
	}
}

// bases gathers what fetched records are stored against. It is launched before the record lands: who waits
// for that waits for it, too, and does not ask for it by itself.
type bases struct {
	t     *Tier
	room  *semaphore.Weighted
	mu    sync.Mutex
	all   []launched
	bytes int64
}

// each reads records, and ends the flight of each that was read.
func (b *bases) each(ctx context.Context, all []launched) error {
	records := make([]fetch.Record, len(all))
	for i := range all {
		records[i] = all[i].at
	}
	return b.t.reader.Each(ctx, records, func(i int, rec *segment.Record, payload []byte) error {
		l := &all[i]
		if k := l.key(); k != (key{}) && k != keyOf(rec.Hash) {
			return fmt.Errorf("record %s, want %x: %w", rec.Hash.Short(), k[:6], cas.ErrCorrupt)
		}
		if !l.here {
			b.t.meter.got(int64(rec.Stored))
			l.p.stream.fetched(l.n < l.p.firstBase(), int64(rec.Stored))
		}
		if err := b.of(l.p, rec, payload); err != nil {
			return err
		}
		if l.flight != nil {
			b.t.flights.end(l, nil)
		}
		return nil
	})
}

// of gathers what a record is stored against.
func (b *bases) of(p *plan, rec *segment.Record, payload []byte) error {
	if !codec.NeedsBase(rec.Codec) {
		return nil
	}
	base, err := segment.ParseBase(rec.Codec, payload)
	if err != nil {
		return err
	}
	var all []wanted
	for _, h := range base.Hashes() {
		if n, ok := p.find(keyOf(h)); ok {
			all = append(all, wanted{p, n})
		}
	}
	mine := b.t.flights.claim(b.t.o.Cache, b.t.absent(all))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range mine {
		b.bytes += int64(l.at.Stored)
	}
	if b.all = append(b.all, mine...); b.bytes >= basesAtOnce {
		b.flushLocked()
	}
	return nil
}

func (b *bases) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushLocked()
}

func (b *bases) flushLocked() {
	b.t.dispatch(b.all, b.room)
	b.all, b.bytes = nil, 0
}
