package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"strings"
	"testing"

	"ckptfs/formats/detect"
	"ckptfs/formats/numbers"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/inspect"
)

// TestTensorStats: the numbers are those of the elements, whatever the format, the state and the strides.
func TestTensorStats(t *testing.T) {
	for _, name := range []string{"torch/views.pt", "torch/dtypes.pt", "numpy/fortran.npy", "numpy/complex128.npy", "gguf/quantised.gguf", "same/model.npz", "onnx/types.onnx", "hdf5/types.h5"} {
		src := sample(t, name)
		l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t)
		r.write("m", src)
		for _, state := range []string{both, packed} {
			r.bring("m", state)
			f, err := r.Inspect(t.Context(), "m", control.InspectOptions{Stats: true}, nil, nil)
			if err != nil || len(f.Tensors) != len(l.Tensors) {
				t.Fatalf("%s: %d tensors, want %d, %v", name, len(f.Tensors), len(l.Tensors), err)
			}
			byName := map[string]*control.TensorStats{}
			for i := range f.Tensors {
				byName[f.Tensors[i].Name] = f.Tensors[i].Stats
			}
			for i := range l.Tensors {
				x := &l.Tensors[i]
				got := byName[x.Name]
				if !numbers.Known(x.DType) {
					if got != nil {
						t.Errorf("%s: %s has numbers", name, x.Name)
					}
					continue
				}
				s := numbers.NewSummary()
				s.Add(x.DType, elements(src, l, x))
				want := inspect.StatsOf(s)
				same := got != nil && got.Count == want.Count && got.NaN == want.NaN && got.Inf == want.Inf &&
					got.Zero == want.Zero &&
					got.Min.String() == want.Min.String() && got.Max.String() == want.Max.String() &&
					(math.Abs(float64(got.Mean-want.Mean)) < 1e-9 || got.Mean.String() == want.Mean.String())
				if !same {
					t.Errorf("%s %s: %+v, want %+v", name, x.Name, got, want)
				}
			}
		}
		r.onlyRoot()
	}
}

// A tensor of many pieces, with progress; and one that is damaged.
func TestTensorStatsLarge(t *testing.T) {
	const n = 3*inspect.StatsPiece/4 + 100
	p := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(float32(i%1000)))
	}
	r := newRig(t)
	r.write("m.safetensors", floats(t, "w", p))
	r.packOut("m.safetensors")
	var last control.Progress
	f, err := r.Inspect(t.Context(), "m.safetensors", control.InspectOptions{Stats: true}, nil,
		func(p control.Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	if s := f.Tensors[0].Stats; s.Count != n || s.Min != 0 || s.Max != 999 || s.NaN != 0 {
		t.Errorf("%+v", s)
	}
	if last.DoneBytes != 4*n || last.TotalBytes != 4*n {
		t.Errorf("%+v", last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Inspect(ctx, "m.safetensors", control.InspectOptions{Stats: true}, nil, nil)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.onlyRoot()
}

// floats is a safetensors file of one F32 tensor.
func floats(t testing.TB, name string, p []byte) []byte {
	t.Helper()
	head, err := safetensors.AppendHeader(nil,
		[]safetensors.Entry{{Name: name, DType: "F32", Shape: []int64{int64(len(p) / 4)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(head, p...)
}

func TestTensor(t *testing.T) {
	r := newRig(t)
	src := sample(t, "torch/views.pt")
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	r.mkdir("runs/a")
	r.write("runs/a/m.pt", src)
	r.packOut("runs/a/m.pt")
	for i := range l.Tensors {
		x := &l.Tensors[i]
		for _, p := range []string{"runs/a/m.pt", "runs/a/m.safetensors"} {
			for _, npy := range []bool{false, true} {
				d, err := r.Tensor(t.Context(), p, x.Name, npy)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(d)
				d.Close()
				want := elements(src, l, x)
				if npy {
					want = npyBytes(t, src, x.Name)
				}
				if err != nil || !bytes.Equal(got, want) || d.Size != int64(len(want)) {
					t.Errorf("%s: %d bytes, stated %d, want %d, %v", x.Name, len(got), d.Size, len(want), err)
				}
			}
		}
	}
	for _, c := range [][2]string{{"runs/a/m.pt", "no"}, {"runs/a/no", "x"}} {
		if _, err := r.Tensor(t.Context(), c[0], c[1], false); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := r.Tensor(t.Context(), "runs", "x", false); err == nil {
		t.Error("a folder has tensors")
	}
	// It is read on though the file goes.
	d, err := r.Tensor(t.Context(), "runs/a/m.pt", l.Tensors[0].Name, false)
	if err != nil {
		t.Fatal(err)
	}
	r.unlink("runs/a/m.pt")
	if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, elements(src, l, &l.Tensors[0])) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	d.Close()
	r.onlyRoot()
}

// Show of a tensor's own file is that tensor, and of a view what is in it.
func TestShowVirtual(t *testing.T) {
	r := newRig(t)
	r.write("m.npz", sample(t, "numpy/several.npz"))
	f, err := r.Show(t.Context(), tensors+"m.npz/b.npy", nil)
	if err != nil || f.Format != "npy" || len(f.Tensors) != 1 || f.Tensors[0].Name != "b" {
		t.Errorf("%+v, %v", f, err)
	}
	_, err = r.Show(t.Context(), tensors+"m.npz", nil)
	if err == nil || !strings.Contains(err.Error(), "without a checkpoint") {
		t.Error(err)
	}
}

// cat is the elements of a tensor, as cat-tensor has them.
func (r *rig) cat(p, name string) []byte {
	r.t.Helper()
	d, err := r.Tensor(context.Background(), p, name, false)
	if err != nil {
		r.t.Fatal(err)
	}
	defer d.Close()
	got, err := io.ReadAll(d)
	if err != nil || int64(len(got)) != d.Size {
		r.t.Fatalf("%s: %s: %d bytes of %d, %v", p, name, len(got), d.Size, err)
	}
	return got
}
