package verify_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/fs/control"
	"ckptfs/fs/derived"
	"ckptfs/fs/verify"
	"ckptfs/index/manifest"
)

const cols = 512

// packed is a store of files that are packed.
type packed struct {
	t *testing.T
	*store.Store
}

func newPacked(t *testing.T) *packed { return &packed{t, remotetest.NewStore(t)} }

func (p *packed) Manifest(cas.Hash) (*manifest.Manifest, error) { return nil, cas.ErrNotFound }

func (p *packed) List(_, h cas.Hash, buf []byte) ([]byte, error) { return p.Get(h, buf) }

func (p *packed) With(cas.Hash, cas.Location, func(*segment.Reader, cas.Location) error) error {
	p.t.Error("a record is looked at")
	return nil
}

func (p *packed) put(kind cas.Kind, raw []byte) cas.Hash {
	p.t.Helper()
	b := p.Begin()
	defer b.Release()
	h := cas.Sum(raw)
	_, err := b.Put(kind, h, raw, codec.Hint{})
	if err == nil {
		err = b.Commit()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// tensor is one of a file, with its bytes.
type tensor struct {
	name  string
	dtype formats.DType
	shape []int64
	data  []byte
}

// of is a tensor of rows of numbers.
func of(name string, dtype formats.DType, x []float32) tensor {
	var p []byte
	for _, v := range x {
		switch b := math.Float32bits(v); dtype {
		case formats.F32:
			p = binary.LittleEndian.AppendUint32(p, b)
		case formats.F16:
			p = binary.LittleEndian.AppendUint16(p, half.ToF16(b))
		default:
			p = binary.LittleEndian.AppendUint16(p, half.ToBF16(b))
		}
	}
	return tensor{name, dtype, []int64{int64(len(x) / cols), cols}, p}
}

// quantised is a tensor of blocks that were made of numbers.
func quantised(t *testing.T, name string, format quant.Format, x []float32) tensor {
	t.Helper()
	var s quant.Streams
	q := quant.Quantiser{Format: format}
	p, err := q.Restore(nil, &s, x)
	if err != nil {
		t.Fatal(err)
	}
	return tensor{name, formats.DType(format.String()), []int64{int64(len(x) / cols), cols}, p}
}

// laid lays tensors out one behind the other.
func laid(tensors []tensor) (l *formats.Layout, data []byte) {
	l = &formats.Layout{Format: "test"}
	for i, x := range tensors {
		l.Regions = append(l.Regions, formats.Region{Off: int64(len(data)), Len: int64(len(x.data)),
			Kind: formats.Data})
		l.Tensors = append(l.Tensors, formats.Tensor{Name: x.name, DType: x.dtype, Shape: x.shape, Region: i})
		data = append(data, x.data...)
	}
	return l, data
}

// source packs a file.
func (p *packed) source(path string, tensors ...tensor) *derived.File {
	p.t.Helper()
	l, data := laid(tensors)
	m := &manifest.Manifest{Format: l.Format, Size: int64(len(data)), Regions: l.Regions, Tensors: l.Tensors}
	for i, r := range l.Regions {
		var spans []manifest.Span
		for c := range slices.Chunk(data[r.Off:][:r.Len], cas.ChunkSize) {
			spans = append(spans, manifest.Span{Hash: p.put(cas.Chunk, c), Len: uint32(len(c))})
		}
		o := manifest.Object{Digest: spans[0].Hash, Len: r.Len}
		if len(spans) > 1 {
			o.List, o.Digest = true, p.put(cas.List, manifest.EncodeList(spans))
		}
		m.Objects = append(m.Objects, o)
		m.Extents = append(m.Extents, manifest.Extent{Len: r.Len, Object: int32(i)})
	}
	return &derived.File{Path: path, Doc: m}
}

// file is one that is not packed.
func file(tensors ...tensor) *verify.File {
	l, data := laid(tensors)
	return &verify.File{Path: "file", Layout: l, Reader: bytes.NewReader(data)}
}

func told(t *testing.T, v *verify.Verifier, f *verify.File) *control.Verified {
	t.Helper()
	out := &control.Verified{}
	var done int64
	if err := v.Add(t.Context(), f, out, func(n int64) { done += n }); err != nil {
		t.Fatal(err)
	}
	verify.End(out)
	if done != out.TensorBytes {
		t.Errorf("progress of %d bytes, %d are there", done, out.TensorBytes)
	}
	return out
}

func gauss(seed uint64, rows int) (x []float32) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range rows * cols {
		x = append(x, half.FromBF16(half.ToBF16(math.Float32bits(float32(r.NormFloat64()*0.02)))))
	}
	return x
}

// turned are rows of heads of 64 in the order in which GGUF has them.
func turned(x []float32) (y []float32) {
	for r := range len(x) / cols {
		y = append(y, x[(r/64*64+r%2*32+r%64/2)*cols:][:cols]...)
	}
	return y
}

func joined(a, b []float32) []float32 { return append(slices.Clone(a), b...) }

// Whatever is made of stored tensors follows from them, and nearly nothing of it would be stored.
func TestFollows(t *testing.T) {
	const hf, gguf = "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"
	p := newPacked(t)
	x, a, b := gauss(1, 640), gauss(2, 640), gauss(3, 640) // of three chunks
	from := []*derived.File{p.source("model", of(hf, formats.BF16, x), of("other", formats.BF16, a)),
		p.source("chat", of("w", formats.BF16, a)), p.source("code", of("w", formats.BF16, b))}
	v := verify.New(p, from)
	merged := make([]float32, len(a))
	for i := range merged {
		y, z := float32(0.7)*a[i], float32(0.3)*b[i]
		merged[i] = y + z
	}
	scales := make([]float32, 640)
	var codes []byte
	for r := range scales {
		row := x[r*cols:][:cols]
		for _, v := range row {
			scales[r] = max(scales[r], v, -v)
		}
		scales[r] /= 448
		q := quant.Quantiser{Format: quant.F8E4M3, Variant: quant.Divide,
			Scales: quant.Scales{Rows: 1, Cols: cols, Tall: 1, Wide: cols}}
		var s quant.Streams
		var err error
		if codes, err = q.Restore(codes, &s, row); err != nil {
			t.Fatal(err)
		}
	}
	beside := of(hf+"_scale", formats.F32, scales)
	beside.shape = []int64{640, 1}
	for what, f := range map[string]*verify.File{
		"Q8_0":                file(quantised(t, gguf, quant.Q8_0, turned(x))),
		"Q4_K":                file(quantised(t, gguf, quant.Q4_K, turned(x))),
		"in another order":    file(of(gguf, formats.BF16, turned(x))),
		"in single precision": file(of(hf, formats.F32, x)),
		"by no name":          file(of("unheard", formats.F32, x)),
		"two in one":          file(of("fused", formats.BF16, joined(x, a))),
		"a slice":             file(of("part", formats.BF16, x[64*cols:][:256*cols])),
		"merged":              file(of("w", formats.BF16, merged)),
		"FP8":                 file(tensor{hf, formats.F8E4M3, []int64{640, cols}, codes}, beside),
	} {
		out := told(t, v, f)
		if !out.Follows || out.Share < 0.98 || len(out.Others) > 0 ||
			out.StoredBytes > out.Bytes/100 || out.FreeBits != 8*out.StoredBytes {
			t.Errorf("%s: %+v", what, out)
		}
	}
	// Not from one of its parents alone, nor from what it is not made of.
	for what, c := range map[string]struct {
		from *derived.File
		f    *verify.File
	}{
		"a merge from one":   {from[1], file(of("w", formats.BF16, merged))},
		"a quant of another": {from[1], file(quantised(t, "w", quant.Q8_0, b))},
		"the base of a quant": {p.source("quant", quantised(t, hf, quant.Q8_0, x)),
			file(of(hf, formats.BF16, x))},
	} {
		if out := told(t, verify.New(p, []*derived.File{c.from}), c.f); out.Follows || out.Share > 0.1 ||
			len(out.Others) != 1 {
			t.Errorf("%s: %+v", what, out)
		}
	}
}

// What of a file follows is told by tensors: storage that several share counts once, tensors that the sources
// have count, small ones are not named.
func TestShare(t *testing.T) {
	p := newPacked(t)
	x, same, noise := gauss(1, 640), gauss(2, 64), gauss(3, 320)
	src := p.source("model", of("x", formats.BF16, x), of("same", formats.BF16, same))
	v := verify.New(p, []*derived.File{src})
	held := of("copy", formats.BF16, same)
	f := file(quantised(t, "x", quant.Q8_0, x), held, of("noise", formats.BF16, noise),
		of("small", formats.F32, noise[:cols]), of("also", formats.F32, noise[:2*cols]))
	tied := f.Layout.Tensors[0]
	tied.Name = "tied"
	f.Layout.Tensors = append(f.Layout.Tensors, tied,
		formats.Tensor{Name: "empty", DType: formats.F32, Shape: []int64{0}, Region: -1})
	f.Digests = make([]cas.Hash, len(f.Layout.Tensors))
	f.Digests[1] = cas.Sum(held.data)
	out := told(t, v, f)
	follow := int64(len(x)/32*34 + 2*len(same))
	if out.Tensors != 7 || out.Bytes != follow || out.TensorBytes != follow+2*int64(len(noise))+12*cols ||
		out.Follows || math.Abs(out.Share-float64(follow)/float64(out.TensorBytes)) > 1e-9 {
		t.Errorf("%d follow: %+v", follow, out)
	}
	if len(out.Others) != 2 || out.Others[0].Name != "noise" || out.Others[1].Name != "also" ||
		out.Others[0].Bytes != 2*int64(len(noise)) || out.Others[0].File != "file" {
		t.Errorf("%+v", out.Others)
	}
	// A tensor of which most chunks follow, and one does not: what follows counts, and it is named.
	y := slices.Clone(x)
	copy(y[cas.ChunkSize/4:cas.ChunkSize/2], noise)
	out = told(t, v, file(of("x", formats.F32, y)))
	if out.Share < 0.7 || out.Share > 0.85 || out.Follows || len(out.Others) != 1 {
		t.Errorf("but one chunk: %+v", out)
	}
	// Only so many are named.
	var many []tensor
	for i := range 20 {
		many = append(many, of(fmt.Sprint(i), formats.BF16, gauss(uint64(100+i), 8+i)))
	}
	out = told(t, v, file(many...))
	if len(out.Others) != 16 || out.More != 4 || out.Others[0].Name != "19" || out.Share != 0 {
		t.Errorf("%d are named, and %d more", len(out.Others), out.More)
	}
	// Of nothing, nothing follows.
	if out := told(t, v, file()); out.Follows || out.Share != 0 || out.Tensors != 0 {
		t.Errorf("%+v", out)
	}
}

// A tensor that does not lie in one piece does not follow, whatever is there.
func TestNotContiguous(t *testing.T) {
	p := newPacked(t)
	x := gauss(1, 64)
	v := verify.New(p, []*derived.File{p.source("model", of("x", formats.BF16, x))})
	f := file(of("x", formats.F32, x))
	f.Layout.Tensors[0].SetColumnMajor()
	if out := told(t, v, f); out.Bytes != 0 || out.TensorBytes != 4*int64(len(x)) {
		t.Errorf("%+v", out)
	}
	f = file(of("x", formats.F32, x))
	f.Layout.Tensors[0].Shape = []int64{32, cols}
	f.Layout.Tensors[0].Offset = 64
	if out := told(t, v, f); out.Bytes != 0 {
		t.Errorf("%+v", out)
	}
}

// failing is a file that cannot be read.
type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// What cannot be read is an error, and no answer; so is a cancellation.
func TestErrors(t *testing.T) {
	p := newPacked(t)
	x := gauss(1, 640)
	src := p.source("model", of("x", formats.BF16, x))
	q := quantised(t, "x", quant.Q8_0, x)
	fails := func(ctx context.Context, what string, v *verify.Verifier, f *verify.File, want error) {
		t.Helper()
		if err := v.Add(ctx, f, &control.Verified{}, func(int64) {}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	f := file(q)
	bad := errors.New("the disk")
	fails(t.Context(), "the file", verify.New(p, []*derived.File{src}),
		&verify.File{Path: f.Path, Layout: f.Layout, Reader: failing{bad}}, bad)
	fails(t.Context(), "a short file", verify.New(p, []*derived.File{src}),
		&verify.File{Path: f.Path, Layout: f.Layout, Reader: bytes.NewReader(q.data[:1000])},
		io.ErrUnexpectedEOF)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fails(ctx, "canceled", verify.New(p, []*derived.File{src}), f, context.Canceled)
	// A source that is gone from the store is no source.
	if out := told(t, verify.New(newPacked(t), []*derived.File{src}), file(q)); out.Bytes != 0 || out.Follows {
		t.Errorf("%+v", out)
	}
}
