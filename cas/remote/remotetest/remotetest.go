// Package remotetest has machines that share a remote, for tests: local stores in memory, files in training
// that are saved there, and pushes.
package remotetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/recipe"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/state"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/index/chunks"
	"ckptfs/index/manifest"
)

// NewStore is an empty local store.
func NewStore(t testing.TB) *store.Store { return NewStoreOn(t, disk.NewMem()) }

// NewStoreOn is one on an empty disk, below /store.
func NewStoreOn(t testing.TB, m *disk.Mem) *store.Store {
	t.Helper()
	for _, err := range []error{m.MkdirAll("/store", 0o755), m.SyncDir("/")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	id := [16]byte{1}
	x, err := chunks.Open(t.TempDir()+"/index.db", chunks.Options{StoreID: id, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(m, "/store/segments", id, x, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); x.Close() })
	return s
}

// Shape is what a file consists of: tensors, each of so many chunks of so many elements.
type Shape struct {
	Tensors, Chunks, Elements int
	Half                      bool    // bfloat16, else single precision
	Blob                      bool    // the manifest names no tensors
	Step                      float64 // by what share of itself a number changes with each version, about
}

// Small is a file of 30 chunks of 4 KiB.
var Small = Shape{Tensors: 5, Chunks: 6, Elements: 1024, Step: 3e-5}

// Size is how long the file is, in bytes.
func (s Shape) Size() int64 { return int64(s.Tensors) * int64(s.Chunks) * int64(s.Elements*s.width()) }

func (s Shape) width() int {
	if s.Half {
		return 2
	}
	return 4
}

func (s Shape) dtype() formats.DType {
	if s.Half {
		return "BF16"
	}
	return "F32"
}

// Saved is a version of a file in a store.
type Saved struct {
	Manifest cas.Hash
	Content  []byte
	Hashes   []cas.Hash // of all that the manifest leads to
}

// Chunk is version v of a chunk in training.
func (s Shape) Chunk(tensor, chunk, v int) []byte {
	r := rand.New(rand.NewPCG(uint64(tensor), uint64(chunk)))
	x := make([]float64, s.Elements)
	for i := range x {
		x[i] = 0.02 * r.NormFloat64()
	}
	for range v {
		for i := range x {
			x[i] *= 1 + s.Step*r.NormFloat64()
		}
	}
	p := make([]byte, 0, s.width()*s.Elements)
	for _, f := range x {
		bits := math.Float32bits(float32(f))
		if s.Half {
			p = binary.LittleEndian.AppendUint16(p, uint16((bits+1<<15)>>16))
		} else {
			p = binary.LittleEndian.AppendUint32(p, bits)
		}
	}
	return p
}

// Save stores version v, against prev if it is not nil.
func (s Shape) Save(t testing.TB, st *store.Store, v int, prev *Saved) *Saved {
	t.Helper()
	b := st.Begin()
	defer b.Release()
	f := &Saved{}
	put := func(kind cas.Kind, raw []byte, hint codec.Hint) cas.Hash {
		h := cas.Sum(raw)
		var rel cas.Related
		if prev != nil {
			rel.Prev = prev.Hashes[len(f.Hashes)]
		}
		if _, _, err := b.PutRelated(kind, h, raw, hint, rel); err != nil {
			t.Fatal(err)
		}
		f.Hashes = append(f.Hashes, h)
		return h
	}
	m, kind := &manifest.Manifest{Format: "safetensors"}, formats.Data
	if s.Blob {
		m.Format, kind = "blob", formats.Blob
	}
	for i := range s.Tensors {
		var spans []manifest.Span
		for c := range s.Chunks {
			raw := s.Chunk(i, c, v)
			h := put(cas.Chunk, raw, codec.Hint{DType: string(s.dtype()), Elem: s.width()})
			spans = append(spans, manifest.Span{Hash: h, Len: uint32(len(raw))})
			f.Content = append(f.Content, raw...)
		}
		n := int64(s.width() * s.Elements * s.Chunks)
		list := put(cas.List, manifest.EncodeList(spans), codec.Hint{})
		m.Extents = append(m.Extents, manifest.Extent{Len: n, Object: int32(i)})
		m.Regions = append(m.Regions, formats.Region{Off: m.Size, Len: n, Kind: kind})
		m.Objects = append(m.Objects, manifest.Object{Digest: list, Len: n, List: true})
		if !s.Blob {
			m.Tensors = append(m.Tensors, formats.Tensor{Name: fmt.Sprintf("layer.%02d", i), DType: s.dtype(),
				Shape: []int64{n / int64(s.width())}, Region: i})
		}
		m.Size += n
	}
	p, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	f.Manifest = put(cas.Manifest, p, codec.Hint{})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	return f
}

// MostBases is how many bases what Compute stores has at most: each may lead back to others.
const MostBases = 16

// Compute stores a file of chunks that are computed of pieces of those of f, 1 to MostBases of them each.
func (s Shape) Compute(t testing.TB, st *store.Store, f *Saved) *Saved {
	t.Helper()
	size := s.Elements * s.width()
	total := len(f.Content) / size
	b := st.Begin()
	defer b.Release()
	g := &Saved{}
	put := func(kind cas.Kind, raw []byte, rel cas.Related) cas.Hash {
		h := cas.Sum(raw)
		if _, id, err := b.PutRelated(kind, h, raw, codec.Hint{}, rel); err != nil ||
			(id == codec.Recipe) != (kind == cas.Chunk) {
			t.Fatalf("codec %d, %v", id, err)
		}
		g.Hashes = append(g.Hashes, h)
		return h
	}
	var spans []manifest.Span
	for i := range total {
		rel, take := &cas.Recipe{}, recipe.Take{Type: recipe.Bytes1}
		var raw []byte
		for k := range min(total, 1+i%MostBases) {
			base := f.Content[(7*i+k)%total*size:][:size]
			rel.Bases = append(rel.Bases, cas.Sum(base))
			take.Groups = append(take.Groups, recipe.Group{Repeat: 1,
				Stretches: []recipe.Stretch{{First: k*size + i, Len: size / 2}}})
			raw = append(raw, base[i:][:size/2]...)
		}
		rel.Program = recipe.Program{take}.Append(nil)
		h := put(cas.Chunk, raw, cas.Related{Recipe: rel})
		spans = append(spans, manifest.Span{Hash: h, Len: uint32(len(raw))})
		g.Content = append(g.Content, raw...)
	}
	n := int64(len(g.Content))
	list := put(cas.List, manifest.EncodeList(spans), cas.Related{})
	m := &manifest.Manifest{Format: "blob", Size: n, Extents: []manifest.Extent{{Len: n}},
		Regions: []formats.Region{{Len: n, Kind: formats.Blob}},
		Objects: []manifest.Object{{Digest: list, Len: n, List: true}}}
	p, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	g.Manifest = put(cas.Manifest, p, cas.Related{})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	return g
}

// Machine is a local store and one that publishes from it.
type Machine struct {
	Store *store.Store
	State *state.DB
	*writer.Writer
}

// NewMachine is one of several, by its number.
func NewMachine(t testing.TB, b bucket.Bucket, n byte) *Machine {
	t.Helper()
	db, err := state.Open(filepath.Join(t.TempDir(), "remote.db"), [16]byte{n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &Machine{NewStore(t), db, writer.New(writer.Options{Bucket: b, Remote: record.ID{9}, State: db,
		Parallel: 2, Now: time.Now, Random: rand.NewChaCha8([32]byte{n}),
		Register: func(ctx context.Context) (record.Writer, error) {
			w := record.Writer(fmt.Sprintf("test.%08x", n))
			_, err := b.Put(ctx, record.HeadKey(w), bucket.Bytes(nil), bucket.Cond{Absent: true})
			return w, err
		}})}
}

// Publish pushes a file, and returns its entry as others see it.
func (m *Machine) Publish(t testing.TB, path string, f *Saved) (*record.Entry, writer.Result) {
	t.Helper()
	src := local.Begin(m.Store)
	defer src.Close()
	e := record.Entry{Path: path, Kind: record.KindFile, Mode: 0o644,
		File: &record.File{Size: int64(len(f.Content)), Manifest: f.Manifest}}
	res, err := m.Push(t.Context(), src, writer.Changes{Entries: []record.Entry{e}})
	if err != nil || len(res.Failed) > 0 {
		t.Fatal(res.Failed, err)
	}
	found := res.Head.Find(path)
	if len(found) != 1 {
		t.Fatalf("%d entries of %s", len(found), path)
	}
	return &found[0], res
}
