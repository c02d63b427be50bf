package assemble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// shelf is a Store in memory that can withhold, damage and count.
type shelf struct {
	mu     sync.Mutex
	chunks map[cas.Hash][]byte
	gets   map[cas.Hash]int
	bad    map[cas.Hash]error
	gate   chan struct{} // if set, each Get takes one
	during atomic.Int64
	most   atomic.Int64 // Gets at a time
}

func newShelf() *shelf {
	return &shelf{chunks: map[cas.Hash][]byte{}, gets: map[cas.Hash]int{}, bad: map[cas.Hash]error{}}
}

func (s *shelf) put(p []byte) cas.Hash {
	h := cas.Sum(p)
	s.chunks[h] = bytes.Clone(p)
	return h
}

func (s *shelf) Expect([]cas.Hash, bool) func() { return func() {} }

func (s *shelf) Get(h cas.Hash, dst []byte) ([]byte, error) {
	if s.gate != nil {
		<-s.gate
	}
	n := s.during.Add(1)
	defer s.during.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most.Store(max(s.most.Load(), n))
	s.gets[h]++
	if err := s.bad[h]; err != nil {
		return dst, &cas.ChunkError{Hash: h, Err: err}
	}
	p, ok := s.chunks[h]
	if !ok {
		return dst, &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}
	}
	return append(dst, p...), nil
}

func random(n int, seed byte) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

// object stores p as an object, cut at most size bytes long.
func (s *shelf) object(p []byte, size int) manifest.Object {
	var spans []manifest.Span
	for rest := p; len(rest) > 0; {
		c := rest[:min(size, len(rest))]
		spans = append(spans, manifest.Span{Hash: s.put(c), Len: uint32(len(c))})
		rest = rest[len(c):]
	}
	if len(spans) == 1 {
		return manifest.Object{Digest: spans[0].Hash, Len: int64(len(p))}
	}
	return manifest.Object{Digest: s.put(manifest.EncodeList(spans)), Len: int64(len(p)), List: true}
}

func (s *shelf) manifest(t testing.TB, m *manifest.Manifest) cas.Hash {
	p, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s.put(p)
}

// grid stores p as one data region.
func (s *shelf) grid(t testing.TB, p []byte) cas.Hash {
	n := int64(len(p))
	return s.manifest(t, &manifest.Manifest{
		Format: "test", Size: n,
		Objects: []manifest.Object{s.object(p, cas.ChunkSize)},
		Extents: []manifest.Extent{{Len: n}},
		Regions: []formats.Region{{Len: n, Kind: formats.Data}},
		Tensors: []formats.Tensor{
			{Name: "first", DType: formats.U8, Shape: []int64{n / 2}},
			{Name: "second", DType: formats.U8, Shape: []int64{n - n/2}, Offset: n / 2},
		},
	})
}

func file(t testing.TB, r *Reader, h cas.Hash) *File {
	t.Helper()
	f, err := r.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); r.Close() })
	return f
}

// Any manifest reads as its extents say, in any pieces, whatever the cache.
func TestReadProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelf()
		m := &manifest.Manifest{Format: "test"}
		var objects [][]byte
		for i := range rapid.IntRange(1, 4).Draw(rt, "objects") {
			p := random(rapid.IntRange(1, 3*cas.ChunkSize).Draw(rt, "length"), byte(i))
			size := rapid.SampledFrom([]int{cas.ChunkSize, 70_000, 16_384, 300_000}).Draw(rt, "chunk")
			m.Objects = append(m.Objects, s.object(p, size))
			objects = append(objects, p)
		}
		var want []byte
		for range rapid.IntRange(1, 8).Draw(rt, "extents") {
			e := manifest.Extent{Object: rapid.Int32Range(-1, int32(len(objects)-1)).Draw(rt, "object")}
			if e.Object < 0 {
				e.Len = rapid.Int64Range(1, 500_000).Draw(rt, "zeros")
				want = append(want, make([]byte, e.Len)...)
			} else {
				o := objects[e.Object]
				e.ObjOff = rapid.Int64Range(0, int64(len(o))-1).Draw(rt, "offset")
				e.Len = rapid.Int64Range(1, int64(len(o))-e.ObjOff).Draw(rt, "length")
				want = append(want, o[e.ObjOff:e.ObjOff+e.Len]...)
			}
			m.Extents = append(m.Extents, e)
			m.Regions = append(m.Regions, formats.Region{Off: m.Size, Len: e.Len})
			m.Size += e.Len
		}
		r := New(s, Options{
			CacheBytes: rapid.SampledFrom([]int64{1, 600_000, 64 << 20}).Draw(rt, "cache"),
			Workers:    rapid.IntRange(1, 4).Draw(rt, "workers"),
		})
		defer r.Close()
		f, err := r.Open(s.manifest(t, m))
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		if f.Size() != m.Size {
			rt.Fatalf("size %d, want %d", f.Size(), m.Size)
		}
		got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		if err != nil || !bytes.Equal(got, want) {
			rt.Fatalf("read in order differs (%v)", err)
		}
		for range 10 {
			off := rapid.IntRange(0, len(want)-1).Draw(rt, "off")
			p := bytes.Repeat([]byte{0xee}, rapid.IntRange(0, len(want)+10-off).Draw(rt, "length"))
			n, err := f.ReadAt(p, int64(off))
			end := min(off+len(p), len(want))
			if n != end-off || (err != nil) != (n < len(p)) || err != nil && err != io.EOF ||
				!bytes.Equal(p[:n], want[off:end]) {
				rt.Fatalf("read of %d at %d: %d, %v", len(p), off, n, err)
			}
			l, n, err := f.Lend(int64(off), int64(len(p)), f.Size())
			if err != nil || l != nil &&
				(n != end-off || !bytes.Equal(bytes.Join(l.Parts(), nil), want[off:end])) {
				rt.Fatalf("loan of %d at %d: %d, %v", len(p), off, n, err)
			}
			if l != nil {
				l.Done()
			}
		}
		if c := r.Stats().CacheBytes; c > r.chunks.max {
			rt.Fatalf("%d bytes cached, bound %d", c, r.chunks.max)
		}
	})
}

func TestReaderAt(t *testing.T) {
	s := newShelf()
	want := random(directRead+1000, 1)
	f := file(t, New(s, Options{}), s.grid(t, want))
	if err := iotest.TestReader(io.NewSectionReader(f, 0, 300_000), want[:300_000]); err != nil {
		t.Error(err)
	}
	if n, err := f.ReadAt(make([]byte, 1), f.Size()); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
	if n, err := f.ReadAt(nil, f.Size()+5); n != 0 || err != nil {
		t.Error(n, err)
	}
	if _, err := f.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("negative offset")
	}
	p := make([]byte, len(want))
	if n, err := f.ReadAt(p, 0); n != len(p) || err != nil || !bytes.Equal(p, want) {
		t.Error("read of the whole", n, err)
	}
}

func TestEmpty(t *testing.T) {
	s := newShelf()
	f := file(t, New(s, Options{}), s.manifest(t, &manifest.Manifest{Format: "blob"}))
	if n, err := f.ReadAt(make([]byte, 10), 0); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}

// A manifest that is kept is not read.
func TestKeep(t *testing.T) {
	s := newShelf()
	r := New(s, Options{})
	m := &manifest.Manifest{Format: "blob"}
	h := s.manifest(t, m)
	r.Keep(h, m)
	if got, err := r.Manifest(h); err != nil || got != m || s.gets[h] != 0 {
		t.Errorf("%+v, %v, read %d times", got, err, s.gets[h])
	}
}

// Many readers of one chunk fetch it once.
func TestOneFetch(t *testing.T) {
	s := newShelf()
	want := random(cas.ChunkSize, 2)
	h := s.grid(t, want)
	r := New(s, Options{})
	f := file(t, r, h)
	s.gate = make(chan struct{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			p := make([]byte, 1000)
			if _, err := f.ReadAt(p, int64(i)*5000); err != nil || !bytes.Equal(p, want[i*5000:i*5000+1000]) {
				t.Error(i, err)
			}
		})
	}
	close(s.gate)
	wg.Wait()
	if n := s.gets[cas.Sum(want)]; n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

// A read of many chunks fetches them in parallel: none of these Gets returns before as many as there are
// workers run.
func TestParallel(t *testing.T) {
	for _, size := range []int{1 << 20, directRead} {
		s := newShelf()
		want := random(size, 3)
		h := s.grid(t, want)
		f := file(t, New(s, Options{Workers: 3}), h)
		if _, err := f.ReadAt(make([]byte, 1), 0); err != nil { // the list
			t.Fatal(err)
		}
		meet := &meeting{shelf: s, want: 3, all: make(chan struct{})}
		f.r.store = meet
		p := make([]byte, size-cas.ChunkSize)
		if _, err := f.ReadAt(p, cas.ChunkSize); err != nil || !bytes.Equal(p, want[cas.ChunkSize:]) {
			t.Fatal(err)
		}
	}
}

// meeting holds the first Gets back until want of them run.
type meeting struct {
	*shelf
	mu   sync.Mutex
	want int
	all  chan struct{}
}

func (m *meeting) Expect([]cas.Hash, bool) func() { return func() {} }

func (m *meeting) Get(h cas.Hash, dst []byte) ([]byte, error) {
	m.mu.Lock()
	if m.want--; m.want == 0 {
		close(m.all)
	}
	m.mu.Unlock()
	<-m.all
	return m.shelf.Get(h, dst)
}

// A chunk that cannot be read fails the reads that need it, with its place and tensor, and no others.
func TestDamage(t *testing.T) {
	const n = 40
	s := newShelf()
	want := random(n*cas.ChunkSize, 4)
	h := s.grid(t, want)
	bad := int64(30)
	s.bad[cas.Sum(want[bad*cas.ChunkSize:(bad+1)*cas.ChunkSize])] = cas.ErrCorrupt
	f := file(t, New(s, Options{}), h)
	p := make([]byte, 100_000)
	for off := int64(0); off+int64(len(p)) <= f.Size(); off += int64(len(p)) {
		got, err := f.ReadAt(p, off)
		hit := off < (bad+1)*cas.ChunkSize && off+int64(len(p)) > bad*cas.ChunkSize
		if !hit {
			if err != nil || !bytes.Equal(p, want[off:off+int64(len(p))]) {
				t.Fatalf("at %d: %v", off, err)
			}
			continue
		}
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, cas.ErrCorrupt) || e.Tensor != "second" ||
			e.Off != max(off, bad*cas.ChunkSize) {
			t.Fatalf("at %d: %v", off, err)
		}
		if int64(got) != e.Off-off || !bytes.Equal(p[:got], want[off:e.Off]) {
			t.Fatalf("at %d: %d bytes before the damage", off, got)
		}
	}
	// In one read, past the cache.
	all := make([]byte, f.Size())
	got, err := f.ReadAt(all, 0)
	if int64(got) != bad*cas.ChunkSize || !errors.Is(err, cas.ErrCorrupt) ||
		!bytes.Equal(all[:got], want[:got]) {
		t.Errorf("%d, %v", got, err)
	}
	// It is not remembered: what is repaired reads again.
	clear(s.bad)
	if _, err := f.ReadAt(all, 0); err != nil || !bytes.Equal(all, want) {
		t.Error(err)
	}
}

// Records that do not fit what names them are corrupt, not a panic.
func TestMismatch(t *testing.T) {
	s := newShelf()
	p := random(1000, 5)
	chunk := s.put(p)
	short := s.put(manifest.EncodeList([]manifest.Span{{Hash: chunk, Len: 1000}, {Hash: chunk, Len: 1000}}))
	wrong := s.put(manifest.EncodeList([]manifest.Span{{Hash: chunk, Len: 1000}, {Hash: chunk, Len: 999}}))
	for name, o := range map[string]manifest.Object{
		"chunk length": {Digest: chunk, Len: 999},
		"chunk longer": {Digest: chunk, Len: 1001},
		"list length":  {Digest: short, Len: 1999, List: true},
		"list chunk":   {Digest: wrong, Len: 1999, List: true},
		"not a list":   {Digest: chunk, Len: 2000, List: true},
		"gone":         {Digest: cas.Sum([]byte("?")), Len: 10},
		"list gone":    {Digest: cas.Sum([]byte("?")), Len: 10, List: true},
	} {
		m := &manifest.Manifest{Format: "x", Size: o.Len, Objects: []manifest.Object{o},
			Extents: []manifest.Extent{{Len: o.Len}},
			Regions: []formats.Region{{Len: o.Len}}}
		r := New(s, Options{})
		f := file(t, r, s.manifest(t, m))
		_, err := f.ReadAt(make([]byte, o.Len), 0)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := New(s, Options{})
	if _, err := r.Open(chunk); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := r.Manifest(cas.Hash{1}); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
}

func TestErrorText(t *testing.T) {
	e := &Error{Off: 5, Tensor: "w", Err: cas.ErrCorrupt}
	if got, want := fmt.Sprint(e), `byte 5, tensor "w": corrupt`; got != want {
		t.Error(got)
	}
	e.Tensor = ""
	if got, want := fmt.Sprint(e), `byte 5: corrupt`; got != want {
		t.Error(got)
	}
}
