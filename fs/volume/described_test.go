package volume

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listing of a file's tensors.
func (r *rig) tensorsOf(p string) (names []string) {
	r.t.Helper()
	f, err := r.Show(r.test.Context(), p, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range f.Tensors {
		names = append(names, x.Name)
	}
	return names
}

// A shard of TensorFlow's is laid out by the index that is written after it.
func TestDescribed(t *testing.T) {
	r := newRig(t)
	const data, index = "ck.data-00000-of-00001", "ck.index"
	src := append(sample(t, "tensorflow/one.data-00000-of-00001"), random(200<<10, 1)...)
	r.write(data, src)
	r.sync()
	r.want(data, resident) // waits for the index
	if got := r.tensorsOf(data); got != nil {
		t.Errorf("without index: %q", got)
	}
	r.write(index, sample(t, "tensorflow/one.index")[:100])
	r.sync()
	r.want(data, resident) // a part of it is none
	r.write(index, sample(t, "tensorflow/one.index"))
	want := len(r.tensorsOf(data))
	if want < 7 {
		t.Errorf("%d tensors", want)
	}
	r.pack(data)
	r.evictAll()
	if got := r.tensorsOf(data); len(got) != want {
		t.Errorf("packed: %q", got)
	}
	r.same(data, src)
	r.same(tensors+data+"/scalar%2F.ATTRIBUTES%2FVARIABLE_VALUE.npy", npyBytes(t, sample(t, "numpy/scalar.npy"), "arr_0"))
	r.onlyRoot()
}

// One whose index does not come is packed all the same.
func TestDescribedByNothing(t *testing.T) {
	var later atomic.Int64
	r := newRig(t,
		func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) } })
	src := random(200<<10, 1)
	for _, p := range []string{"ck.data-00000-of-00001", "m.onnx.data"} {
		r.write(p, src)
	}
	later.Store(int64(time.Minute)) // longer than anything waits for its description
	for _, p := range []string{"ck.data-00000-of-00001", "m.onnx.data"} {
		r.pack(p)
		r.same(p, src)
	}
}

// ONNX's external data, by the model; not by one of another owner, by a pipe, or by itself.
func TestExternalData(t *testing.T) {
	r := newRig(t)
	src := append(sample(t, "onnx/external.bin"), random(200<<10, 1)...)
	r.write("external.bin", src)
	h := r.open("external.bin", unix.O_RDWR) // what is written is not packed
	if err := unix.Mkfifo(r.at("tree", "external.onnx"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.tensorsOf("external.bin"); got != nil {
		t.Errorf("by a pipe: %q", got)
	}
	if err := unix.Unlink(r.at("tree", "external.onnx")); err != nil {
		t.Fatal(err)
	}
	r.link("external.bin", "external.onnx")
	if got := r.tensorsOf("external.bin"); got != nil {
		t.Errorf("by itself: %q", got)
	}
	r.unlink("external.onnx")
	r.write("external.onnx", sample(t, "onnx/external.onnx"))
	if got := r.tensorsOf("external.bin"); len(got) != 1 || got[0] != "w" {
		t.Errorf("tensors %q", got)
	}
	if unix.Geteuid() == 0 {
		if err := unix.Chown(r.at("tree", "external.onnx"), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if got := r.tensorsOf("external.bin"); got != nil {
			t.Errorf("by another's: %q", got)
		}
		if err := unix.Chown(r.at("tree", "external.onnx"), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	h.Release()
	r.write("external.bin", src)
	r.packOut("external.bin")
	r.same("external.bin", src)
	if got := r.tensorsOf("external.bin"); len(got) != 1 {
		t.Errorf("packed: %q", got)
	}
}
