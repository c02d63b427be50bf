package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/chunk"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/assemble"
	"ckptfs/index/chunks"
	"ckptfs/index/manifest"
)

var id = [16]byte{7}

// bench is a store with what packs into it and reads from it.
type bench struct {
	st  *store.Store
	db  *chunks.DB
	p   *Packer
	asm *assemble.Reader
}

func newBench(t testing.TB, fs disk.FS, dir string) *bench {
	t.Helper()
	db, err := chunks.Open(filepath.Join(t.TempDir(), "index.db"), chunks.Options{StoreID: id, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(fs, dir, id, db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{st, db, New(st, Options{}), assemble.New(st, assemble.Options{CacheBytes: 32 << 20})}
	t.Cleanup(func() {
		b.asm.Close()
		st.Close()
		db.Close()
	})
	return b
}

func memBench(t testing.TB) *bench { return newBench(t, disk.NewMem(), "/s/segments") }

// Many processors do not make packing take more memory than it may.
func TestWorkersFitIntoMemory(t *testing.T) {
	for bytes, want := range map[int64]int{0: 64, 1: 1, 64 << 20: 16, 1 << 40: 64} {
		if p := New(nil, Options{Workers: 64, Bytes: bytes}); cap(p.slots) != want {
			t.Errorf("%d workers in %d bytes, want %d", cap(p.slots), bytes, want)
		}
	}
}

// total sums up records: how many there are, their bytes once decoded and as stored.
type total struct{ count, raw, stored int64 }

// total sums up what the index has of kinds.
func (b *bench) total(t testing.TB, kinds ...cas.Kind) (sum total) {
	t.Helper()
	err := b.db.ForEach(0, 0xffff, func(e cas.Entry) error {
		if slices.Contains(kinds, e.Kind) {
			sum.count++
			sum.raw += int64(e.Raw)
			sum.stored += int64(e.Stored)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// file packs src as File does and commits.
func (b *bench) file(t testing.TB, src []byte) *Result {
	t.Helper()
	batch := b.st.Begin()
	defer batch.Release()
	res, err := b.p.File(t.Context(), batch, bytes.NewReader(src), int64(len(src)))
	if err == nil {
		err = batch.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.same(t, res, src)
	return res
}

func (b *bench) layout(t testing.TB, src []byte, l *formats.Layout) *Result {
	t.Helper()
	batch := b.st.Begin()
	defer batch.Release()
	res, err := b.p.Layout(context.Background(), batch, bytes.NewReader(src), int64(len(src)), l, Related{})
	if err == nil {
		err = batch.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.same(t, res, src)
	return res
}

// same reads the whole file back, and the manifest, which is used before anyone reads it.
func (b *bench) same(t testing.TB, res *Result, src []byte) {
	t.Helper()
	stored, err := b.st.Get(res.Hash, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Decode(stored)
	if err != nil || fmt.Sprintf("%+v", *m) != fmt.Sprintf("%+v", *res.Manifest) {
		t.Fatalf("the manifest comes back as %+v, %v; it was %+v", m, err, res.Manifest)
	}
	f, err := b.asm.Open(res.Hash)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
	if err != nil || !bytes.Equal(got, src) {
		t.Fatalf("%d bytes come back as %d others (%v)", len(src), len(got), err)
	}
}

func random(n int, seed byte) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

type named struct {
	name string
	data []byte
}

// tensors is a safetensors file of bytes.
func tensors(t testing.TB, ts ...named) []byte {
	var es []safetensors.Entry
	for _, n := range ts {
		es = append(es, safetensors.Entry{Name: n.name, DType: formats.U8,
			Shape: []int64{int64(len(n.data))}})
	}
	p, err := safetensors.AppendHeader(nil, es, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range ts {
		p = append(p, n.data...)
	}
	return p
}

func TestSafetensors(t *testing.T) {
	b := memBench(t)
	big, small := random(700_000, 1), random(1000, 2)
	src := tensors(t, named{"a", small}, named{"b", big}, named{"c", small})
	first := b.file(t, src)
	m := first.Manifest
	if m.Format != "safetensors" || len(m.Tensors) != 3 || len(m.Regions) != 4 {
		t.Fatalf("%+v", m)
	}
	if len(m.Objects) != 3 { // the header, small, big
		t.Errorf("%d objects", len(m.Objects))
	}
	spans := []manifest.Span{
		{Hash: cas.Sum(big[:cas.ChunkSize]), Len: cas.ChunkSize},
		{Hash: cas.Sum(big[cas.ChunkSize : 2*cas.ChunkSize]), Len: cas.ChunkSize},
		{Hash: cas.Sum(big[2*cas.ChunkSize:]), Len: 700_000 - 2*cas.ChunkSize},
	}
	want := manifest.Object{Digest: cas.Sum(manifest.EncodeList(spans)), Len: 700_000, List: true}
	if m.Objects[m.Extents[2].Object] != want {
		t.Errorf("object of b: %+v", m.Objects)
	}
	if want := (manifest.Object{Digest: cas.Sum(small), Len: 1000}); m.Objects[m.Extents[1].Object] != want {
		t.Errorf("object of a: %+v", m.Objects)
	}
	// Three chunks, their list, the small tensor, the header, the manifest.
	if first.Fresh != 7 {
		t.Errorf("%d records", first.Fresh)
	}
	sum := b.total(t, cas.Chunk, cas.List, cas.Manifest)
	if got := (total{first.Fresh, first.FreshRaw, first.FreshStored}); got != sum {
		t.Errorf("counted %+v, the index has %+v", got, sum)
	}
	// The same once more adds nothing; a file with one tensor changed adds that.
	if again := b.file(t, src); again.Hash != first.Hash || again.Fresh != 0 || again.FreshRaw != 0 ||
		again.FreshStored != 0 {
		t.Errorf("again: %+v", again)
	}
	second := b.file(t, tensors(t, named{"a", random(1000, 3)}, named{"b", big}, named{"c", small}))
	if second.Fresh != 2 || second.FreshRaw > 1500 {
		t.Errorf("one tensor changed: %d records, %d bytes", second.Fresh, second.FreshRaw)
	}
	// In a blob around it the tensors' chunks are where they were.
	if len(b.file(t, nil).Manifest.Extents) != 0 {
		t.Error("empty file")
	}
}

// Bytes that move within an unknown file are found again.
func TestBlobShift(t *testing.T) {
	b := memBench(t)
	src := random(5<<20, 4)
	first := b.file(t, src)
	if first.Manifest.Format != "blob" || first.FreshRaw < 5<<20 {
		t.Errorf("%+v", first)
	}
	moved := append([]byte("something new at the front"), src...)
	if res := b.file(t, moved); res.FreshRaw > 600_000 {
		t.Errorf("%d bytes stored for 26 new ones", res.FreshRaw)
	}
}

// Windows cut side by side give the chunks that one cutter gives, and keep to the file's offsets.
func TestCutsAreTheCutters(t *testing.T) {
	b := memBench(t)
	text := bytes.Repeat([]byte("all work and no play makes jack a dull boy\n"), 400_000)
	for name, src := range map[string][]byte{
		"random":   random(5*window+12_345, 21),
		"zeros":    make([]byte, 3*window+1),
		"periodic": text[:3*window],
		"mixed": append(append(text[1000:window+4321:window+4321], random(window, 22)...),
			make([]byte, window)...),
		"short": random(smallBlob, 23),
	} {
		for _, front := range []int{0, 1000} {
			whole := append(make([]byte, front), src...)
			l := &formats.Layout{Regions: []formats.Region{{Off: int64(front), Len: int64(len(src))}}}
			if front > 0 {
				l.Regions = append([]formats.Region{{Len: int64(front), Kind: formats.Pad}}, l.Regions...)
			}
			m := b.layout(t, whole, l).Manifest
			var want []manifest.Span
			cdc := chunk.NewCDC(bytes.NewReader(src))
			for {
				p, err := cdc.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, manifest.Span{Hash: cas.Sum(p), Len: uint32(len(p))})
			}
			cdc.Close()
			digest := want[0].Hash
			if len(want) > 1 {
				digest = cas.Sum(manifest.EncodeList(want))
			}
			if len(m.Objects) != 1 || m.Objects[0].Digest != digest {
				t.Errorf("%s at %d: other chunks than one cutter's", name, front)
			}
		}
	}
}

// Whatever the layout, the file comes back, and the manifest says what the layout said.
func TestLayoutProperty(t *testing.T) {
	b := memBench(t)
	source := random(4<<20, 5)
	rapid.Check(t, func(rt *rapid.T) {
		l := &formats.Layout{Format: "test"}
		var src []byte
		for range rapid.IntRange(0, 12).Draw(rt, "regions") {
			kind := formats.Kind(rapid.IntRange(0, 2).Draw(rt, "kind"))
			scale := rapid.SampledFrom([]int{10, 1000, 70_000, 600_000}).Draw(rt, "scale")
			n := rapid.IntRange(1, scale).Draw(rt, "length")
			l.Regions = append(l.Regions, formats.Region{Off: int64(len(src)), Len: int64(n), Kind: kind})
			if kind == formats.Pad {
				src = append(src, make([]byte, n)...)
			} else {
				at := rapid.IntRange(0, len(source)-n).Draw(rt, "source")
				src = append(src, source[at:at+n]...)
			}
			if kind == formats.Data {
				l.Tensors = append(l.Tensors, formats.Tensor{Name: fmt.Sprint(len(l.Tensors)),
					DType: formats.U8, Shape: []int64{int64(n)}, Region: len(l.Regions) - 1})
			}
		}
		p := *b.p
		longest := []int64{manifest.MaxObject, cas.ChunkSize, 3 * cas.ChunkSize}
		p.object = limits{rapid.SampledFrom(longest).Draw(rt, "longest object"),
			rapid.SampledFrom([]int{maxSpans, 2, 1}).Draw(rt, "most spans")}
		c := *b
		c.p = &p
		res := c.layout(t, src, l)
		m := res.Manifest
		if m.Format != l.Format || len(m.Regions) != len(l.Regions) || len(m.Tensors) != len(l.Tensors) {
			rt.Fatalf("%+v", m)
		}
		for i, r := range m.Regions {
			if r != l.Regions[i] {
				rt.Fatalf("region %d: %+v, want %+v", i, r, l.Regions[i])
			}
		}
		for _, o := range m.Objects {
			if o.Len > p.object.bytes {
				rt.Fatalf("object of %d bytes", o.Len)
			}
		}
		stored, err := b.st.Get(res.Hash, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := manifest.Decode(stored); err != nil {
			rt.Fatal(err)
		}
	})
}

// A parser that takes bytes for padding is wrong, but costs none.
func TestPadThatIsNot(t *testing.T) {
	b := memBench(t)
	src := make([]byte, 200_000)
	src[150_000] = 1
	l := &formats.Layout{Format: "test", Regions: []formats.Region{
		{Off: 0, Len: 1000, Kind: formats.Pad},
		{Off: 1000, Len: 199_000, Kind: formats.Pad},
	}}
	res := b.layout(t, src, l)
	if k := res.Manifest.Regions; k[0].Kind != formats.Pad || k[1].Kind != formats.Blob {
		t.Errorf("%+v", k)
	}
}

// A layout that no manifest can hold does not keep the file out.
func TestManifestTooLarge(t *testing.T) {
	b := memBench(t)
	b.p.record = 1000
	src := tensors(t, named{"a", random(5000, 1)},
		named{string(bytes.Repeat([]byte("b"), 2000)), random(5000, 2)})
	res := b.file(t, src)
	if res.Manifest.Format != "blob" || len(res.Manifest.Tensors) != 0 {
		t.Errorf("%+v", res.Manifest)
	}
	bad := &formats.Layout{Format: "bad", Regions: []formats.Region{{Len: int64(len(src)) - 1}}}
	if res := b.layout(t, src, bad); res.Manifest.Format != "blob" {
		t.Errorf("%+v", res.Manifest)
	}
}

// Files packed side by side, with much in common, all come back.
func TestConcurrent(t *testing.T) {
	b := memBench(t)
	common := random(1<<20, 8)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			src := tensors(t, named{"a", common}, named{"b", random(200_000, byte(100+i))},
				named{"c", common[:300_000]})
			batch := b.st.Begin()
			defer batch.Release()
			res, err := b.p.File(context.Background(), batch, bytes.NewReader(src), int64(len(src)))
			if err == nil {
				err = batch.Commit()
			}
			if err != nil {
				t.Error(err)
				return
			}
			f, err := b.asm.Open(res.Hash)
			if err != nil {
				t.Error(err)
				return
			}
			got := make([]byte, len(src))
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, src) {
				t.Errorf("file %d differs (%v)", i, err)
			}
		})
	}
	wg.Wait()
	if sum := b.total(t, cas.Chunk); sum.raw > 1<<20+300_000+6*201_000 {
		t.Errorf("%+v", sum)
	}
}

// What packing takes does not grow with the file.
func TestMemory(t *testing.T) {
	b := memBench(t)
	src := make([]byte, 0, 64<<20)
	part := random(1<<20, 9)
	for i := range 64 {
		binary.LittleEndian.PutUint64(part, uint64(i%2)) // little to store, much to hash
		src = append(src, part...)
	}
	data := tensors(t, named{"w", src})
	b.file(t, data)
	batch := b.st.Begin()
	defer batch.Release()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := b.p.File(t.Context(), batch, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 40<<20 { // under the race detector pools forget much
		t.Errorf("%d MiB allocated to pack 64 held ones", n>>20)
	}
}
