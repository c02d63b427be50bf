package pack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/disk"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/formats/safetensors"
	"ckptfs/index/anchors"
	"ckptfs/index/manifest"
)

// marked is an index of anchors, and the manifests that it names.
type marked struct {
	*anchors.Index
	of map[cas.Hash]*manifest.Manifest
}

func (a *marked) Of(h cas.Hash, _ bool) *manifest.Manifest { return a.of[h] }

func newMarked(t testing.TB) *marked {
	x, err := anchors.Open(disk.NewMem(), "/a", anchors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return &marked{x, map[cas.Hash]*manifest.Manifest{}}
}

// file packs a file of n tensors of numbers of bfloat16, of so many rows of 512, that a seed makes.
func (a *marked) file(t testing.TB, b *bench, p *Packer, seed uint64, n, rows int, with Anchors) *Result {
	t.Helper()
	var entries []safetensors.Entry
	rng := rand.New(rand.NewPCG(seed, 5))
	var data []byte
	for i := range n {
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("%d.%03d", seed, i),
			DType: formats.BF16, Shape: []int64{int64(rows), 512}})
		for range rows * 512 {
			data = binary.LittleEndian.AppendUint16(data,
				uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
		}
	}
	return a.pack(t, b, p, entries, data, with)
}

// pack packs a file of tensors, notes it, and looks that it reads back the same.
func (a *marked) pack(t testing.TB, b *bench, p *Packer, entries []safetensors.Entry, data []byte,
	with Anchors) *Result {
	t.Helper()
	src, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	src = append(src, data...)
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	batch := b.st.Begin()
	defer batch.Release()
	res, err := p.Layout(t.Context(), batch, bytes.NewReader(src), int64(len(src)), l,
		Related{Anchors: with})
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(); err != nil {
		t.Fatal(err)
	}
	b.same(t, res, src)
	a.of[res.Hash] = res.Manifest
	if err := a.Note(res.Hash, res.Anchors); err != nil {
		t.Fatal(err)
	}
	return res
}

// liar says that every tensor has something in common with all of some files.
type liar struct {
	*marked
	hits []anchors.Hit
}

func (l *liar) Find([]anchor.Key, int, int) []anchors.Hit { return slices.Clone(l.hits) }

// counting counts the chunks that are read.
type counting struct {
	Store
	mu sync.Mutex
	n  int
}

func (c *counting) Get(h cas.Hash, dst []byte) ([]byte, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Store.Get(h, dst)
}

// TestSeekInVain: to look for what is not there, and to be told of what is not so, costs a bounded number of
// reads, and no byte.
func TestSeekInVain(t *testing.T) {
	b := memBench(t)
	c := &counting{Store: b.st}
	p := New(c, Options{})
	a := newMarked(t)
	lies := &liar{marked: a}
	for i := range uint64(6) {
		res := a.file(t, b, p, i, 4, 1024, a)
		if len(res.Anchors) != 4 || len(res.Anchors[0].Keys) != anchor.BaseWindows+anchor.BaseGroups {
			t.Fatalf("%d tensors with anchors", len(res.Anchors))
		}
		for k := range uint32(8) { // of which four are not there
			lies.hits = append(lies.hits, anchors.Hit{Manifest: res.Hash, Tensor: k * k, Keys: 99})
		}
		lies.hits = append(lies.hits, anchors.Hit{Manifest: cas.Sum([]byte{byte(i)}), Keys: 200})
	}
	if c.n > 0 {
		t.Errorf("%d chunks are read though nothing is alike", c.n)
	}
	const n = 40
	a.file(t, b, p, 100, n, 512, lies)
	if most := maxWrong * 110; c.n > most {
		t.Errorf("%d chunks are read, %d at most", c.n, most)
	}
}

// BenchmarkPackTiny packs 100,000 tensors of 256 bytes with anchors, and without.
func BenchmarkPackTiny(b *testing.B) {
	const tensors, size = 100_000, 256
	var entries []safetensors.Entry
	for i := range tensors {
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("layer%06d.weight", i),
			DType: formats.F32, Shape: []int64{8, size / 32}})
	}
	benchAnchors(b, entries, tensors*size)
}

// BenchmarkPackAnchors packs 64 tensors of 4 MiB, new ones, with anchors, and without.
func BenchmarkPackAnchors(b *testing.B) {
	const tensors, size = 64, 4 << 20
	var entries []safetensors.Entry
	for i := range tensors {
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("layer%06d.weight", i),
			DType: formats.BF16, Shape: []int64{1024, size / 2048}})
	}
	benchAnchors(b, entries, tensors*size)
}

func benchAnchors(b *testing.B, entries []safetensors.Entry, size int) {
	src, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		b.Fatal(err)
	}
	n := len(src)
	src = append(src, make([]byte, size)...)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := n; i+2 <= len(src); i += 2 {
		binary.LittleEndian.PutUint16(src[i:], uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
	}
	a := newMarked(b)
	for _, with := range []Anchors{nil, a} {
		b.Run(fmt.Sprint("anchors=", with != nil), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			var cpu float64
			for b.Loop() {
				b.StopTimer()
				w := newBench(b, disk.OS{}, filepath.Join(b.TempDir(), "segments"))
				b.StartTimer()
				began := cpuTime(b)
				r := bytes.NewReader(src)
				l, err := detect.Detect(r, int64(len(src)))
				if err != nil {
					b.Fatal(err)
				}
				batch := w.st.Begin()
				if _, err := w.p.Layout(b.Context(), batch, r, int64(len(src)), l,
					Related{Anchors: with}); err != nil {
					b.Fatal(err)
				}
				if err := batch.Commit(); err != nil {
					b.Fatal(err)
				}
				batch.Release()
				cpu += float64((cpuTime(b) - began).Microseconds())
			}
			b.ReportMetric(cpu/float64(b.N)/1e3, "cpu-ms/file")
		})
	}
}
