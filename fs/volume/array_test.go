package volume

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// Datasets that h5py stored in chunks are arrays to show, read and compare, whatever index finds the chunks
// and however they are cut.
func TestPieces(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a/1")
	r.mkdir("runs/a/2")
	r.write("runs/a/1/m.h5", sample(t, "hdf5/pieces.h5"))
	r.write("runs/a/2/m.h5", sample(t, "hdf5/pieces_latest.h5"))
	ramp := f32s(7000, func(i int) float32 { return float32(i) })
	for _, state := range []string{resident, packed} {
		if state == packed {
			r.sync()
			r.evictAll()
		}
		for _, p := range []string{"runs/a/1/m.h5", "runs/a/2/m.h5"} {
			f, err := r.Inspect(t.Context(), p, control.InspectOptions{Stats: true}, nil, nil)
			if err != nil || len(f.Tensors) != 6 {
				t.Fatalf("%s: %+v, %v", p, f, err)
			}
			for _, x := range f.Tensors {
				pieces := 12
				if x.Name == "corner" {
					pieces = 0
				}
				if len(x.Shape) != 2 || x.Shape[0] != 70 || x.Shape[1] != 100 || x.Pieces != pieces ||
					x.Stats == nil || x.Stats.Count != 7000 || x.Stats.Max != 6999 {
					t.Errorf("%s: %+v", p, x)
				}
				got, err := r.Tensor(t.Context(), p, x.Name, false)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(got)
				got.Close()
				if err != nil || !bytes.Equal(b, ramp) {
					t.Errorf("%s: %s: %d bytes, %v", p, x.Name, len(b), err)
				}
			}
			part, err := r.Tensor(t.Context(), p, "along1[64:70,96:100]", false)
			if err != nil || part.Size != 6*4*4 {
				t.Errorf("%s: a piece: %+v, %v", p, part, err)
			} else {
				part.Close()
			}
		}
		d := r.diff("runs/a/1", "runs/a/2")
		if d.Equal != 6 || len(d.Changed)+len(d.Added)+len(d.Removed)+len(d.Reshaped) != 0 ||
			state == packed && (d.ReadBytes != 0 || len(d.Others) != 0) {
			t.Errorf("%s: %+v", state, d)
		}
	}
	r.onlyRoot()
}

// show notes what it leaves out, and diff lists it when that changes.
func TestLeftOut(t *testing.T) {
	r := newRig(t)
	for name, want := range map[string]string{
		"hdf5/chunked.h5":  "not listed: datasets are compressed (1)|not listed: datasets are not written, or not all of them (1)|not listed: datasets are of types that tensors don't have (3)",
		"hdf5/growing.h5":  "not listed: datasets are compressed (2)|not listed: datasets are in chunks of less than 4 KiB, or in too many (2)",
		"trees/xgb.json":   "a model of boosted trees by XGBoost, stored in chunks by content: it holds no tensors, and trees have no names",
		"torch/dcp.distcp": "tensors are called by their numbers: no .metadata beside the file names them",
		"torch/special.pt": "not listed: nested tensors as such: their parts are (1)|not listed: quantised tensors as such: their integers are (2)|" +
			"not listed: sparse tensors as such: their indices and values are (2)|" +
			"not listed: tensors are conjugated views: the file has their conjugates, `resolve_conj()` makes plain ones (1)|" +
			"not listed: tensors are negated views: the file has their negatives, `resolve_neg()` makes plain ones (1)|" +
			"not listed: tensors are on the meta device, without elements (1)",
		"torch/unknown_dtypes.pt": "not listed: tensors are of types that are not known (1)",
		"torch/subclass.pt":       "not listed: tensors of subclasses as such: what they hold is (1)",
		"torch/storage.pt":        "not listed: storages are of no tensor that has a name (1)",
		"onnx/constant.onnx":      "not listed: tensors are attributes of nodes (1)",
		"onnx/external.onnx":      "not listed: tensors are in other files, as external data (1)",
	} {
		r.write("m", sample(t, name))
		for _, state := range []string{resident, packed} {
			if state == packed {
				r.sync() // small ones that are no checkpoint stay as they are
				r.evictAll()
			}
			f, err := r.Show(t.Context(), "m", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(f.Notes, "|"); !strings.HasPrefix(got, want+"|no artifact id: ") {
				t.Errorf("%s, %s: %q", name, state, got)
			}
		}
		r.unlink("m")
	}
	// A file that is not what it is called.
	whole := sample(t, "torch/flat.pt")
	torn, legacy := sample(t, "safetensors/flat.safetensors"), sample(t, "torch/legacy.pt")
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(whole)
	w.Close()
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"m.safetensors": {torn[:len(torn)-1], "no tensors are listed: safetensors: "},
		"m.pt":          {whole[:len(whole)-1], "no tensors are listed: zip: "},
		"old.pt":        {sample(t, "torch/legacy.pt")[:300], "no tensors are listed: torch-legacy: "},
		"m.npy":         {sample(t, "numpy/object.npy"), "no tensors are listed: npy: "},
		"old.pth":       {legacy[:len(legacy)-1], "no tensors are listed: torch-legacy: storage "},
		"a.tar.gz":      {gz.Bytes(), "no tensors are listed: the file is compressed, by gzip"},
		"m.joblib":      {sample(t, "sklearn/compressed.joblib"), "no tensors are listed: the file is compressed, by zlib"},
		"text.zip":      {sample(t, "archive/text.zip"), "no tensors are listed: zip: "},
		"a.bin":         {random(100<<10, 1), ""},
		"m.txt":         {whole[:1000], ""},
		"empty.pt":      {nil, ""},
	} {
		r.write(name, c.data)
		for _, state := range []string{resident, packed} {
			if state == packed {
				r.sync()
				r.evictAll()
			}
			f, err := r.Show(t.Context(), name, nil)
			if err != nil || f.Format != "blob" {
				t.Fatalf("%s: %+v, %v", name, f, err)
			}
			if got := strings.Join(f.Notes, "|"); !strings.HasPrefix(got, c.want) ||
				c.want == "" && strings.Contains(got, "listed") {
				t.Errorf("%s, %s: %q", name, state, got)
			}
		}
	}
	// One of more tensors than there was room for: it says so, and with more room how it has them.
	names, data := make([]string, 200), make([][]byte, 200)
	for i := range names {
		names[i], data[i] = fmt.Sprintf("t%03d", i), random(1<<10, uint64(i))
	}
	many := weights(t, names, data...)
	small := newRig(t, func(o *Options) { o.LayoutBytes = 60 << 10 })
	small.write("many.safetensors", many)
	small.sync()
	note := func(r *rig, p, want string) {
		t.Helper()
		f, err := r.Show(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.Notes, "|"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
	note(small, "many.safetensors", "tensors, for which --memory has room")
	roomy := small.reopen(func(o *Options) { o.LayoutBytes = 0 })
	note(roomy, "many.safetensors", "its 200 tensors were not seen when it was stored")
	roomy.write("copy.safetensors", many)
	roomy.sync()
	note(roomy, "copy.safetensors", "")
	r.write("a.h5", sample(t, "hdf5/growing.h5"))
	b := sample(t, "hdf5/chunked.h5")
	r.write("b.h5", b)
	b[bytes.Index(b, []byte{0x78, 0x5e})+100]++ // within the compressed dataset
	r.write("c.h5", b)
	if d := r.diff("b.h5", "c.h5"); len(d.Others) != 1 ||
		!strings.HasPrefix(d.Others[0].What, "not compared") {
		t.Errorf("%+v", d)
	}
	r.sync()
	if d := r.diff("b.h5", "c.h5"); len(d.Others) != 1 || d.Others[0].What != "changed in what it holds besides the tensors that are listed" || len(d.Changed) != 0 {
		t.Errorf("%+v", d)
	}
}
