package reuse

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bring"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/index"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/index/chunks"
	"ckptfs/index/manifest"
)

var remote = record.ID{9}

// counting counts requests, and the bytes that they carry.
type counting struct {
	*bucket.Mem
	mu             sync.Mutex
	requests, puts int
	got, put       int64
	keys           []string
}

func (c *counting) count(key string, got, put int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.got, c.put = c.requests+1, c.got+got, c.put+put
	if put > 0 {
		c.puts++
	}
	c.keys = append(c.keys, key)
}

func (c *counting) reset() { c.requests, c.puts, c.got, c.put, c.keys = 0, 0, 0, 0, nil }

func (c *counting) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	r, info, err := c.Mem.Get(ctx, key, off, n, unless)
	size := int64(0)
	if err == nil && n != 0 {
		if size = info.Size - off; n > 0 {
			size = min(size, n)
		}
	}
	c.count("get "+key, size, 0)
	return r, info, err
}

func (c *counting) Put(ctx context.Context, key string, b bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	c.count("put "+key, 0, b.Size)
	return c.Mem.Put(ctx, key, b, cond)
}

func (c *counting) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	c.count("list "+prefix, 0, 0)
	return c.Mem.List(ctx, prefix, after)
}

// has is how many objects there are whose keys begin so.
func (c *counting) has(t testing.TB, prefix string) (keys []string) {
	t.Helper()
	for info, err := range c.Mem.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// machine is a local store, and what publishes from it.
type machine struct {
	t      testing.TB
	b      *counting
	store  *store.Store
	state  *writer.Mem
	writer *writer.Writer
	find   *Finder
}

func join(t testing.TB, b *counting, n byte) *machine {
	t.Helper()
	disks := disk.NewMem()
	for _, err := range []error{disks.MkdirAll("/store", 0o755), disks.SyncDir("/")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	x, err := chunks.Open(t.TempDir()+"/index.db", chunks.Options{StoreID: [16]byte{n}, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(disks, "/store/segments", [16]byte{n}, x, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); x.Close() })
	m := &machine{t: t, b: b, store: s, state: &writer.Mem{}}
	m.writer = writer.New(writer.Options{Bucket: b, Remote: remote, State: m.state, Parallel: 1,
		Now: time.Now, Random: rand.NewChaCha8([32]byte{n}),
		Register: func(ctx context.Context) (record.Writer, error) {
			w := record.Writer(fmt.Sprintf("test.%08x", n))
			_, err := b.Put(ctx, record.HeadKey(w), bucket.Bytes(nil), bucket.Cond{Absent: true})
			return w, err
		}})
	m.find = &Finder{Reader: &fetch.Reader{Bucket: b}, Index: index.NewReader(b, remote), State: m.state,
		Get: s.Get}
	return m
}

// saved is a file in a store.
type saved struct {
	manifest cas.Hash
	size     int64
	chunks   map[int][]cas.Hash // by tensor
}

// tensor is how a file's tensor is made: of a seed.
type tensor struct {
	seed byte
	size int
}

func (x tensor) bytes() []byte {
	p := make([]byte, x.size)
	rand.NewChaCha8([32]byte{x.seed}).Read(p)
	return p
}

// tensorsOf are n tensors of one size.
func tensorsOf(first byte, n, size int) (all []tensor) {
	for i := range n {
		all = append(all, tensor{first + byte(i), size})
	}
	return all
}

// save stores a file, whose format is told apart by its name alone.
func (m *machine) save(format string, tensors ...tensor) *saved {
	m.t.Helper()
	b := m.store.Begin()
	defer b.Release()
	put := func(kind cas.Kind, raw []byte) cas.Hash {
		h := cas.Sum(raw)
		if _, err := b.Put(kind, h, raw, codec.Hint{}); err != nil {
			m.t.Fatal(err)
		}
		return h
	}
	doc := &manifest.Manifest{Format: format}
	f := &saved{chunks: map[int][]cas.Hash{}}
	for i, x := range tensors {
		var spans []manifest.Span
		for p := x.bytes(); len(p) > 0; {
			n := min(len(p), cas.ChunkSize)
			spans = append(spans, manifest.Span{Hash: put(cas.Chunk, p[:n]), Len: uint32(n)})
			f.chunks[i] = append(f.chunks[i], spans[len(spans)-1].Hash)
			p = p[n:]
		}
		o := manifest.Object{Digest: spans[0].Hash, Len: int64(x.size)}
		if len(spans) > 1 {
			o.Digest, o.List = put(cas.List, manifest.EncodeList(spans)), true
		}
		doc.Extents = append(doc.Extents, manifest.Extent{Len: o.Len, Object: int32(len(doc.Objects))})
		doc.Regions = append(doc.Regions, formats.Region{Off: doc.Size, Len: o.Len, Kind: formats.Blob})
		doc.Objects, doc.Size = append(doc.Objects, o), doc.Size+o.Len
	}
	p, err := doc.Encode()
	if err != nil {
		m.t.Fatal(err)
	}
	f.manifest, f.size = put(cas.Manifest, p), doc.Size
	if err := b.Commit(); err != nil {
		m.t.Fatal(err)
	}
	return f
}

// push publishes a file after both looks, and returns its entry as others see it.
func (m *machine) push(path string, f *saved, before ...*record.File) (*record.Entry, writer.Result) {
	m.t.Helper()
	src := local.Begin(m.store)
	defer src.Close()
	e := record.Entry{Path: path, Kind: record.KindFile, Mode: 0o644,
		File: &record.File{Size: f.size, Manifest: f.manifest}}
	res, err := m.writer.Push(m.t.Context(), src, writer.Changes{Entries: []record.Entry{e},
		Look: func(ctx context.Context) (map[cas.Hash]*objects.Whole, error) {
			return m.find.Find(ctx, []File{{Manifest: f.manifest, Before: before, Asks: true}})
		}})
	if err != nil || len(res.Failed) > 0 {
		m.t.Fatal(res.Failed, err)
	}
	found := res.Head.Find(path)
	if len(found) != 1 {
		m.t.Fatalf("%d entries of %s", len(found), path)
	}
	return &found[0], res
}

// readable fails unless a fresh machine can bring a file.
func readable(t testing.TB, b *counting, e *record.Entry) {
	t.Helper()
	m := join(t, b, 200)
	batch := m.store.Begin()
	defer batch.Release()
	x := &bring.Bringer{Reader: &fetch.Reader{Bucket: b}, Store: m.store}
	if err := x.File(t.Context(), batch, e); err != nil {
		t.Errorf("%s cannot be read: %v", e.Path, err)
	}
}

func (m *machine) index() index.Made {
	m.t.Helper()
	made, err := index.Make(m.t.Context(), m.b, index.Options{Remote: remote, Now: time.Now,
		Random: rand.NewChaCha8([32]byte{77})})
	if err != nil {
		m.t.Fatal(err)
	}
	return made
}

// remove publishes that a name is gone.
func (m *machine) remove(path string) {
	m.t.Helper()
	_, err := m.writer.Push(m.t.Context(), nil, writer.Changes{Entries: []record.Entry{
		{Path: path, Kind: record.KindTombstone}}})
	if err != nil {
		m.t.Fatal(err)
	}
}

// asked is how many requests begin so.
func (c *counting) asked(prefix string) (n int) {
	for _, k := range c.keys {
		if strings.HasPrefix(k, prefix) {
			n++
		}
	}
	return n
}
