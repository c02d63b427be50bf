package volume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/tier"
	"ckptfs/cas/store"
	"ckptfs/fs/assemble"
	"ckptfs/fs/content"
	"ckptfs/fs/queue"
)

// cacheDir is the folder of a store that has what was read of its remote. It may be deleted.
const cacheDir = "cache"

// reads is where the records of packed files are read: in the local store, and, once that is joined to a
// remote, there.
type reads struct {
	local *store.Store
	tier  atomic.Pointer[joined]
}

// joined is a store with its remote.
type joined struct {
	*tier.Tier
	dir   *disk.Folder // the cache's
	cache *cache.Cache
	find  func(manifest cas.Hash) (*record.File, error)
}

var (
	_ assemble.Store = (*reads)(nil)
	_ content.Remote = (*reads)(nil)
)

// join adds the remote, of which find knows the files, with a cache in folder, which space tells the size and
// the free bytes of the disk.
func (r *reads) join(folder *disk.Folder, b bucket.Bucket, o *RemoteOptions, space queue.Space,
	find func(manifest cas.Hash) (*record.File, error)) error {
	j := &joined{find: find}
	if err := folder.MkdirAll(cacheDir, 0o700); err != nil {
		return err
	}
	var err error
	if j.dir, err = folder.Sub(cacheDir); err != nil {
		return err
	}
	if j.cache, err = cache.Open(j.dir, cache.Options{Max: o.RemoteCache, Disk: space}); err != nil {
		return errors.Join(err, j.dir.Close())
	}
	j.Tier = tier.New(tier.Options{Store: r.local, Bucket: b, Cache: j.cache, Timeout: o.RemoteTimeout,
		Find: find})
	r.tier.Store(j)
	return nil
}

func (r *reads) close() error {
	if j := r.tier.Load(); j != nil {
		return errors.Join(j.Close(), j.dir.Close())
	}
	return nil
}

// Get is assemble.Store's.
func (r *reads) Get(h cas.Hash, dst []byte) ([]byte, error) {
	if j := r.tier.Load(); j != nil {
		return j.Get(h, dst)
	}
	return r.local.Get(h, dst)
}

// Expect is assemble.Store's.
func (r *reads) Expect(hashes []cas.Hash, once bool) (done func()) {
	if j := r.tier.Load(); j != nil {
		return j.Expect(hashes, once)
	}
	return r.local.Expect(hashes, once)
}

// Pin is content.Remote's.
func (r *reads) Pin(manifest cas.Hash) (done func(), err error) {
	j := r.tier.Load()
	if j == nil {
		return nil, unjoined(manifest)
	}
	return j.Pin(manifest)
}

// Size is content.Remote's.
func (r *reads) Size(manifest cas.Hash) (int64, error) {
	j := r.tier.Load()
	if j == nil {
		return 0, unjoined(manifest)
	}
	f, err := j.find(manifest)
	if err == nil && f == nil {
		err = fmt.Errorf("manifest %s: nothing that was read of the remote has it: %w", manifest.Short(), cas.ErrNotFound)
	}
	if err != nil {
		return 0, err
	}
	return f.Size, nil
}

func unjoined(h cas.Hash) error {
	return fmt.Errorf("manifest %s: a remote has the file, and the store is used without it: %w", h.Short(),
		cas.ErrNotFound)
}

// plan reads where the remote has the file of a manifest.
func (r *reads) plan(manifest cas.Hash) error {
	j := r.tier.Load()
	if j == nil {
		return unjoined(manifest)
	}
	_, err := j.Plan(context.Background(), manifest)
	return err
}

// here reports whether the local store has a manifest: false of one that only a remote has, or that was
// swept.
func (r *reads) here(manifest cas.Hash) (bool, error) {
	var at [1]cas.Location
	err := r.local.Locate([]cas.Hash{manifest}, at[:])
	return at[0].Segment != 0, err
}

// moved says that the plans of files are elsewhere now.
func (r *reads) moved(files []*record.File) { r.tier.Load().Moved(files) }

// reader reads the remote's objects, by way of the cache.
func (r *reads) reader() *fetch.Reader { return r.tier.Load().Reader() }

// stored frees the cache of an object of which the local store has so many bytes now.
func (r *reads) stored(id record.ID, bytes int64) { r.tier.Load().cache.Stored(id, bytes) }

// held returns an error unless the remote has what reading a file takes. Some of it is read.
func (r *reads) held(ctx context.Context, f *record.File) error {
	return r.tier.Load().Held(ctx, f, true)
}
