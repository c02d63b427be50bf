package volume

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// folder puts a folder of the fixtures into the volume.
func (r *rig) folder(to, src string) {
	r.t.Helper()
	r.mkdir(to)
	entries, err := os.ReadDir("../../formats/testdata/" + src)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			r.folder(to+"/"+e.Name(), src+"/"+e.Name())
		} else {
			r.write(to+"/"+e.Name(), sample(r.test, src+"/"+e.Name()))
		}
	}
}

// What torch.distributed.checkpoint wrote is shown, compared and read by its names, however many ranks wrote
// it.
func TestDCP(t *testing.T) {
	r := newRig(t)
	r.folder("runs/a/1", "dcp/two")
	r.folder("runs/a/2", "dcp/one")
	cols := f32s(280, func(i int) float32 { return float32(i) })
	check := func(when string) {
		t.Helper()
		f, err := r.Inspect(t.Context(), "runs/a/1", control.InspectOptions{Stats: true}, nil, nil)
		if err != nil || f.Format != "dcp" || len(f.Notes) != 2 || f.Notes[0] != "not listed: objects that are no tensors (1)" {
			t.Fatalf("%s: %+v, %v", when, f, err)
		}
		byName := map[string]control.Tensor{}
		for _, x := range f.Tensors {
			byName[x.Name] = x
		}
		if x := byName["model.cols"]; len(f.Tensors) != 6 || x.Pieces != 2 ||
			!slices.Equal(x.Shape, []int64{40, 7}) || x.Stats.Max != 279 || x.Stats.Count != 280 {
			t.Errorf("%s: %d tensors, %+v", when, len(f.Tensors), x)
		}
		if x := byName["model.scalar"]; x.DType != "F32" || len(x.Shape) != 0 || x.Pieces != 0 {
			t.Errorf("%s: %+v", when, x)
		}
		d := r.diff("runs/a/1", "runs/a/2")
		if d.Equal != 5 || len(d.Changed) != 1 || d.Changed[0].Name != "model.cols" ||
			*d.Changed[0].MaxAbs != 1 || len(d.Added)+len(d.Removed)+len(d.Reshaped)+len(d.Others) != 0 {
			t.Errorf("%s: %+v", when, d)
		}
		x, err := r.Tensor(t.Context(), "runs/a/1", "model.cols", false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(x)
		x.Close()
		if err != nil || !bytes.Equal(got, cols) {
			t.Errorf("%s: %d bytes, %v", when, len(got), err)
		}
		if got := r.tensorsOf("runs/a/1/__1_0.distcp"); !slices.Contains(got, "model.cols[0:40,4:7]") || !slices.Contains(got, "model.rows[3:5,0:40]") {
			t.Errorf("%s: %q", when, got)
		}
	}
	check("resident")
	r.sync()
	r.evictAll()
	check("packed")
	if f, err := r.Show(t.Context(), "runs/a/2/__0_0.distcp", nil); err != nil || f.State != control.StatePacked ||
		f.Stored == 0 || f.Format != "dcp" {
		t.Errorf("%+v, %v", f, err)
	}

	// In doubt they are called by their numbers.
	meta := sample(t, "dcp/one/.metadata")
	for what, p := range map[string][]byte{"of something else": []byte("{}"),
		"of other offsets": sample(t, "dcp/two/.metadata"), "cut off": meta[:len(meta)/2]} {
		r.write("runs/a/2/.metadata", p)
		if got := r.tensorsOf("runs/a/2/__0_0.distcp"); len(got) != 6 || strings.Contains(got[0], "model") {
			t.Errorf("%s: %q", what, got)
		}
	}
	r.onlyRoot()
}
