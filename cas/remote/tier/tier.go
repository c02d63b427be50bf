// Package tier reads records wherever they are: in the local store, in the cache of ranges, or in the remote.
//
// # Where a record is
//
// What the local store has is read there. Of everything else a plan says in which object it lies, and where
// (package record). A plan is loaded when the manifest of its file is asked for, or a chunk of a file that is
// pinned: with the plan come the manifest and the lists, which tell the hashes of the chunks in the plan's
// order. Mostly all of these lie in one object, shortly before the plan, so one request brings them.
//
// # What is believed
//
// Nothing of what the remote, a mirror or the cache gives. A record is tied to its place (package fetch), and
// its content is held against the hash that was asked for. Of a delta that is enough: if its bases were
// wrong, so is its content. Then each of them is held against its own hash, and what is wrong is read again
// past every cache. What is wrong there, too, is an error that names the object.
//
// # What is asked for
//
//	Expect     records are fetched together, with few requests, and with them all that they are stored
//	           against, as their plan says
//	reading    a file that is read from its begin is fetched ahead of its reader; see ahead
//	one        a record that nobody expected is fetched with all that it is stored against
//
// All of it goes into the cache, from where it is decoded. A record that is on its way is not asked for
// again: who wants it waits for it (flights).
package tier

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
)

// Options of a Tier.
type Options struct {
	Store  *store.Store
	Bucket bucket.Bucket // the remote; nil: there is none
	Cache  *cache.Cache
	// Timeout is for how long a read asks a remote again that is busy or cannot be reached; 0: for how long
	// the bucket does.
	Timeout time.Duration
	// Find is the file that has a manifest, as its entry says; nil: the remote has none.
	Find func(manifest cas.Hash) (*record.File, error)
}

// requests is how many are made at a time ahead of readers, and for one batch of records.
const requests = 8

// Tier reads records. It is an assemble.Store, and safe for concurrent use.
type Tier struct {
	o       Options
	cached  bucket.Bucket // what the cache has is read there
	reader  *fetch.Reader
	origin  *fetch.Reader // past every cache, ours too
	ctx     context.Context
	stop    context.CancelFunc
	loads   singleflight.Group // plans
	ahead   *semaphore.Weighted
	meter   meter
	plans   plans
	flights flights
}

// New returns a Tier.
func New(o Options) *Tier {
	t := &Tier{o: o, ahead: semaphore.NewWeighted(requests)}
	t.ctx, t.stop = context.WithCancel(context.Background())
	if o.Timeout > 0 {
		t.ctx = patient.For(t.ctx, o.Timeout)
	}
	t.plans.init()
	t.flights.init()
	if o.Bucket != nil {
		t.cached = o.Cache.Bucket(o.Bucket)
		t.reader = &fetch.Reader{Bucket: t.cached, Requests: requests, First: rand.IntN,
			Here: func(r *fetch.Record) bool { return o.Cache.Has(r.Object.ID, r.Off, r.Len()) }}
		t.origin = &fetch.Reader{Bucket: bucket.Past(o.Bucket)}
	}
	return t
}

// Close ends what is under way. Readers get errors of what is not local.
func (t *Tier) Close() error {
	t.stop()
	t.flights.close()
	return nil
}

// Reader reads records of objects, through the cache; nil: there is no remote.
func (t *Tier) Reader() *fetch.Reader { return t.reader }

// Get appends the content of a record to dst. Errors are as those of a local store: they wrap cas.ErrNotFound
// only if no plan has the record. What keeps the remote from being read is a *bucket.Error.
func (t *Tier) Get(h cas.Hash, dst []byte) ([]byte, error) {
	out, err := t.o.Store.Get(h, dst)
	if err == nil || t.reader == nil || !lacks(err) {
		return out, err
	}
	out, rerr := t.get(h, dst)
	switch {
	case rerr == nil:
		return out, nil
	case errors.Is(rerr, errUnplanned):
		return dst, err
	}
	return dst, &cas.ChunkError{Hash: h, Err: rerr}
}

// lacks reports whether the local store does not have a record, or not whole.
func lacks(err error) bool {
	return errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt)
}

func (t *Tier) get(h cas.Hash, dst []byte) ([]byte, error) {
	w, err := t.where(t.ctx, h)
	if err != nil {
		return dst, err
	}
	t.follow(w)
	if err := t.await(t.ctx, w); err != nil {
		return dst, err
	}
	return t.content(t.ctx, w, h, dst, segment.AnyNumber, true)
}

// Expect says that these records will be asked for soon, and as store.Store's, that this is once; done, that
// they were, or will not be. It waits for nothing from the remote.
func (t *Tier) Expect(hashes []cas.Hash, once bool) (done func()) {
	if t.reader != nil { // first: the store may wait for memory
		var all []wanted
		for _, h := range hashes {
			if w, ok := t.plans.find(h); ok {
				all = append(all, w)
			}
		}
		t.request(all)
	}
	return t.o.Store.Expect(hashes, once)
}
