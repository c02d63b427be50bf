package estimate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/quant"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/bases"
	"ckptfs/fs/control"
	"ckptfs/fs/pack"
	"ckptfs/index/chunks"
	"ckptfs/index/manifest"
)

// tensor is one of a model's.
type tensor struct {
	name       string
	rows, cols int
	w          []float32
}

type model []tensor

// newModel makes matrices of normal numbers.
func newModel(seed uint64, layers, width int) (m model) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range layers {
		for k, rows := range []int{width, width, 2 * width} {
			t := tensor{name: fmt.Sprintf("model.layers.%03d.%c.weight", i, 'a'+k), rows: rows, cols: width}
			for range t.rows * t.cols {
				t.w = append(t.w, float32(0.02*r.NormFloat64()))
			}
			m = append(m, t)
		}
	}
	return m
}

// each is the model with numbers made of its own.
func (m model) each(f func(t *tensor, row, col int, w float64) float64) (other model) {
	for _, t := range m {
		was := t.w
		t.w = make([]float32, len(was))
		for i := range was {
			t.w[i] = float32(f(&t, i/t.cols, i%t.cols, float64(was[i])))
		}
		other = append(other, t)
	}
	return other
}

// tuned is the model after some training.
func (m model) tuned(seed uint64, change float64) model {
	r := rand.New(rand.NewPCG(seed, 2))
	return m.each(func(_ *tensor, _, _ int, w float64) float64 { return w * (1 + change*r.NormFloat64()) })
}

// merged is the model with an adapter of rank 2.
func (m model) merged(seed uint64) model {
	r := rand.New(rand.NewPCG(seed, 3))
	up, down := make([]float64, 4096), make([]float64, 4096)
	for i := range up {
		up[i], down[i] = 4e-3*r.NormFloat64(), r.NormFloat64()
	}
	return m.each(func(t *tensor, row, col int, w float64) float64 {
		return float64(bf16(float32(w))) + up[2*row]*down[col] + up[2*row+1]*down[4095-col]
	})
}

// bf16 rounds a number.
func bf16(w float32) float32 {
	b := math.Float32bits(w)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// file is the model as a safetensors file.
func (m model) file(t testing.TB, dtype formats.DType) []byte {
	t.Helper()
	var entries []safetensors.Entry
	var data []byte
	for _, x := range m {
		entries = append(entries, safetensors.Entry{Name: x.name, DType: dtype,
			Shape: []int64{int64(x.rows), int64(x.cols)}})
		for _, w := range x.w {
			if dtype == "F32" {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(w))
			} else {
				data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(bf16(w))>>16))
			}
		}
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// e4m3 is the code of the number next to w, of two the even one.
func e4m3(w float32) byte {
	positive := quant.F8E4M3.Numbers()[:0x7f]
	a := float32(math.Abs(float64(w)))
	i, ok := slices.BinarySearch(positive, a)
	if !ok {
		if below, above := a-positive[i-1], positive[i]-a; below < above || below == above && i%2 == 1 {
			i--
		}
	}
	if math.Signbit(float64(w)) {
		i |= 0x80
	}
	return byte(i)
}

// fp8 is the model as codes with a scale a row, as compressed-tensors writes it.
func (m model) fp8(t testing.TB) []byte {
	t.Helper()
	var entries []safetensors.Entry
	var data []byte
	for _, x := range m {
		var codes, scales []byte
		for r := range x.rows {
			row := x.w[r*x.cols : (r+1)*x.cols]
			var most float32
			for _, w := range row {
				most = max(most, float32(math.Abs(float64(w))))
			}
			s := bf16(most / 448)
			scales = binary.LittleEndian.AppendUint16(scales, uint16(math.Float32bits(s)>>16))
			for _, w := range row {
				codes = append(codes, e4m3(min(448, max(-448, w/s))))
			}
		}
		entries = append(entries, safetensors.Entry{Name: x.name, DType: "F8_E4M3", Shape: []int64{int64(x.rows), int64(x.cols)}},
			safetensors.Entry{Name: x.name + "_scale", DType: "BF16", Shape: []int64{int64(x.rows), 1}})
		data = append(append(data, codes...), scales...)
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// folder is where a test writes files, each a second younger than the one before.
type folder struct {
	t     testing.TB
	dir   string
	names []string
}

func (f *folder) write(name string, p []byte) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, p, 0o644); err != nil {
		f.t.Fatal(err)
	}
	f.names = append(f.names, name)
	at := time.Unix(1e9+int64(len(f.names)), 0)
	if err := os.Chtimes(path, at, at); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func newFolder(t testing.TB) *folder { return &folder{t: t, dir: t.TempDir()} }

// family writes a base and its relatives.
func (f *folder) family(layers, width int) {
	base := newModel(1, layers, width)
	f.write("base/model.safetensors", base.file(f.t, "BF16"))
	for i := range 3 {
		f.write(fmt.Sprintf("tuned-%c/model.safetensors", 'a'+i),
			base.tuned(uint64(i), 3e-3).file(f.t, "BF16"))
	}
	f.write("merged/model.safetensors", base.merged(1).file(f.t, "BF16"))
	f.write("copy/renamed.safetensors", base.file(f.t, "BF16"))
	other := newModel(2, layers, width)
	f.write("other/single.safetensors", other.file(f.t, "F32"))
	f.write("other/half.safetensors", other.file(f.t, "BF16"))
	for i, m := 0, newModel(3, layers, width); i < 3; i, m = i+1, m.tuned(uint64(i), 1e-4) {
		f.write(fmt.Sprintf("runs/a/%d/model.safetensors", 90+10*i), m.file(f.t, "F32"))
	}
	r := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(r.Uint32() & 15)
	}
	f.write("noise.bin", noise)
	f.write("readme.md", []byte("small"))
}

func (f *folder) estimate(o Options) *Answer {
	f.t.Helper()
	a, err := Run(f.t.Context(), []string{f.dir}, f.options(o))
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

func (f *folder) options(o Options) Options {
	temp, err := disk.OpenFolder(f.t.TempDir())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { temp.Close() })
	o.Temp = temp
	return o
}

// real is a store that the folder's files are packed into.
type real struct {
	*store.Store
	index *chunks.DB
	was   map[string]cas.Hash
}

func (r *real) Manifest(h cas.Hash) (*manifest.Manifest, error) {
	p, err := r.Get(h, nil)
	if err != nil {
		return nil, err
	}
	return manifest.Decode(p)
}

func (r *real) Latest(n int) []cas.Hash { return r.Store.Latest(cas.Manifest, n) }

func newReal(t testing.TB) *real {
	t.Helper()
	id := [16]byte{1}
	index, err := chunks.Open(filepath.Join(t.TempDir(), "i"), chunks.Options{StoreID: id, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(disk.NewMem(), "/s/segments", id, index, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		st.Close()
		index.Close()
	})
	return &real{st, index, map[string]cas.Hash{}}
}

// pack packs the files that are no small ones, in the order in which they were written.
func (r *real) pack(f *folder) {
	f.t.Helper()
	root, err := os.Open(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	defer root.Close()
	p := pack.New(r.Store, pack.Options{})
	finder := bases.New(bases.Options{Store: r, Root: int(root.Fd()), At: func(p string) (cas.Hash, bool) {
		h, ok := r.was[p]
		return h, ok
	}})
	for _, name := range f.names {
		raw, err := os.Open(filepath.Join(f.dir, name))
		if err != nil {
			f.t.Fatal(err)
		}
		st, err := raw.Stat()
		if err != nil {
			f.t.Fatal(err)
		}
		if st.Size() < 64<<10 {
			raw.Close()
			continue
		}
		b := r.Begin()
		res, err := finder.Pack(f.t.Context(), bases.Packing{Path: name, Raw: raw, Size: st.Size(),
			Layout: func() (*formats.Layout, error) { return detect.Detect(raw, st.Size()) },
			Pack: func(l *formats.Layout, rel pack.Related) (*pack.Result, error) {
				return p.Layout(f.t.Context(), b, raw, st.Size(), l, rel)
			}})
		if err == nil {
			err = b.Commit()
		}
		b.Release()
		raw.Close()
		if err != nil {
			f.t.Fatal(err)
		}
		r.was[name] = res.Hash
	}
}

// takes is what records take: the same as a dry store counts.
func (r *real) takes(t testing.TB) (sum int64) {
	t.Helper()
	err := r.index.ForEach(0, 0xffff, func(e cas.Entry) error {
		sum += segment.Size(int(e.Stored)) + 56 + 33
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestFull: what a full estimate says is what a store takes.
func TestFull(t *testing.T) {
	f := newFolder(t)
	f.family(3, 384)
	a := f.estimate(Options{Full: true})
	r := newReal(t)
	r.pack(f)
	want := r.takes(t) + int64(len("small"))
	t.Logf("%d of %d bytes, a store takes %d: %+v", a.StoredBytes, a.Bytes, want, a.Kinds)
	if d := math.Abs(float64(a.StoredBytes - want)); !a.Complete || d > float64(a.Bytes)/10_000 {
		t.Errorf("%d bytes, and a store takes %d", a.StoredBytes, want)
	}
	if a.LowBytes != a.StoredBytes || a.HighBytes != a.StoredBytes || a.ReadBytes != a.Bytes-5 {
		t.Errorf("%+v", a)
	}
	for _, kind := range []string{"equal", "delta", "low rank", "rounding", "alone"} {
		if i := slices.IndexFunc(a.Kinds, func(p Part) bool { return p.Name == kind }); i < 0 ||
			a.Kinds[i].Bytes == 0 {
			t.Errorf("nothing is %s: %+v", kind, a.Kinds)
		}
	}
	var names []string
	for _, g := range a.Groups {
		names = append(names, fmt.Sprintf("%s %d", g.Name, g.Models))
	}
	if want := []string{"base/model.safetensors 6", "runs/a/90/model.safetensors 3",
		"other/single.safetensors 2"}; !slices.Equal(names, want) {
		t.Errorf("groups %q, want %q", names, want)
	}
}

// TestSamples: what samples say is near what everything says, and they say how near.
func TestSamples(t *testing.T) {
	f := newFolder(t)
	f.family(8, 256)
	full := f.estimate(Options{Full: true})
	var answers []*Answer
	a := f.estimate(Options{shell: full.Bytes / 20, Progress: func(p control.Progress, a *Answer) {
		if a != nil {
			answers = append(answers, a)
		}
	}})
	if !a.Complete || a.StoredBytes != full.StoredBytes {
		t.Errorf("samples that do not agree end with %d bytes, everything is %d of %d", a.StoredBytes,
			full.StoredBytes, full.Bytes)
	}
	if len(answers) < 10 {
		t.Fatalf("%d answers", len(answers))
	}
	for i, a := range answers[2:] {
		off := math.Abs(float64(a.StoredBytes-full.StoredBytes)) / float64(full.Bytes)
		t.Logf("%.3f of the bytes read: %.3f, %.3f to %.3f (%.3f)", float64(a.ReadBytes)/float64(full.Bytes),
			float64(a.StoredBytes)/float64(full.Bytes), float64(a.LowBytes)/float64(full.Bytes),
			float64(a.HighBytes)/float64(full.Bytes), off)
		if off > 0.1 && i > 2 {
			t.Errorf("answer %d is off by %.3f", i, off)
		}
		if a.LowBytes > a.StoredBytes || a.HighBytes < a.StoredBytes {
			t.Errorf("%+v", a)
		}
	}
}

// TestSlices: slices of tensors say what the tensors do. What a tensor's chunks have in common counts once.
func TestSlices(t *testing.T) {
	f := newFolder(t)
	base := newModel(1, 1, 512)
	f.write("base.safetensors", base.file(t, "BF16"))
	f.write("merged.safetensors", base.merged(1).file(t, "BF16"))
	full := f.estimate(Options{Full: true})
	var a *Answer // the last of samples
	f.estimate(Options{shell: full.Bytes / 20, slice: 64 << 10, Progress: func(_ control.Progress, so *Answer) {
		if so != nil {
			a = so
		}
	}})
	part := func(a *Answer, kind string) Part {
		for _, p := range a.Kinds {
			if p.Name == kind {
				return p
			}
		}
		t.Fatalf("nothing is %s: %+v", kind, a.Kinds)
		return Part{}
	}
	low, all := part(a, "low rank"), part(full, "low rank")
	t.Logf("slices say %d bytes, everything %d; of low rank %+v, %+v", a.StoredBytes, full.StoredBytes, low, all)
	if off := math.Abs(float64(a.StoredBytes-full.StoredBytes)) / float64(full.Bytes); off > 0.02 {
		t.Errorf("off by %.3f", off)
	}
	if a.Complete || math.Abs(float64(low.Bytes)/float64(all.Bytes)-1) > 0.01 || math.Abs(float64(low.StoredBytes)/float64(all.StoredBytes)-1) > 0.3 {
		t.Errorf("of low rank are %+v, and really %+v", low, all)
	}
}

// TestConverted: what is computed of a model under a converter's names, and scales beside codes, are in the
// shells of what they are computed of.
func TestConverted(t *testing.T) {
	f := newFolder(t)
	base := newModel(1, 24, 128)
	gguf, hf := []string{"attn_q", "attn_k", "ffn_up"}, []string{"self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"}
	under := func(pattern string, names []string) (m model) {
		for i, x := range base {
			x.name = fmt.Sprintf(pattern, i/3, names[i%3])
			m = append(m, x)
		}
		slices.SortFunc(m, func(a, b tensor) int { return strings.Compare(a.name, b.name) })
		return m.each(func(_ *tensor, _, _ int, w float64) float64 { return float64(bf16(float32(w))) })
	}
	f.write("base/model.safetensors", under("model.layers.%03d.%s.weight", hf).file(t, "BF16"))
	f.write("converted/model.safetensors", under("blk.%03d.%s.weight", gguf).file(t, "F32"))
	f.write("fp8/model.safetensors", under("model.layers.%03d.%s.weight", hf).fp8(t))
	full := f.estimate(Options{Full: true})
	var a *Answer // the last of samples
	f.estimate(Options{shell: full.Bytes / 20, slice: 8 << 10, Progress: func(_ control.Progress, so *Answer) {
		if so != nil {
			a = so
		}
	}})
	t.Logf("samples of %d say %d to %d, everything %d of %d", a.ReadBytes, a.LowBytes, a.HighBytes,
		full.StoredBytes, full.Bytes)
	if off := math.Abs(float64(a.StoredBytes-full.StoredBytes)) / float64(full.Bytes); a.Complete || off > 0.03 {
		t.Errorf("samples say %d bytes, everything %d of %d", a.StoredBytes, full.StoredBytes, full.Bytes)
	}
}

// TestKin: a tensor is where its versions are, whatever formats call it; blocks of other stages are elsewhere.
func TestKin(t *testing.T) {
	of := func(name string, shape ...int64) uint64 { return kin(&formats.Tensor{Name: name, Shape: shape}, false) }
	if a := of("model.layers.3.self_attn.q_proj.weight", 64, 64); a != of("blk.3.attn_q.weight", 64, 64) ||
		a != of("layers.3.feed_forward.w1.qweight", 8, 64) || a == of("model.layers.4.self_attn.q_proj.weight", 64, 64) {
		t.Error("layers are not told apart, or are not together")
	}
	if of("layer1.0.conv1.weight", 64, 9) == of("layer2.0.conv1.weight", 64, 9) {
		t.Error("blocks of several stages are one")
	}
	if a := of("model.embed_tokens.weight", 100, 8); a != of("token_embd.weight", 100, 8) ||
		a == of("model.norm.weight", 8) {
		t.Error("what is in no layer is not told by its elements")
	}
}

// TestEnough: samples end once they agree.
func TestEnough(t *testing.T) {
	f := newFolder(t)
	f.family(30, 128)
	a := f.estimate(Options{shell: 128 << 10, Within: 0.1})
	if a.Complete || a.ReadBytes == 0 || a.ReadBytes > a.Bytes/2 {
		t.Errorf("%d of %d bytes read", a.ReadBytes, a.Bytes)
	}
	if half := float64(a.HighBytes - a.StoredBytes); half > 0.1*float64(a.Bytes) {
		t.Errorf("it ends with an error of %.3f", half/float64(a.Bytes))
	}
}

// TestOwnName: a file that has a name is called by that, whatever links lead to it.
func TestOwnName(t *testing.T) {
	f := newFolder(t)
	p := newModel(1, 1, 256).file(t, "BF16")
	for _, name := range []string{"a", "b"} {
		f.write(name+".safetensors", p)
		if err := os.Symlink(name+".safetensors", filepath.Join(f.dir, "latest-"+name+".safetensors")); err != nil {
			t.Fatal(err)
		}
	}
	a, err := Run(t.Context(), []string{f.dir}, f.options(Options{}))
	if err != nil || len(a.Groups) != 1 || strings.HasPrefix(filepath.Base(a.Groups[0].Name), "latest") {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestOnce: a file counts once, whatever leads to it, and is called as a link calls it if its own name is none; a
// file with holes counts by what it holds, and one outside of the paths does not.
func TestOnce(t *testing.T) {
	f := newFolder(t)
	p := newModel(1, 1, 256).file(t, "BF16")
	blob := f.write("blobs/0123", p)
	outside := newFolder(t).write("outside.safetensors", newModel(2, 1, 256).file(t, "BF16"))
	for _, link := range []struct{ to, at string }{{"../blobs/0123", "snapshots/model.safetensors"},
		{outside, "snapshots/other.safetensors"}, {"nothing", "dangling"}, {"blobs", "folder"}} {
		at := filepath.Join(f.dir, link.at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(link.to, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(blob, filepath.Join(f.dir, "hard")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(f.dir, "sparse"))
	if err == nil {
		err = errors.Join(sparse.Truncate(1<<30), sparse.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	again := newFolder(t).write("again.safetensors", p)
	a, err := Run(t.Context(), []string{f.dir, again, blob}, f.options(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if a.Files != 3 || a.Bytes != int64(2*len(p)) || a.Links != 1 || a.Outside != 1 || a.LeftFiles != 0 {
		t.Errorf("%+v", a)
	}
	if len(a.Groups) != 1 || filepath.Base(a.Groups[0].Name) != "model.safetensors" || a.Groups[0].How != "equal" {
		t.Errorf("%+v", a.Groups)
	}
	if _, err := Run(t.Context(), []string{filepath.Join(f.dir, "nothing")}, f.options(Options{})); err == nil {
		t.Error("a path that does not exist is estimated")
	}
}

// TestLeft: what is not read is named, and what changes meanwhile is no failure.
func TestLeft(t *testing.T) {
	f := newFolder(t)
	f.write("a.safetensors", newModel(1, 1, 256).file(t, "BF16"))
	f.write("store/b.safetensors", newModel(2, 1, 256).file(t, "BF16"))
	gone := f.write("c.bin", make([]byte, 1<<20))
	o := f.options(Options{Leave: func(dir string) string {
		if filepath.Base(dir) != "store" {
			return ""
		}
		return "it is a store"
	}})
	o.Now = time.Now
	e := &estimator{o: o}
	if err := errors.Join(e.walk(t.Context(), []string{f.dir}), os.Remove(gone)); err != nil {
		t.Fatal(err)
	}
	a, err := e.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.Files != 1 || a.LeftFiles != 1 || a.Left[0].Reason != "it is a store" ||
		a.Changed != 1 {
		t.Errorf("%+v", a)
	}
}

// ticking is a clock that goes on by a second whenever it is looked at.
func ticking() func() time.Time {
	now := time.Unix(1e9, 0)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

// TestInterrupted: an estimate that is ended gives its answer so far.
func TestInterrupted(t *testing.T) {
	f := newFolder(t)
	f.family(4, 256)
	for _, full := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		a, err := Run(ctx, []string{f.dir}, f.options(Options{Full: full, shell: 512 << 10, Now: ticking(),
			Progress: func(_ control.Progress, a *Answer) {
				if a != nil && a.ReadBytes > 0 {
					cancel()
				}
			}}))
		if err != nil || a.Complete || a.ReadBytes == 0 || a.StoredBytes == 0 || a.HighBytes <= a.LowBytes {
			t.Errorf("full %v: %+v, %v", full, a, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, []string{f.dir}, f.options(Options{})); !errors.Is(err, context.Canceled) {
		t.Errorf("nothing was read: %v", err)
	}
}

// TestOneFile: of a file that takes long it is told how far it is, and no answer before there is one.
func TestOneFile(t *testing.T) {
	f := newFolder(t)
	p := make([]byte, 32<<20)
	for i := range p {
		p[i] = byte(i * i >> 7)
	}
	f.write("x", p)
	var told []int64
	f.estimate(Options{Full: true, Now: ticking(), Progress: func(p control.Progress, a *Answer) {
		if p == (control.Progress{Phase: "looking at names"}) && a == nil {
			return
		}
		if p.TotalBytes != 32<<20 || p.DoneBytes > p.TotalBytes || len(told) == 0 && a != nil {
			t.Errorf("%+v, answer %+v", p, a)
		}
		told = append(told, p.DoneBytes)
	}})
	if len(told) < 5 || !slices.IsSorted(told) {
		t.Errorf("told %d", told)
	}
}

// TestFirstStands: while everything is read, what is told is the samples' answer.
func TestFirstStands(t *testing.T) {
	f := newFolder(t)
	f.family(4, 256)
	var first *Answer // the last that is told of samples
	whole := 0
	tell := func(p control.Progress, a *Answer) {
		if a == nil {
			return
		}
		if p.TotalBytes < a.Bytes {
			first = a
			return
		}
		whole++
		if a.StoredBytes != first.StoredBytes || a.LowBytes != first.LowBytes || a.HighBytes != first.HighBytes {
			t.Errorf("%d to %d was told after %d to %d", a.LowBytes, a.HighBytes, first.LowBytes,
				first.HighBytes)
		}
	}
	f.estimate(Options{Full: true, shell: 3 << 19, Now: ticking(), Progress: tell})
	if first == nil || whole == 0 {
		t.Fatalf("told of samples: %v, and %d times of everything", first, whole)
	}
}

// TestChanged: a base whose file changed after it was read is gone, and nothing is stored against it.
func TestChanged(t *testing.T) {
	f := newFolder(t)
	base := newModel(1, 1, 256)
	path := f.write("base.safetensors", base.file(t, "BF16"))
	f.write("tuned.safetensors", base.tuned(1, 1e-3).file(t, "BF16"))
	other := newModel(2, 1, 256).file(t, "BF16")
	o := f.options(Options{Now: ticking(), Progress: func(control.Progress, *Answer) {
		if err := os.WriteFile(path, other, 0o644); err != nil {
			t.Error(err)
		}
	}})
	a, err := Run(t.Context(), []string{f.dir}, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Groups) != 0 || a.Files != 2 || a.Changed != 0 {
		t.Errorf("%+v", a)
	}
}

// TestHeads: where most of a folder is what has to be parsed for each shell, everything is read at once.
func TestHeads(t *testing.T) {
	f := newFolder(t)
	for i := range 8 {
		f.write(fmt.Sprintf("%c/model.safetensors", 'a'+i), newModel(uint64(i), 200, 4).file(t, "F32"))
	}
	a := f.estimate(Options{shell: 16 << 10, Within: 0.5})
	if !a.Complete || a.ReadBytes != a.Bytes {
		t.Errorf("%d of %d bytes read", a.ReadBytes, a.Bytes)
	}
}

// TestKnown: manifests are kept in so much memory, the last one in any case.
func TestKnown(t *testing.T) {
	k := newKnown(1000)
	for i := range 5 {
		k.add(cas.Hash{byte(i)}, &manifest.Manifest{Tensors: make([]formats.Tensor, 3)})
	}
	if k.last.Len() != 2 || k.bytes != 2*3*160 {
		t.Errorf("%d manifests, %d bytes", k.last.Len(), k.bytes)
	}
	k.add(cas.Hash{9}, &manifest.Manifest{Tensors: make([]formats.Tensor, 300)})
	if k.last.Len() != 1 || !k.last.Contains(cas.Hash{9}) {
		t.Errorf("%d manifests", k.last.Len())
	}
}
