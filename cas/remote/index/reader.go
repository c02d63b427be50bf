package index

import (
	"context"
	"errors"
	"io"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
)

const (
	keptDirectories = 64 // of shards, in memory: some 30 KiB each
	requests        = 8  // at a time
)

// Reader looks digests up. It may be used by several goroutines at once.
type Reader struct {
	b      bucket.Bucket
	remote record.ID

	mu      sync.Mutex
	version bucket.Version
	index   record.Index
	dirs    *lru.Cache[record.ID, *record.ShardDirectory]
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(b bucket.Bucket, remote record.ID) *Reader {
	dirs, _ := lru.New[record.ID, *record.ShardDirectory](keptDirectories) // the size is positive
	return &Reader{b: b, remote: remote, dirs: dirs}
}

// Refresh reads the index's head, if it changed. A remote without an index has an empty one, and so has one
// whose index is damaged.
func (r *Reader) Refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, version, err := readHead(ctx, r.b, r.remote, r.version)
	switch {
	case errors.Is(err, bucket.ErrUnchanged):
		return nil
	case fetch.Lost(err):
		h, version = &record.Head{}, ""
	case err != nil:
		return err
	}
	r.index, r.version = h.Index, version
	return nil
}

// Empty reports whether the index has nothing.
func (r *Reader) Empty() bool { return len(r.current().Shards) == 0 }

func (r *Reader) current() *record.Index {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.index
	return &x
}

// Covered reports whether who was told of all epochs up to known, as far as they were kept, knows of all that
// was deleted since the index was made.
func (r *Reader) Covered(ctx context.Context, known uint32) (bool, error) {
	next := r.current().Made + 1
	if next > known {
		return true, nil
	}
	for info, err := range r.b.List(ctx, record.Epochs, record.EpochKey(next-1)) {
		if err != nil {
			return false, err
		}
		if n, ok := record.ParseEpoch(info.Key); !ok || n != next {
			return false, nil
		}
		if next++; next > known {
			return true, nil
		}
	}
	return false, nil
}

// Find says where the plan of a file is that has something of a digest, for each of digests; the zero Ref:
// the index has no such file. A part of the index that is not there any more has nothing.
func (r *Reader) Find(ctx context.Context, digests []record.Digest) ([]record.Ref, error) {
	at := make([]record.Ref, len(digests))
	index := r.current()
	shards := map[record.Shard][]int{}
	for i, d := range digests {
		if s, ok := index.Find(d); ok {
			shards[s] = append(shards[s], i)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	for s, of := range shards {
		d, err := r.directory(ctx, s)
		if fetch.Lost(err) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, g.Wait())
		}
		blocks := map[int][]int{}
		for _, i := range of {
			if n, ok := d.Block(digests[i]); ok {
				blocks[n] = append(blocks[n], i)
			}
		}
		for n, of := range blocks {
			g.Go(func() error { return r.block(ctx, d, n, digests, of, at) })
		}
	}
	return at, g.Wait()
}

// block looks those of digests up that of numbers.
func (r *Reader) block(ctx context.Context, d *record.ShardDirectory, n int, digests []record.Digest,
	of []int, at []record.Ref) error {
	off, size := d.Range(n)
	p, err := r.read(ctx, d.ID, off, size)
	for _, i := range of {
		if err == nil {
			at[i], _, err = d.Find(n, p, digests[i])
		}
	}
	if fetch.Lost(err) {
		return nil
	}
	return err
}

func (r *Reader) directory(ctx context.Context, s record.Shard) (*record.ShardDirectory, error) {
	if d, ok := r.dirs.Get(s.ID); ok && d.Shard == s {
		return d, nil
	}
	p, err := r.read(ctx, s.ID, s.Directory(), s.Len()-s.Directory())
	if err != nil {
		return nil, err
	}
	d, err := s.Open(r.remote, p)
	if err == nil {
		r.dirs.Add(s.ID, d)
	}
	return d, err
}

// read reads a range of a shard.
func (r *Reader) read(ctx context.Context, id record.ID, off, n int64) ([]byte, error) {
	body, _, err := r.b.Get(ctx, record.ClassShard.Key(id), off, n, "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	p := make([]byte, n)
	_, err = io.ReadFull(body, p)
	return p, err
}
