package volume

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/formats/npy"
	"ckptfs/fs/view"
)

// npyBytes is what the .npy file of a tensor must hold.
func npyBytes(t testing.TB, src []byte, name string) []byte {
	t.Helper()
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Tensors {
		x := &l.Tensors[i]
		if x.Name != name {
			continue
		}
		p, err := npy.AppendHeader(nil, x)
		if err != nil || len(p)%64 != 0 {
			t.Fatalf("header of %d bytes, %v", len(p), err)
		}
		return append(p, elements(src, l, x)...)
	}
	t.Fatalf("no tensor %q", name)
	return nil
}

// elements is a tensor's elements, row-major.
func elements(src []byte, l *formats.Layout, x *formats.Tensor) []byte {
	var out []byte
	width := int64(x.DType.Bits() / 8)
	index := make([]int64, len(x.Shape))
	stride := x.Stride
	if stride == nil {
		stride = make([]int64, len(x.Shape))
		n := int64(1)
		for i := len(stride) - 1; i >= 0; i-- {
			stride[i] = n
			n *= x.Shape[i]
		}
	}
	for range x.NumElements() {
		at := l.Regions[x.Region].Off + x.Offset
		for i, k := range index {
			at += k * stride[i] * width
		}
		out = append(out, src[at:at+width]...)
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < x.Shape[i] {
				break
			}
			index[i] = 0
		}
	}
	return out
}

func TestTensors(t *testing.T) {
	for _, name := range []string{"torch/flat.pt", "torch/views.pt", "torch/unicode.pt", "numpy/several.npz", "numpy/fortran.npy", "same/model.safetensors",
		"hdf5/model.keras", "sklearn/arrays.joblib", "torch/empty_and_scalar.pt"} {
		if _, err := os.Stat("../../formats/testdata/" + name); err != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			src := sample(t, name)
			l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
			if err != nil || len(l.Tensors) == 0 {
				t.Fatal(err, len(l.Tensors))
			}
			r.mkdir("a")
			p := "a/x" + filepath.Ext(name)
			check := func() {
				t.Helper()
				var want []string
				for i := range l.Tensors {
					x := &l.Tensors[i]
					file := view.TensorFile(x.Name)
					want = append(want, file)
					r.same(tensors+p+"/"+file, npyBytes(t, src, x.Name))
				}
				got := r.listing(tensors + p)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("names %q, want %q", got, want)
				}
			}
			r.withoutPacking()
			r.write(p, src)
			check()
			r = r.reopen()
			r.bring(p, both)
			check()
			r.bring(p, packed)
			check()
			r.onlyRoot()
		})
	}
}

// A tensor's file belongs to one generation of its file's bytes, and reads on when that is evicted, hydrated
// or unlinked.
func TestTensorFollowsItsFile(t *testing.T) {
	r := newRig(t)
	src := fixture(t, "flat.pt")
	r.write("m.pt", src)
	r.pack("m.pt")
	l, _ := detect.Detect(bytes.NewReader(src), int64(len(src)))
	name := l.Tensors[0].Name
	p := tensors + "m.pt/" + name + ".npy"
	want := npyBytes(t, src, name)
	h := r.open(p, unix.O_RDONLY)
	check := func(when string) {
		t.Helper()
		got, err := r.readHandle(h)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		r.equal(when, got, want)
	}
	check("resident")
	r.evictAll()
	check("evicted")
	r.hydrateAll()
	check("hydrated")
	w := r.open("m.pt", unix.O_WRONLY|unix.O_TRUNC)
	if r.exists(p) {
		t.Error("a tensor of a file that is being written")
	}
	_, err := h.Read(make([]byte, 10), 0)
	wantErr(t, "a read of old bytes", err, unix.ESTALE)
	r.writeAt(w, src, 0)
	r.release(w)
	r.same(p, want)
	r.release(h)
	h = r.open(p, unix.O_RDONLY)
	r.unlink("m.pt")
	check("unlinked")
	r.release(h)
	r.onlyRoot()
}

// A mapping that outlived its descriptor writes without an event. Until it is gone there is nothing whose
// pages the kernel could keep.
func TestTensorOfMapped(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs")
	src := fixture(t, "flat.pt")
	h := r.open("runs/m.pt", unix.O_RDWR|unix.O_CREAT)
	r.writeAt(h, src, 0)
	fd, err := unix.Open(r.rawPath("runs/m.pt"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(fd, 0, len(src), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	r.release(h)
	l, _ := detect.Detect(bytes.NewReader(src), int64(len(src)))
	x := &l.Tensors[0]
	of := tensors + "runs/m.pt/" + view.TensorFile(x.Name)
	for _, p := range []string{of, "runs/m.safetensors"} {
		if r.exists(p) {
			t.Errorf("%s is there while the file may change", p)
		}
	}
	at := l.Regions[x.Region].Off + x.Offset
	copy(m[at:], "four")
	copy(src[at:], "four")
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	r.same(of, npyBytes(t, src, x.Name))
	r.same("runs/m.safetensors", viewBytes(t, src))
}

// A read of one tensor needs its own chunks, and nothing is read ahead beyond them.
func TestTensorAlone(t *testing.T) {
	r := newRig(t)
	const n = 4 << 20
	a, b, c := random(n, 1), random(n, 2), random(n, 3)
	r.write("m.safetensors", weights(t, []string{"a", "b", "c"}, a, b, c))
	r.packOut("m.safetensors")
	before := r.asm.Stats()
	head, err := npy.AppendHeader(nil, &formats.Tensor{DType: formats.U8, Shape: []int64{n}})
	if err != nil {
		t.Fatal(err)
	}
	r.same(tensors+"m.safetensors/b.npy", append(head, b...))
	// of 3n; read ahead may fetch what was just let go
	if got := r.asm.Stats().FetchedBytes - before.FetchedBytes; got > 2*n {
		t.Errorf("%d bytes fetched for a tensor of %d", got, n)
	}
}

func TestTensorFile(t *testing.T) {
	long := strings.Repeat("ä", 300)
	for name, want := range map[string]string{
		"": ".npy", "a.b": "a.b.npy", "a/b": "a%2Fb.npy", "100%": "100%25.npy", "größe": "größe.npy",
		"a\x00\n\x7f": "a%00%0A%7F.npy", "\xff": "%FF.npy",
		".": "..npy", "..": "...npy", strings.Repeat("x", 251): strings.Repeat("x", 251) + ".npy",
	} {
		if got := view.TensorFile(name); got != want {
			t.Errorf("%q is called %q, want %q", name, got, want)
		}
	}
	seen := map[string]bool{}
	for _, name := range []string{long, long + "x", strings.Repeat("x", 252), strings.Repeat("%", 100),
		strings.Repeat("x", 199) + strings.Repeat("%", 99), "y" + strings.Repeat("%", 99)} {
		got := view.TensorFile(name)
		if len(got) > 255 || !strings.Contains(got, "%~") || seen[got] ||
			strings.ToValidUTF8(got, "?") != got {
			t.Errorf("%q is called %q", name, got)
		}
		seen[got] = true
	}
}
