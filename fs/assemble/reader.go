package assemble

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/index/manifest"
)

// Store is what a Reader asks of *store.Store.
type Store interface {
	// Get returns the verified bytes of a record, in dst[:0] when they fit its capacity.
	Get(h cas.Hash, dst []byte) ([]byte, error)
	// Expect says that these records will be asked for soon; done, that they were, or will not be. once: they
	// are not likely to be read again.
	Expect(hashes []cas.Hash, once bool) (done func())
}

// Options configures a Reader. Zero values take the defaults.
type Options struct {
	// decoded chunks kept; 256 MiB. Manifests and lists of chunks take up to a quarter of that more
	CacheBytes int64
	Workers    int // chunks fetched at a time for readers, and as many again ahead of them; the processors
	// bytes at most that are read ahead of one stream; 16 MiB, at most a quarter of CacheBytes
	ReadAhead int64
	// Mapped, which may be nil, is told how much of the cache's memory is not of Go's heap whenever that
	// changes, and must not wait.
	Mapped func(bytes int64)
}

const (
	defaultCache     = 256 << 20
	defaultReadAhead = 16 << 20

	// keepShare is the part of CacheBytes that manifests, and lists as much again, may take besides, and
	// maxKeep its bound.
	keepShare = 8
	maxKeep   = 64 << 20
)

// Reader reads the packed files of one store. It is safe for concurrent use.
type Reader struct {
	store     Store
	readAhead int64
	workers   int32
	loading   atomic.Int32 // goroutines that fetch chunks of reads that want several
	chunks    *cache
	docs      *kept[doc]
	lists     *kept[list]
	loads     singleflight.Group // of docs and lists
	ranges    queue[span]        // to be cut into chunks
	ahead     queue[job]

	fetched, fetchedBytes atomic.Int64
}

// Stats counts since New.
type Stats struct {
	Hits, Misses int64 // chunks wanted that were, were not in the cache
	Fetched      int64 // chunks read from the store, ahead or not
	FetchedBytes int64 // their decoded bytes
	CacheBytes   int64 // in the cache now
}

// New returns a Reader of st.
func New(st Store, opt Options) *Reader {
	if opt.CacheBytes <= 0 {
		opt.CacheBytes = defaultCache
	}
	if opt.Workers <= 0 {
		opt.Workers = cas.Processors
	}
	if opt.ReadAhead <= 0 {
		opt.ReadAhead = defaultReadAhead
	}
	r := &Reader{
		store:     st,
		readAhead: min(opt.ReadAhead, opt.CacheBytes/4),
		workers:   int32(opt.Workers),
		chunks:    newCache(opt.CacheBytes, opt.Mapped),
		docs:      newKept[doc](min(opt.CacheBytes/keepShare, maxKeep), linger),
		lists:     newKept[list](min(opt.CacheBytes/keepShare, maxKeep), 0),
	}
	r.ranges.init(opt.Workers, r.expect, func(span) {})
	r.ahead.init(opt.Workers, r.fetchAhead, r.drop)
	return r
}

// Close ends all read-ahead, waits for what is under way and lets go of the cache. Open files stay readable,
// without read-ahead.
func (r *Reader) Close() error {
	r.ranges.close()
	r.ahead.close()
	r.chunks.clear()
	return nil
}

// Stats is what the Reader has done so far.
func (r *Reader) Stats() Stats {
	s := Stats{Fetched: r.fetched.Load(), FetchedBytes: r.fetchedBytes.Load()}
	s.Hits, s.Misses, s.CacheBytes = r.chunks.stats()
	return s
}

// Yield is told that n bytes of the memory for decoded chunks are taken by something else. At least a quarter
// stays.
func (r *Reader) Yield(n int64) { r.chunks.yield(n) }

// doc is a manifest and what finds its way in it.
type doc struct {
	*manifest.Manifest
	ends []int64 // of the extents, in the file
}

func newDoc(m *manifest.Manifest) *doc {
	d := &doc{Manifest: m, ends: make([]int64, len(m.Extents))}
	var end int64
	for i, e := range m.Extents {
		end += e.Len
		d.ends[i] = end
	}
	return d
}

// weight is the memory that d takes, roughly, in bytes. The record may be much shorter: a million tensors of
// a few bytes take a few each in it.
func (d *doc) weight() int64 {
	const fixed, object, extent, region, tensor = 4096, 48, 24 + 8, 24, 96 + 8 + 24
	return fixed + object*int64(len(d.Objects)) + extent*int64(len(d.Extents)) +
		region*int64(len(d.Regions)) + tensor*int64(len(d.Tensors))
}

// Manifest reads the manifest record h. The manifest is shared and must not be changed.
func (r *Reader) Manifest(h cas.Hash) (*manifest.Manifest, error) {
	d, err := r.doc(h)
	if err != nil {
		return nil, err
	}
	return d.Manifest, nil
}

// Keep keeps a manifest as that of the record h, which may not be durable yet. It is shared from now on and
// must not be changed.
func (r *Reader) Keep(h cas.Hash, m *manifest.Manifest) {
	d := newDoc(m)
	r.docs.add(h, d, d.weight())
}

func (r *Reader) doc(h cas.Hash) (*doc, error) {
	if d, ok := r.docs.get(h); ok {
		return d, nil
	}
	v, err, _ := r.loads.Do("m"+string(h[:]), func() (any, error) {
		p, err := r.store.Get(h, nil)
		if err != nil {
			return nil, err
		}
		m, err := manifest.Decode(p)
		if err != nil {
			return nil, &cas.ChunkError{Hash: h, Err: err}
		}
		d := newDoc(m)
		r.docs.add(h, d, d.weight())
		return d, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*doc), nil
}

// list is the chunks of an object that has a list.
type list struct {
	spans []manifest.Span
	ends  []int64 // of the chunks, in the object; nil when they lie on the grid
}

func (r *Reader) list(o manifest.Object) (*list, error) {
	if l, ok := r.lists.get(o.Digest); ok {
		return l, nil
	}
	v, err, _ := r.loads.Do("l"+string(o.Digest[:]), func() (any, error) {
		p, err := r.store.Get(o.Digest, nil)
		if err != nil {
			return nil, err
		}
		l := &list{}
		if l.spans, err = manifest.DecodeList(p); err != nil {
			return nil, &cas.ChunkError{Hash: o.Digest, Err: err}
		}
		ends, grid := make([]int64, len(l.spans)), true
		var end int64
		for i, s := range l.spans {
			end += int64(s.Len)
			ends[i] = end
			grid = grid && (s.Len == cas.ChunkSize || i == len(l.spans)-1 && s.Len < cas.ChunkSize)
		}
		if end != o.Len {
			err := fmt.Errorf("list of %d bytes for an object of %d: %w", end, o.Len, cas.ErrCorrupt)
			return nil, &cas.ChunkError{Hash: o.Digest, Err: err}
		}
		if !grid {
			l.ends = ends
		}
		r.lists.add(o.Digest, l, int64(len(l.spans))*48+256)
		return l, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*list), nil
}

// fetch reads a chunk from the store into buf.
func (r *Reader) fetch(s manifest.Span, buf []byte) ([]byte, error) {
	p, err := r.store.Get(s.Hash, buf)
	if err != nil {
		return nil, err
	}
	if err := fits(s, p); err != nil {
		return nil, err
	}
	r.fetched.Add(1)
	r.fetchedBytes.Add(int64(len(p)))
	return p, nil
}

// fits returns an error unless p has the length that a manifest or a list says.
func fits(s manifest.Span, p []byte) error {
	if len(p) == int(s.Len) {
		return nil
	}
	err := fmt.Errorf("%d bytes, want %d: %w", len(p), s.Len, cas.ErrCorrupt)
	return &cas.ChunkError{Hash: s.Hash, Err: err}
}

// load fetches the chunk of an entry that the caller has claimed.
func (r *Reader) load(e *entry) {
	b := r.chunks.buffer(e)
	p, err := r.fetch(e.span, b.bytes[b.at:b.at])
	r.chunks.loaded(e, b, p, err)
}

// kept is an LRU bounded in bytes. What is past the bound alone is kept all the same, as long as it came
// last, or until no reader has asked for it for so long: several ask one after the other for what a file that
// was just packed has in it.
type kept[T any] struct {
	mu     locks.Mutex[leafLock]
	lru    *lru[weighed[T]]
	bytes  int64
	max    int64
	linger time.Duration // 0: for ever
	large  *T            // the last one past the bound, if they linger
	name   cas.Hash      // of large
	leave  *time.Timer   // large
}

// linger is how long a manifest is kept that is past the bound alone.
const linger = 10 * time.Second

type weighed[T any] struct {
	v     *T
	bytes int64
}

func newKept[T any](max int64, linger time.Duration) *kept[T] {
	return &kept[T]{lru: newLRU[weighed[T]](), max: max, linger: linger}
}

func (k *kept[T]) get(h cas.Hash) (*T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.large != nil && h == k.name {
		k.leave.Reset(k.linger)
		return k.large, true
	}
	w, ok := k.lru.Get(h)
	return w.v, ok
}

func (k *kept[T]) add(h cas.Hash, v *T, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.linger > 0 && bytes > k.max {
		if k.leave != nil {
			k.leave.Stop()
		}
		k.large, k.name = v, h
		k.leave = time.AfterFunc(k.linger, func() {
			k.mu.Lock()
			leaves := k.large == v
			if leaves {
				k.large = nil
			}
			k.mu.Unlock()
			if leaves {
				debug.FreeOSMemory() // an idle process collects no garbage
			}
		})
		return
	}
	if w, ok := k.lru.Peek(h); ok {
		k.bytes -= w.bytes
	}
	k.lru.Add(h, weighed[T]{v, bytes})
	for k.bytes += bytes; k.bytes > k.max && k.lru.Len() > 1; {
		_, w, _ := k.lru.RemoveOldest()
		k.bytes -= w.bytes
	}
}
