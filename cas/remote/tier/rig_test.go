package tier

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/store"
	"ckptfs/fs/assemble"
)

// counting counts Gets of a bucket, and changes what they give.
type counting struct {
	bucket.Bucket
	mu     sync.Mutex
	gets   int
	bytes  int64
	heads  int // Gets of nothing but Info
	change func(key string, off int64, p []byte) []byte
	fail   func(key string, off int64) error
	wait   chan struct{} // every Get waits for it; nil: none does
	past   bucket.Bucket // past every cache; nil: this
}

func (c *counting) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	c.mu.Lock()
	if c.gets++; n == 0 {
		c.gets--
		c.heads++
	}
	wait, fail, change := c.wait, c.fail, c.change
	c.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, bucket.Info{}, &bucket.Error{Op: "get", Kind: bucket.ErrUnreachable, Err: ctx.Err()}
		}
	}
	if fail != nil {
		if err := fail(key, off); err != nil {
			return nil, bucket.Info{}, err
		}
	}
	r, info, err := c.Bucket.Get(ctx, key, off, n, unless)
	if err != nil {
		return r, info, err
	}
	p, err := io.ReadAll(r)
	c.mu.Lock()
	c.bytes += int64(len(p))
	c.mu.Unlock()
	if change != nil {
		p = change(key, off, slices.Clone(p))
	}
	return io.NopCloser(bytes.NewReader(p)), info, err
}

// set changes what becomes of Gets, also while some are made.
func (c *counting) set(f func(*counting)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// Past is the bucket past every cache.
func (c *counting) Past() bucket.Bucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.past != nil {
		return c.past
	}
	return c
}

// asked is how many Gets there were, and how many bytes they gave, since it was called last.
func (c *counting) asked() (gets int, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gets, n, c.gets, c.bytes = c.gets, c.bytes, 0, 0
	return gets, n
}

// empty is a disk with room.
func empty() (size, free int64, err error) { return 1 << 40, 1 << 39, nil }

// rig is a remote that one machine published files to, and another that reads them.
type rig struct {
	remote *counting
	one    *remotetest.Machine
	files  map[cas.Hash]*record.File
	store  *store.Store // of the other machine
	folder string
	cache  *cache.Cache
	*Tier
	asm *assemble.Reader
}

func newRig(t testing.TB) *rig {
	b := &counting{Bucket: &bucket.Mem{}}
	r := &rig{remote: b, one: remotetest.NewMachine(t, b, 1), files: map[cas.Hash]*record.File{},
		store: remotetest.NewStore(t), folder: filepath.Join(t.TempDir())}
	t.Cleanup(r.close)
	return r
}

// publish publishes versions of a file, and returns the last.
func (r *rig) publish(t testing.TB, shape remotetest.Shape, versions int) (f *remotetest.Saved) {
	t.Helper()
	for v := range versions {
		f = shape.Save(t, r.one.Store, v, f)
		e, _ := r.one.Publish(t, "runs/a/"+string(rune('0'+v))+"/model.pt", f)
		r.files[f.Manifest] = e.File
	}
	return f
}

// open opens the tier, again if it was, with what the cache's folder has.
func (r *rig) open(t testing.TB, max int64) {
	t.Helper()
	r.close()
	dir, err := disk.OpenFolder(r.folder)
	if err != nil {
		t.Fatal(err)
	}
	if r.cache, err = cache.Open(dir, cache.Options{Max: max, Disk: empty}); err != nil {
		t.Fatal(err)
	}
	r.Tier = New(Options{Store: r.store, Bucket: r.remote, Cache: r.cache,
		Find: func(h cas.Hash) (*record.File, error) { return r.files[h], nil }})
	r.asm = assemble.New(r.Tier, assemble.Options{CacheBytes: 1 << 20, Workers: 2})
	r.remote.asked()
}

// fresh has nothing decoded.
func (r *rig) fresh() *rig {
	r.asm.Close()
	r.asm = assemble.New(r.Tier, assemble.Options{CacheBytes: 1 << 20, Workers: 2})
	return r
}

func (r *rig) close() { // again does nothing
	if r.Tier != nil {
		r.asm.Close()
		r.Tier.Close()
	}
}

// read reads a file in order, in reads of some bytes.
func (r *rig) read(f *remotetest.Saved, size int) ([]byte, error) {
	x, err := r.asm.Open(f.Manifest)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	p := make([]byte, x.Size())
	for n := 0; n < len(p); {
		k, err := x.ReadAt(p[n:min(n+size, len(p))], int64(n))
		n += k
		if err != nil && err != io.EOF {
			return p[:n], err
		}
	}
	return p, nil
}

func (r *rig) reads(t testing.TB, f *remotetest.Saved) {
	t.Helper()
	if got, err := r.read(f, 64<<10); err != nil || !bytes.Equal(got, f.Content) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(f.Content), err)
	}
}
