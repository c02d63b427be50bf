package view

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// countingReader counts the bytes and calls that reach the source.
type countingReader struct {
	r     io.ReaderAt
	mu    sync.Mutex
	bytes int64
	calls int64
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	c.mu.Lock()
	c.bytes += int64(len(p))
	c.calls++
	c.mu.Unlock()
	return c.r.ReadAt(p, off)
}

func random(n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(p)
	return p
}

// naive is the tensor's elements, one after the other by their indices.
func naive(src []byte, regions []formats.Region, t *formats.Tensor) []byte {
	n := t.NumElements()
	elem := int64(t.DType.Bits() / 8)
	if n == 0 {
		return nil
	}
	base := regions[t.Region].Off + t.Offset
	if t.Stride == nil {
		return src[base : base+t.NumBytes()]
	}
	out := make([]byte, 0, n*elem)
	idx := make([]int64, len(t.Shape))
	for range n {
		off := base
		for d := range idx {
			off += idx[d] * t.Stride[d] * elem
		}
		out = append(out, src[off:off+elem]...)
		for d := len(idx) - 1; d >= 0; d-- {
			if idx[d]++; idx[d] < t.Shape[d] {
				break
			}
			idx[d] = 0
		}
	}
	return out
}

type at struct {
	v   *View
	src io.ReaderAt
}

func (a at) ReadAt(p []byte, off int64) (int, error) { return a.v.ReadAt(a.src, p, off) }

func (a at) all() ([]byte, error) { return io.ReadAll(io.NewSectionReader(a, 0, a.v.Size())) }

// check reads the view back as a safetensors file and compares it with src.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, whole []byte, src []byte, regions []formats.Region, tensors []formats.Tensor) {
	t.Helper()
	l, err := safetensors.Parser{}.Parse(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatalf("the view is no safetensors file: %v", err)
	}
	byName := map[string]*formats.Tensor{}
	for i := range l.Tensors {
		byName[l.Tensors[i].Name] = &l.Tensors[i]
	}
	if len(byName) != len(tensors) {
		t.Fatalf("%d tensors, want %d", len(byName), len(tensors))
	}
	for i := range tensors {
		want := &tensors[i]
		got := byName[want.Name]
		if got == nil || got.DType != want.DType || got.NumElements() != want.NumElements() ||
			len(got.Shape) != len(want.Shape) {
			t.Fatalf("tensor %q: %+v, want %+v", want.Name, got, want)
		}
		if !bytes.Equal(naive(whole, l.Regions, got), naive(src, regions, want)) {
			t.Fatalf("tensor %q %v %v: bytes differ", want.Name, want.Shape, want.Stride)
		}
	}
}

func TestKinds(t *testing.T) {
	src := random(4096)
	regions := []formats.Region{{Off: 0, Len: 96, Kind: formats.Blob},
		{Off: 96, Len: 4000, Kind: formats.Data}}
	tensors := []formats.Tensor{
		{Name: "z", DType: formats.F32, Shape: []int64{10, 10}, Region: 1},
		{Name: "transposed", DType: formats.F32, Shape: []int64{10, 20}, Stride: []int64{1, 10}, Region: 1,
			Offset: 4},
		{Name: "expanded", DType: formats.BF16, Shape: []int64{7, 5}, Stride: []int64{0, 1}, Region: 1},
		{Name: "column", DType: formats.I64, Shape: []int64{5, 1}, Stride: []int64{9, 77}, Region: 1,
			Offset: 8},
		{Name: "scalar", DType: formats.F64, Region: 1, Offset: 16},
		{Name: "scalar of a slice", DType: formats.F64, Stride: []int64{}, Region: 1, Offset: 24},
		{Name: "empty", DType: formats.U8, Shape: []int64{3, 0}, Region: -1},
		{Name: "empty with strides", DType: formats.U8, Shape: []int64{3, 0}, Stride: []int64{1, 1},
			Region: 1},
		{Name: "shared", DType: formats.F32, Shape: []int64{100}, Region: 1},
		{Name: "c64 diagonal", DType: formats.C64, Shape: []int64{6}, Stride: []int64{7}, Region: 1},
		{Name: "", DType: formats.Bool, Shape: []int64{3}, Stride: []int64{2}, Region: 1},
		{Name: "f4", DType: formats.F4, Shape: []int64{6}, Region: 1},
		{Name: "ünïcode \" \\ \n\x01", DType: formats.U8, Shape: []int64{2}, Region: 1},
	}
	if err := (&formats.Layout{Regions: regions, Tensors: tensors}).Check(4096); err != nil {
		t.Fatal(err)
	}
	v, err := Safetensors(regions, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.header)%8 != 0 {
		t.Errorf("data starts at %d", len(v.header))
	}
	a := at{v, bytes.NewReader(src)}
	whole, err := a.all()
	if err != nil {
		t.Fatal(err)
	}
	check(t, whole, src, regions, tensors)
	if err := iotest.TestReader(io.NewSectionReader(a, 0, v.Size()), whole); err != nil {
		t.Error(err)
	}
	if n, err := a.ReadAt(make([]byte, 8), v.Size()); n != 0 || err != io.EOF {
		t.Errorf("read at the end: %d, %v", n, err)
	}
	if n, err := a.ReadAt(make([]byte, 8), v.Size()-3); n != 3 || err != io.EOF {
		t.Errorf("read over the end: %d, %v", n, err)
	}
}

func TestNoView(t *testing.T) {
	regions := []formats.Region{{Len: 100, Kind: formats.Data}}
	ok := formats.Tensor{Name: "a", DType: formats.U8, Shape: []int64{1}}
	for name, tensors := range map[string][]formats.Tensor{
		"none":       nil,
		"complex128": {{Name: "a", DType: formats.C128, Shape: []int64{1}}},
		"half bytes": {{Name: "a", DType: formats.F4, Shape: []int64{3}}},
		"duplicate":  {ok, ok},
		"metadata":   {{Name: "__metadata__", DType: formats.U8, Shape: []int64{1}}},
		"not UTF-8":  {{Name: "\xff", DType: formats.U8, Shape: []int64{1}}},
		"unknown":    {{Name: "a", DType: "F24", Shape: []int64{1}}},
	} {
		if _, err := Safetensors(regions, tensors); !errors.Is(err, ErrNoView) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Any tensors of any strides, read in any pieces, are what indexing gives.
func TestGatherProperty(t *testing.T) {
	src := random(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.Int64Range(0, 1000).Draw(t, "region offset")
		regions := []formats.Region{{Off: off, Len: int64(len(src)) - off, Kind: formats.Data}}
		types := []formats.DType{formats.U8, formats.F16, formats.F32, formats.F64, formats.F8E4M3,
			formats.C64}
		var tensors []formats.Tensor
		for i := range rapid.IntRange(1, 4).Draw(t, "tensors") {
			x := formats.Tensor{
				Name: string(rune('a' + i)), DType: rapid.SampledFrom(types).Draw(t, "type"),
				Offset: rapid.Int64Range(0, 100).Draw(t, "offset"), Region: 0,
			}
			room := (regions[0].Len-x.Offset)/int64(x.DType.Bits()/8) - 1 // the highest index
			for range rapid.IntRange(0, 4).Draw(t, "dimensions") {
				x.Shape = append(x.Shape, rapid.SampledFrom([]int64{0, 1, 2, 3, 5, 17, 40}).Draw(t, "size"))
			}
			x.Stride = make([]int64, len(x.Shape))
			if rapid.Bool().Draw(t, "permuted") {
				n := int64(1)
				for _, d := range rapid.Permutation(indices(len(x.Shape))).Draw(t, "order") {
					x.Stride[d] = n
					n *= max(1, x.Shape[d])
				}
				if n > room {
					t.Skip("too large")
				}
			} else {
				for d := range x.Stride {
					most := max(room, 0)
					if x.Shape[d] > 1 {
						most = room / (x.Shape[d] - 1)
					}
					x.Stride[d] = rapid.Int64Range(0, min(most,
						rapid.SampledFrom([]int64{1, 40, 3000, 1 << 20}).Draw(t, "scale"))).Draw(t, "stride")
					room -= x.Stride[d] * max(x.Shape[d]-1, 0)
				}
			}
			tensors = append(tensors, x)
		}
		if err := (&formats.Layout{Regions: append([]formats.Region{{Len: off}}[:min(off, 1)], regions...),
			Tensors: shifted(tensors, int(min(off, 1)))}).Check(int64(len(src))); err != nil {
			t.Fatalf("generator: %v", err)
		}
		v, err := Safetensors(regions, tensors)
		if err != nil {
			t.Fatal(err)
		}
		a := at{v, bytes.NewReader(src)}
		whole := make([]byte, v.Size())
		for n := int64(0); n < v.Size(); {
			m := min(rapid.Int64Range(1, 1<<16).Draw(t, "read"), v.Size()-n)
			if k, err := a.ReadAt(whole[n:n+m], n); err != nil || int64(k) != m {
				t.Fatalf("read of %d at %d: %d, %v", m, n, k, err)
			}
			n += m
		}
		check(t, whole, src, regions, tensors)
		for range 10 {
			from := rapid.Int64Range(0, v.Size()-1).Draw(t, "from")
			p := make([]byte, rapid.Int64Range(1, v.Size()-from).Draw(t, "length"))
			if _, err := a.ReadAt(p, from); err != nil || !bytes.Equal(p, whole[from:from+int64(len(p))]) {
				t.Fatalf("read of %d at %d differs (%v)", len(p), from, err)
			}
		}
	})
}

func indices(n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	return p
}

func shifted(tensors []formats.Tensor, by int) []formats.Tensor {
	out := append([]formats.Tensor(nil), tensors...)
	for i := range out {
		out[i].Region += by
	}
	return out
}

func transposed(n int64) ([]formats.Region, []formats.Tensor) {
	return []formats.Region{{Len: n * n * 4, Kind: formats.Data}},
		[]formats.Tensor{{Name: "w", DType: formats.F32, Shape: []int64{n, n}, Stride: []int64{1, n}}}
}

// Reading a transposed tensor in order, in small requests that overtake each other, costs a few passes over
// its storage and not one a request.
func TestTransposedInOrder(t *testing.T) {
	const n = 4096
	src := random(n * n * 4)
	regions, tensors := transposed(n)
	v, err := Safetensors(regions, tensors)
	if err != nil {
		t.Fatal(err)
	}
	c := &countingReader{r: bytes.NewReader(src)}
	whole := make([]byte, v.Size())
	const req = 128 << 10
	for off := int64(0); off < v.Size(); off += 2 * req {
		for _, o := range []int64{off + req, off} {
			if o < v.Size() {
				if _, err := v.ReadAt(c, whole[o:min(o+req, v.Size())], o); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	check(t, whole, src, regions, tensors)
	if c.bytes > 3*n*n*4/2 || c.calls > 30*n {
		t.Errorf("%d bytes in %d calls for a tensor of %d", c.bytes, c.calls, n*n*4)
	}
	v.Drop()
	if v.blocks.slot != [slots]*block{} {
		t.Error("Drop keeps blocks")
	}
}

// A random read of a transposed tensor fetches about the elements asked for.
func TestTransposedRandom(t *testing.T) {
	const n = 2048
	src := random(n * n * 4)
	regions, tensors := transposed(n)
	v, _ := Safetensors(regions, tensors)
	c := &countingReader{r: bytes.NewReader(src)}
	want := naive(src, regions, &tensors[0])
	p := make([]byte, 4096)
	for _, off := range []int64{9 << 20, 3 << 20, 13<<20 + 1, 6<<20 + 2} {
		c.bytes = 0
		if _, err := v.ReadAt(c, p, int64(len(v.header))+off); err != nil ||
			!bytes.Equal(p, want[off:off+4096]) {
			t.Fatalf("at %d: %v", off, err)
		}
		if c.bytes > 8192 {
			t.Errorf("%d bytes read for 4096", c.bytes)
		}
	}
}

// failing fails where its source is damaged.
type failing struct {
	io.ReaderAt
	from, to int64
}

var errDamage = errors.New("damage")

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off < f.to && off+int64(len(p)) > f.from {
		return 0, errDamage
	}
	return f.ReaderAt.ReadAt(p, off)
}

// Damage strikes the reads that need the damaged bytes and no others, also when blocks are gathered ahead.
func TestDamage(t *testing.T) {
	src := random(1 << 20)
	regions := []formats.Region{{Len: 1 << 20, Kind: formats.Data}}
	tensors := []formats.Tensor{
		{Name: "w", DType: formats.U8, Shape: []int64{256, 2048}, Stride: []int64{4096, 2}},
	}
	v, _ := Safetensors(regions, tensors)
	bad := failing{bytes.NewReader(src), 100 * 4096, 101 * 4096}
	want := naive(src, regions, &tensors[0])
	for row := range int64(256) {
		p := make([]byte, 2048)
		_, err := v.ReadAt(bad, p, int64(len(v.header))+row*2048)
		switch {
		case row == 100:
			if !errors.Is(err, errDamage) {
				t.Errorf("row 100: %v", err)
			}
		case err != nil && row != 99 &&
			row != 101: // reads of the source that reach over the row's end may fail too
			t.Errorf("row %d: %v", row, err)
		case err == nil && !bytes.Equal(p, want[row*2048:][:2048]):
			t.Errorf("row %d differs", row)
		}
	}
}

func TestShortSource(t *testing.T) {
	regions := []formats.Region{{Len: 100, Kind: formats.Data}}
	v, _ := Safetensors(regions, []formats.Tensor{{Name: "w", DType: formats.U8, Shape: []int64{100}}})
	if _, err := v.ReadAt(bytes.NewReader(make([]byte, 50)), make([]byte, v.Size()),
		0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestConcurrent(t *testing.T) {
	const n = 512
	src := random(n * n * 4)
	regions, tensors := transposed(n)
	v, _ := Safetensors(regions, tensors)
	a := at{v, bytes.NewReader(src)}
	want := naive(src, regions, &tensors[0])
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			p := make([]byte, 10_000)
			for off := int64(g) * 1000; off+10_000 < int64(len(want)); off += 10_000 {
				if _, err := a.ReadAt(p, int64(len(v.header))+off); err != nil ||
					!bytes.Equal(p, want[off:off+10_000]) {
					t.Errorf("at %d: %v", off, err)
					return
				}
				if off%7 == 0 {
					v.Drop()
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkTransposed(b *testing.B) {
	const n = 4096
	src := random(n * n * 4)
	regions, tensors := transposed(n)
	v, _ := Safetensors(regions, tensors)
	r := bytes.NewReader(src)
	p := make([]byte, 1<<20)
	b.SetBytes(v.Size())
	for b.Loop() {
		for off := int64(0); off < v.Size(); off += int64(len(p)) {
			if _, err := v.ReadAt(r, p, off); err != nil && err != io.EOF {
				b.Fatal(err)
			}
		}
	}
}
