package tier

import (
	"context"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/store"
)

// Options of a Tier.
type Options struct {
	Store *store.Store
	// Bucket is the remote; nil: there is none. Origin is past every cache between here and there; nil:
	// Bucket is.
	Bucket, Origin bucket.Bucket
	Cache          *cache.Cache
	// Find is the file that has a manifest, as its entry says; nil: the remote has none.
	Find func(manifest cas.Hash) (*record.File, error)
}

// Tier reads records.
type Tier struct{ o Options }

// New returns a Tier.
func New(o Options) *Tier { return &Tier{o: o} }

// Close ends what is under way.
func (t *Tier) Close() error { return nil }

// Get is as that of a local store.
func (t *Tier) Get(h cas.Hash, dst []byte) ([]byte, error) { return t.o.Store.Get(h, dst) }

// Expect is as that of a local store.
func (t *Tier) Expect(hashes []cas.Hash) (done func()) { return t.o.Store.Expect(hashes) }

// Pin has the records of a file be found until done.
func (t *Tier) Pin(manifest cas.Hash) (done func(), err error) { return func() {}, nil }

// Plan is where the records of a file lie.
func (t *Tier) Plan(ctx context.Context, manifest cas.Hash) (*record.Plan, error) { return nil, cas.ErrNotFound }

// Local reports whether all of a file is in the local store.
func (t *Tier) Local(f *record.File) (bool, error) { return false, nil }

// Reader reads through the cache.
func (t *Tier) Reader() *fetch.Reader { return nil }

// Held holds that the remote has what reading a file takes.
func (t *Tier) Held(ctx context.Context, f *record.File, sample bool) error { return nil }
