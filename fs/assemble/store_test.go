package assemble

import (
	"bytes"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/index/chunks"
	"ckptfs/index/manifest"
)

// stored puts p into a real store as one data region.
func stored(t testing.TB, fs disk.FS, dir string, p []byte) (*store.Store, cas.Hash) {
	t.Helper()
	id := [16]byte{1}
	db, err := chunks.Open(filepath.Join(t.TempDir(), "index.db"), chunks.Options{StoreID: id, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(fs, dir, id, db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close(); db.Close() })
	b := st.Begin()
	put := func(kind cas.Kind, p []byte) cas.Hash {
		h := cas.Sum(p)
		if _, err := b.Put(kind, h, p, codec.Hint{}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	var spans []manifest.Span
	for rest := p; len(rest) > 0; {
		c := rest[:min(cas.ChunkSize, len(rest))]
		spans = append(spans, manifest.Span{Hash: put(cas.Chunk, c), Len: uint32(len(c))})
		rest = rest[len(c):]
	}
	n := int64(len(p))
	m := &manifest.Manifest{
		Format: "test", Size: n,
		Objects: []manifest.Object{{Digest: put(cas.List, manifest.EncodeList(spans)), Len: n, List: true}},
		Extents: []manifest.Extent{{Len: n}},
		Regions: []formats.Region{{Len: n, Kind: formats.Data}},
	}
	enc, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	h := put(cas.Manifest, enc)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	return st, h
}

// compressible is bytes of which zstd takes about half off.
func compressible(n int) []byte {
	p := random(n, 1)
	for i := range p {
		if i&1 != 0 {
			p[i] = 0x3c
		}
	}
	return p
}

// The real store decodes into the cache's buffers.
func TestRealStore(t *testing.T) {
	for _, want := range [][]byte{random(5<<20, 1), compressible(5 << 20)} {
		st, h := stored(t, disk.NewMem(), "/s/segments", want)
		r := New(st, Options{CacheBytes: 2 << 20})
		f := file(t, r, h)
		got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatal(err)
		}
		for _, h := range r.chunks.lru.Keys() {
			if e, _ := r.chunks.lru.Peek(h); e.buf == nil {
				t.Fatal("a chunk outside the cache's buffers")
			}
		}
		p := make([]byte, directRead)
		if _, err := f.ReadAt(p, 1<<20); err != nil || !bytes.Equal(p, want[1<<20:1<<20+directRead]) {
			t.Error(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	const size = 256 << 20
	for name, data := range map[string][]byte{"raw": random(size, 1), "zstd": compressible(size)} {
		st, h := stored(b, disk.OS{}, filepath.Join(b.TempDir(), "segments"), data)
		for _, c := range []struct {
			name string
			size int
		}{{"in order 1 MiB", 1 << 20}, {"in order 128 KiB", 128 << 10}, {"in order 8 MiB", 8 << 20}} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				p := make([]byte, c.size)
				b.SetBytes(size)
				for b.Loop() {
					r := New(st, Options{CacheBytes: 64 << 20})
					f := file(b, r, h)
					for off := int64(0); off < size; off += int64(c.size) {
						if _, err := f.ReadAt(p, off); err != nil {
							b.Fatal(err)
						}
					}
					f.Close()
					r.Close()
				}
			})
		}
		for _, c := range []struct {
			name  string
			cache int64
		}{{"random 4 KiB cold", 8 << 20}, {"random 4 KiB cached", 2 * size}} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				f := file(b, New(st, Options{CacheBytes: c.cache}), h)
				p := make([]byte, 4096)
				rng := rand.New(rand.NewPCG(1, 1))
				if c.cache > size {
					if _, err := io.Copy(io.Discard, io.NewSectionReader(f, 0, size)); err != nil {
						b.Fatal(err)
					}
				}
				b.SetBytes(4096)
				for b.Loop() {
					if _, err := f.ReadAt(p, rng.Int64N(size-4096)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
