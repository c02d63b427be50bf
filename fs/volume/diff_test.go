package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"runtime/metrics"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
)

// typed is a safetensors file.
func typed(t testing.TB, entries []safetensors.Entry, data ...[]byte) []byte {
	t.Helper()
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range data {
		p = append(p, d...)
	}
	return p
}

func f32s(n int, f func(i int) float32) (p []byte) {
	for i := range n {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(f(i)))
	}
	return p
}

func (r *rig) diff(a, b string) *control.Diff {
	r.t.Helper()
	d, err := r.Diff(context.Background(), control.DiffOptions{A: a, B: b}, nil, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func TestDiff(t *testing.T) {
	const n = 100_000
	one := func(i int) float32 { return float32(i%7) + 1 }
	entry := func(name string, shape ...int64) safetensors.Entry {
		return safetensors.Entry{Name: name, DType: formats.F32, Shape: shape}
	}
	r := newRig(t)
	r.mkdir("runs/a/1")
	r.mkdir("runs/a/2")
	base := f32s(n, one)
	changed := f32s(n, func(i int) float32 {
		if i%100 == 0 {
			return one(i) - 0.5
		}
		return one(i)
	})
	special := f32s(1000, one)
	broken := append([]byte(nil), special...)
	binary.LittleEndian.PutUint32(broken[400:], math.Float32bits(float32(math.Inf(1))))
	r.write("runs/a/1/m.safetensors",
		typed(t, []safetensors.Entry{entry("a.frozen", n), entry("b.changed", 100, n/100),
			entry("c.shaped", n), entry("d.gone", 1000), entry("e.special", 1000)},
			base, base, base, special, special))
	r.write("runs/a/2/m.safetensors",
		typed(t, []safetensors.Entry{entry("a.frozen", n), entry("b.changed", 100, n/100),
			entry("c.shaped", 10, n/10), entry("d.new", 1000), entry("e.special", 1000)},
			base, changed, base, special, broken))
	r.write("runs/a/1/metrics.json", []byte("{}"))
	r.write("runs/a/2/metrics.json", []byte(`{"loss": 1}`))
	r.write("runs/a/1/same.txt", []byte("x"))
	r.write("runs/a/2/same.txt", []byte("x"))
	r.write("runs/a/2/extra.txt", []byte("x"))

	check := func(when string, packed bool) {
		t.Helper()
		d := r.diff("runs/a/1", "runs/a/2")
		if d.Equal != 1 || d.EqualBytes != 4*n || len(d.Changed) != 2 || len(d.Reshaped) != 1 ||
			len(d.Added) != 1 || len(d.Removed) != 1 || len(d.Files) != 1 {
			t.Fatalf("%s: %+v", when, d)
		}
		c := d.Changed[0]
		norm := 0.0
		for i := range n {
			norm += float64(one(i)) * float64(one(i))
		}
		if c.Name != "b.changed" || c.Elements != n || c.ChangedElements != n/100 || *c.MaxAbs != 0.5 ||
			c.Share != 0.01 ||
			math.Abs(float64(*c.RelNorm)-math.Sqrt(0.25*n/100/norm)) > 1e-9 {
			t.Errorf("%s: %+v", when, c)
		}
		if c = d.Changed[1]; c.Name != "e.special" || c.ChangedElements != 1 || c.Special != 1 ||
			*c.RelNorm != 0 {
			t.Errorf("%s: %+v", when, c)
		}
		if d.Reshaped[0].Name != "c.shaped" || d.Reshaped[0].SameBytes != packed ||
			d.Added[0].Name != "d.new" || d.Removed[0].Name != "d.gone" {
			t.Errorf("%s: %+v", when, d)
		}
		if want := int64(2*4*n + 2*4000); packed && d.ReadBytes != want ||
			!packed && d.ReadBytes != want+2*4*n {
			t.Errorf("%s: %d bytes were read", when, d.ReadBytes)
		}
		var others []string
		for _, o := range d.Others {
			others = append(others, o.Path+" "+o.What)
		}
		if strings.Join(others, ", ") != "metrics.json changed, extra.txt added" {
			t.Errorf("%s: %q", when, others)
		}
	}
	check("written", false)
	r.sync()
	check("packed", true)
	r.evictAll()
	check("hollow", true)
	if d := r.diff("runs/a/1/m.safetensors", "runs/a"); d.B != "runs/a/2" || len(d.Changed) != 2 {
		t.Errorf("%+v", d)
	}
	if d := r.diff("runs/a/1", "runs/a/1"); d.Equal != 5 || d.ReadBytes != 0 ||
		len(d.Changed)+len(d.Reshaped)+len(d.Added)+len(d.Removed)+len(d.Others) != 0 {
		t.Errorf("%+v", d)
	}
	for _, p := range []string{"none", "runs/none", "runs/a/1/none"} {
		if _, err := r.Diff(context.Background(), control.DiffOptions{A: "runs/a/1", B: p}, nil,
			nil); err == nil ||
			!strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", p, err)
		}
	}

	// Who holds it, by likeness and by hash.
	f, err := r.Find(context.Background(), control.FindOptions{Path: "runs/a/1/m.safetensors", Tensor: "a.frozen"})
	if err != nil || len(f.Tensors) != 5 || len(f.Hash) != 64 {
		t.Fatalf("%+v, %v", f, err)
	}
	g, err := r.Find(context.Background(), control.FindOptions{Hash: strings.ToUpper(f.Hash[:10])})
	if err != nil || len(g.Tensors) != 5 || g.Tensors[4].Name != "c.shaped" || g.Tensors[4].Hash != f.Hash {
		t.Errorf("%+v, %v", g, err)
	}
	for _, o := range []control.FindOptions{{Hash: "abc"}, {Hash: "zzzzzzzzzz"}, {Path: "none", Tensor: "x"},
		{Path: "runs/a/1/m.safetensors", Tensor: "x"},
		{Path: "runs/a/1/metrics.json", Tensor: "x"}, {Path: "runs/a", Tensor: "x"}} {
		if f, err := r.Find(context.Background(), o); err == nil {
			t.Errorf("%+v: %+v", o, f)
		}
	}
}

// What torch saved is compared with its own view, strides and all, and with the file of another type.
func TestDiffAcrossFormats(t *testing.T) {
	for _, name := range []string{"flat.pt", "views.pt", "unicode.pt", "dtypes.pt"} {
		r := newRig(t)
		r.mkdir("runs/a/1")
		r.write("runs/a/1/m.pt", fixture(t, name))
		if !r.exists("runs/a/1/m.safetensors") {
			continue
		}
		r.mkdir("runs/b/1")
		r.write("runs/b/1/other.safetensors", r.read("runs/a/1/m.safetensors"))
		for range 2 {
			for _, b := range []string{"runs/a/1/m.safetensors", "runs/b/1", "runs/b/1/other.safetensors"} {
				d := r.diff("runs/a/1", b)
				if len(d.Changed)+len(d.Reshaped)+len(d.Added)+len(d.Removed) != 0 || d.Equal == 0 {
					t.Errorf("%s, %s: %+v", name, b, d)
				}
			}
			r.sync()
			r.evictAll()
		}
	}
	r := newRig(t)
	half := []byte{0, 0x3c, 0, 0xc0} // 1, -2
	r.write("a.safetensors",
		typed(t, []safetensors.Entry{{Name: "w", DType: formats.F16, Shape: []int64{2}}}, half))
	r.write("b.safetensors", typed(t, []safetensors.Entry{{Name: "w", DType: formats.F32, Shape: []int64{2}}},
		f32s(2, func(i int) float32 { return float32(1 - 3*i) })))
	if d := r.diff("a.safetensors", "b.safetensors"); len(d.Changed) != 1 ||
		d.Changed[0].ChangedElements != 0 || d.Changed[0].DTypeA != "F16" || d.Changed[0].DType != "F32" {
		t.Errorf("%+v", d)
	}
}

// The links follow the metrics.
func TestBestLinks(t *testing.T) {
	r := newRig(t)
	for _, s := range []string{"1", "2"} {
		r.mkdir("runs/a/" + s)
		r.write("runs/a/"+s+"/metrics.json", []byte(`{"val": {"loss": `+s+`}, "bad": NaN}`))
	}
	r.mkdir("runs/empty")
	const best = ".ckptfs/best"
	link := func(p string) string {
		t.Helper()
		n, _, err := r.lookup(best + p)
		if err != nil {
			return err.Error()
		}
		defer r.forget(n)
		to, err := r.Readlink(n)
		if err != nil {
			return err.Error()
		}
		return to
	}
	if got := r.listing(best); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if got := r.listing(best + "/a"); strings.Join(got, " ") != "val%2Floss.min val%2Floss.max" {
		t.Errorf("%q", got)
	}
	n := r.find(best + "/a/val%2Floss.min")
	if to, err := r.Readlink(n); to != "../../../runs/a/1" || err != nil {
		t.Errorf("%q, %v", to, err)
	}
	if got := link("/a/val%2Floss.max"); got != "../../../runs/a/2" {
		t.Errorf("%q", got)
	}
	r.write("runs/a/1/metrics.json", []byte(`{"val": {"loss": 3}}`))
	if to, err := r.Readlink(n); to != "../../../runs/a/2" || err != nil {
		t.Errorf("%q, %v", to, err)
	}
	r.forget(n)
	for _, p := range []string{"/b", "/a/bad.min", "/a/val%2Floss", "/a/val%2Floss.best", "/a/val/loss.min", "/empty/x.min", "/a/..min"} {
		if n, _, err := r.lookup(best + p); err != unix.ENOENT && err != unix.ENOTDIR {
			t.Errorf("%s: %v, %v", p, n, err)
		}
	}
	if got := r.listing(best + "/empty"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// TestDiffInParts: of very many tensors that differ the daemon holds few at a time, and tells of each once.
func TestDiffInParts(t *testing.T) {
	const n = 9000
	r := newRig(t)
	file := func(from, to int, x float32) []byte {
		var entries []safetensors.Entry
		for i := from; i < to; i++ {
			entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("t%05d", i), DType: formats.F32,
				Shape: []int64{1}})
		}
		return typed(t, entries, f32s(to-from, func(i int) float32 { return x + float32(from+i) }))
	}
	r.mkdir("d")
	r.write("d/a.safetensors", file(0, n, 0))
	r.write("d/b.safetensors", file(n/2, n/2+n, 0.5))
	whole := r.diff("d/a.safetensors", "d/b.safetensors")
	if len(whole.Changed) != n/2 || len(whole.Added) != n/2 || len(whole.Removed) != n/2 {
		t.Fatalf("%d changed, %d added, %d removed", len(whole.Changed), len(whole.Added), len(whole.Removed))
	}
	all, most := control.NoTensors(), 0
	add := func(l control.TensorLists) error {
		most = max(most, len(l.Changed)+len(l.Added)+len(l.Removed))
		all.Changed, all.Added = append(all.Changed, l.Changed...), append(all.Added, l.Added...)
		all.Removed = append(all.Removed, l.Removed...)
		return nil
	}
	both := control.DiffOptions{A: "d/a.safetensors", B: "d/b.safetensors"}
	d, err := r.Diff(context.Background(), both, add, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = add(d.TensorLists)
	if d.TensorLists = all; most > 5000 || !reflect.DeepEqual(d, whole) {
		t.Errorf("%d at once; %d changed, %d added, %d removed", most, len(d.Changed), len(d.Added),
			len(d.Removed))
	}
	gone := errors.New("gone")
	if _, err := r.Diff(context.Background(), both,
		func(control.TensorLists) error { return gone }, nil); err != gone {
		t.Errorf("%v, want gone", err)
	}
}

// TestDiffOfBytes: large files without tensors are not read as a whole.
func TestDiffOfBytes(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	const size = 32 << 20
	p := random(size, 1)
	for _, dir := range []string{"a", "b", "same"} {
		r.mkdir(dir)
	}
	r.write("a/x", p)
	r.write("same/x", p)
	p[size-1]++
	r.write("b/x", p)
	allocated := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	for name, others := range map[string]int{"same/x": 0, "b/x": 1} {
		before := allocated()
		d := r.diff("a/x", name)
		if took := allocated() - before; took > size/2 {
			t.Errorf("%s: %d MiB were allocated", name, took>>20)
		}
		if len(d.Others) != others {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Folders of symbolic links, such as snapshots of the Hugging Face cache, are compared by the files that the
// links lead to, under the names of the links.
func TestDiffFollowsLinks(t *testing.T) {
	r := newRig(t)
	for i, model := range []string{"a", "b"} {
		entries := []safetensors.Entry{{Name: "w", DType: formats.F32, Shape: []int64{1 << 15}}}
		r.mkdir(model)
		r.mkdir(model + "/blobs")
		r.mkdir(model + "/snap")
		data := f32s(1<<15, func(int) float32 { return float32(i) })
		r.write(model+"/blobs/x"+model, typed(t, entries, data))
		r.symlink("../blobs/x"+model, model+"/snap/m.safetensors")
	}
	r.sync()
	d := r.diff("a/snap", "b/snap")
	want := []control.FilePair{{A: "a/snap/m.safetensors", B: "b/snap/m.safetensors"}}
	if len(d.Changed) != 1 || !reflect.DeepEqual(d.Files, want) {
		t.Errorf("%d changed in %+v", len(d.Changed), d.Files)
	}
	r.mkdir("c")
	r.symlink("../../outside", "c/out")
	r.symlink("round", "c/round")
	r.symlink("../a", "c/folder")
	_, err := r.Diff(t.Context(), control.DiffOptions{A: "a/snap", B: "c"}, nil, nil)
	var told *control.Error
	if !errors.As(err, &told) || told.Code != control.CodeInvalid || !strings.Contains(err.Error(), "links") {
		t.Errorf("links that lead nowhere: %v", err)
	}
}

// show of a folder is that of its only checkpoint, and so is one of its tensors. Of more it names them.
func TestShowTheOnlyCheckpoint(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a/1")
	entries := []safetensors.Entry{{Name: "w", DType: formats.F32, Shape: []int64{1 << 15}}}
	data := typed(t, entries, f32s(1<<15, func(i int) float32 { return float32(i) }))
	show := func(p string) (*control.File, error) { return r.Show(t.Context(), p, nil) }
	if _, err := show("runs/a/1"); err == nil || !strings.Contains(err.Error(), "without a checkpoint") {
		t.Errorf("an empty step: %v", err)
	}
	r.write("runs/a/1/m.safetensors", data)
	r.write("runs/a/1/metrics.json", []byte(`{"loss": 1}`))
	if f, err := show("runs/a/1"); err != nil || f.Path != "runs/a/1/m.safetensors" || len(f.Tensors) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if d, err := r.Tensor(t.Context(), "runs/a/1", "w", false); err != nil || d.Size != 4<<15 {
		t.Errorf("%+v, %v", d, err)
	} else {
		d.Close()
	}
	r.write("runs/a/1/n.safetensors", data)
	if _, err := show("runs/a/1"); err == nil || !strings.Contains(err.Error(), "m.safetensors, n.safetensors") {
		t.Errorf("two checkpoints: %v", err)
	}
	if _, err := show("runs/a"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a run: %v", err)
	}
}

func (r *rig) symlink(target, p string) {
	r.t.Helper()
	dir, name := path.Split(p)
	parent, err := r.resolve(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	defer parent.Unpin()
	n, _, err := r.Symlink(parent, name, target, r.me)
	if err != nil {
		r.t.Fatal(err)
	}
	n.Unpin()
}

// A sample reads part of a tensor that differs, and says what that tells of all of it.
func TestDiffOfSample(t *testing.T) {
	const n = 1 << 20
	r := newRig(t)
	entry := []safetensors.Entry{{Name: "w", DType: formats.F32, Shape: []int64{n}}}
	one := func(i int) float32 { return float32(i%7) + 1 }
	r.write("a.safetensors", typed(t, entry, f32s(n, one)))
	r.write("b.safetensors", typed(t, entry, f32s(n, func(i int) float32 { return one(i) * 1.01 })))
	r.sync()
	whole := r.diff("a.safetensors", "b.safetensors")
	o := control.DiffOptions{A: "a.safetensors", B: "b.safetensors", Sample: 1 << 20}
	some, err := r.Diff(t.Context(), o, nil, nil)
	if err != nil || len(whole.Changed) != 1 || len(some.Changed) != 1 {
		t.Fatalf("%+v, %+v, %v", whole, some, err)
	}
	if some.ReadBytes > 3<<20 || whole.ReadBytes != 2*4*n {
		t.Errorf("%d bytes were read, and %d", some.ReadBytes, whole.ReadBytes)
	}
	all, c := &whole.Changed[0], &some.Changed[0]
	near := func(a, b *control.Number) bool {
		return math.Abs(float64(*a)/float64(*b)-1) < 0.01
	}
	if all.Sampled != 0 || c.Sampled*4 > 1<<20 || c.Elements != n || c.Share != 1 ||
		!near(c.RelNorm, all.RelNorm) || !near(c.Norm, all.Norm) {
		t.Errorf("%+v, of all %+v", c, all)
	}
}
