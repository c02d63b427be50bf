package volume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/formats/zarr"
	"ckptfs/fs/control"
)

// A step that Orbax wrote, and its items, list their arrays: resident, packed and evicted.
func TestShowOrbax(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"ocdbt", "zarr3", "loose"} {
		r.folder("runs/"+name, "orbax/"+name)
	}
	check := func(when string) {
		t.Helper()
		for _, name := range []string{"ocdbt", "zarr3", "loose"} {
			for p, prefix := range map[string]string{"runs/" + name: "state/",
				"runs/" + name + "/state": ""} {
				f, err := r.Show(t.Context(), p, nil)
				if err != nil || f.Format != "orbax" || len(f.Tensors) != 6 || f.Size < 3000 {
					t.Errorf("%s, %s: %+v, %v", when, p, f, err)
					continue
				}
				if x := f.Tensors[4]; x.Name != prefix+"params/layer.0/kernel" || x.DType != "BF16" || x.Bytes != 20*30*2 {
					t.Errorf("%s, %s: %+v", when, p, x)
				}
			}
		}
	}
	check("resident")
	r.sync()
	r.evictAll()
	check("packed")
	_, err := r.Show(t.Context(), "runs", nil)
	if err == nil || !strings.Contains(err.Error(), "without a checkpoint") {
		t.Errorf("a folder of something else: %v", err)
	}
	r.write("runs/ocdbt/state/manifest.ocdbt", []byte("nothing"))
	_, err = r.Show(t.Context(), "runs/ocdbt", nil)
	wantErr(t, "a damaged database", err, formats.ErrNotFormat)
	r.unlink("runs/ocdbt/state/manifest.ocdbt")
	if _, err = r.Show(t.Context(), "runs/ocdbt/state", nil); !errors.Is(err, formats.ErrNotFormat) ||
		errors.Is(err, unix.ENOENT) {
		t.Errorf("without its database: %v", err)
	}
	r.onlyRoot()
}

// The arrays of two steps of Orbax are compared as they are stored, with and without hashes.
func TestDiffOrbax(t *testing.T) {
	for _, name := range []string{"ocdbt", "zarr3", "loose"} {
		r := newRig(t)
		for step, from := range map[string]string{"1": name, "2": name, "3": name + "-next"} {
			r.mkdir("runs/a/" + step)
			r.folder("runs/a/"+step+"/state", "orbax/"+from+"/state")
		}
		for _, state := range []string{resident, packed} {
			if state == packed {
				r.sync()
				r.evictAll()
			}
			if d := r.diff("runs/a/1", "runs/a/2"); d.Equal != 6 ||
				len(d.Changed)+len(d.Added)+len(d.Removed)+len(d.Reshaped)+len(d.Others) != 0 {
				t.Errorf("%s, %s: %+v", name, state, d)
			}
			if d := r.diff("runs/a/1", "runs/a/3"); d.Equal != 5 || len(d.Changed) != 1 ||
				d.Changed[0].Name != "params/layer.0/kernel" || d.Changed[0].ChangedElements < 256 ||
				float64(*d.Changed[0].MaxAbs) > 4 ||
				len(d.Added)+len(d.Removed)+len(d.Reshaped)+len(d.Others) != 0 {
				t.Errorf("%s, %s: %+v", name, state, d)
			}
		}
	}
}

// The arrays of Orbax are read from each kind of folder: their elements and their statistics.
func TestReadOrbax(t *testing.T) {
	r := newRig(t)
	var kernel, counts []byte
	for i := range 600 {
		bits := math.Float32bits(float32(i)) // rounded to the nearest, ties to even
		kernel = binary.LittleEndian.AppendUint16(kernel, uint16((bits+0x7fff+bits>>16&1)>>16))
	}
	for i := range 5 {
		counts = append(counts, byte(i), 0, 0, 0)
	}
	want := map[string][]byte{
		"params/layer.0/kernel": kernel, "params/layer.0/bias": make([]byte, 120), "params/counts/0": counts, "params/counts/1": {3, 0, 0, 0, 0, 0, 0, 0},
		"step": {7, 0, 0, 0, 0, 0, 0, 0}, "('a/b',)": {0, 0x3c, 0, 0x3c},
	}
	for _, name := range []string{"ocdbt", "zarr3", "loose"} {
		r.mkdir("runs/" + name)
		r.folder("runs/"+name+"/1", "orbax/"+name)
	}
	r.mkdir("runs/b/1")
	r.write("runs/b/1/m.safetensors",
		typed(t, []safetensors.Entry{
			{Name: "params/layer.0/kernel", DType: formats.BF16, Shape: []int64{20, 30}},
		}, kernel))
	for _, state := range []string{resident, packed} {
		if state == packed {
			r.sync()
			r.evictAll()
		}
		for _, name := range []string{"ocdbt", "zarr3", "loose"} {
			p := "runs/" + name + "/1"
			for array, want := range want {
				if got := r.cat(p, "state/"+array); !bytes.Equal(got, want) {
					t.Errorf("%s, %s: %s: %d bytes, want %d", name, state, array, len(got), len(want))
				}
			}
			f, err := r.Inspect(t.Context(), p, control.InspectOptions{Stats: true}, nil, nil)
			if err != nil || len(f.Notes) != 1 || len(f.Tensors) != 6 {
				t.Fatalf("%s, %s: %+v, %v", name, state, f, err)
			}
			for _, x := range f.Tensors {
				if x.Stats == nil || x.Name == "state/params/layer.0/kernel" &&
					(x.Stats.Count != 600 || x.Stats.Min != 0 || x.Stats.Max != 600) {
					t.Errorf("%s, %s: %s: %+v", name, state, x.Name, x.Stats)
				}
			}
			if d := r.diff("runs/b/1", p+"/state"); d.Equal != 1 || len(d.Changed)+len(d.Removed) != 0 ||
				len(d.Added) != 5 {
				t.Errorf("%s, %s: against a file: %+v", name, state, d)
			}
			if _, err := r.Tensor(t.Context(), p, "state/none", false); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s, %s: %v", name, state, err)
			}
		}
	}
	// An error names the array that is not read, and why.
	r.write("runs/loose/1/state/params.layer.0.kernel/.zarray", []byte(`{"zarr_format":2,"shape":[20,30],"chunks":[20,30],"dtype":"bfloat16","order":"C","compressor":{"id":"blosc"}}`))
	f, err := r.Inspect(t.Context(), "runs/loose/1", control.InspectOptions{Stats: true}, nil, nil)
	if err != nil || len(f.Notes) != 2 || !strings.Contains(f.Notes[1], `compressed by "blosc" (1)`) {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := r.Tensor(t.Context(), "runs/loose/1", "state/params/layer.0/kernel", false); !errors.Is(err, zarr.ErrUnread) {
		t.Error(err)
	}
	if d := r.diff("runs/zarr3/1", "runs/loose/1"); d.Equal != 5 || len(d.Changed) != 1 ||
		d.Changed[0].MaxAbs != nil {
		t.Errorf("%+v", d)
	}
	// What is damaged is an error, which says where.
	r.write("runs/loose/1/state/params.layer.0.bias/0", []byte("nothing"))
	d, err := r.Tensor(t.Context(), "runs/loose/1", "state/params/layer.0/bias", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(d); !errors.Is(err, formats.ErrNotFormat) || !strings.Contains(err.Error(), "tensor state/params/layer.0/bias: chunk [0]") {
		t.Error(err)
	}
	d.Close()
	_, err = r.Inspect(t.Context(), "runs/loose/1", control.InspectOptions{Stats: true}, nil, nil)
	if !errors.Is(err, formats.ErrNotFormat) {
		t.Error(err)
	}
	if _, err := r.Diff(t.Context(), control.DiffOptions{A: "runs/loose/1", B: "runs/zarr3/1"}, nil,
		nil); err == nil ||
		!errors.Is(err, formats.ErrNotFormat) || !strings.Contains(err.Error(), "runs/zarr3/1") {
		t.Error(err)
	}
	r.write("runs/loose/1/state/params.layer.0.bias/0", sample(t, "orbax/loose/state/params.layer.0.bias/0"))
	if d := r.diff("runs/b/1", "runs/loose/1"); d.Equal != 0 || len(d.Others) == 0 ||
		!strings.HasPrefix(d.Others[0].What, "not compared") {
		t.Errorf("%+v", d)
	}
	r.onlyRoot()
}
