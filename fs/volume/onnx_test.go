package volume

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// A model whose data lie in another file is shown with them, whatever that is called and whether or not it
// was laid out by the model.
func TestExternalModel(t *testing.T) {
	r := newRig(t)
	model, data := sample(t, "onnx/external.onnx"), sample(t, "onnx/external.bin")
	for _, dir := range []string{"runs/a/1", "runs/a/2", "runs/a/3", "runs/a/4"} {
		r.mkdir(dir)
	}
	const first, second, third = "runs/a/1/external.onnx", "runs/a/2/other.onnx", "runs/a/3/external.onnx"
	r.write(first, model)
	r.write("runs/a/1/external.bin", data)
	r.write(second, model) // of another stem: external.bin is not known by it
	r.write("runs/a/2/external.bin", data)
	changed := bytes.Clone(data)
	changed[100] ^= 1
	r.write(third, model)
	r.write("runs/a/3/external.bin", changed)
	r.write("runs/a/4/w.safetensors", floats(t, "w", data))
	check := func(when string) {
		t.Helper()
		for _, p := range []string{first, second} {
			f, err := r.Inspect(t.Context(), p, control.InspectOptions{Stats: true}, nil, nil)
			if err != nil || f.Format != "onnx" || f.Size != int64(len(model)) || len(f.Tensors) != 1 ||
				f.Tensors[0].Name != "w" || f.Tensors[0].Stats == nil || f.Artifact != "" {
				t.Fatalf("%s: %s: %+v, %v", when, p, f, err)
			}
			if len(f.Notes) != 2 || !strings.HasPrefix(f.Notes[0], "no view") ||
				!strings.HasPrefix(f.Notes[1], "no artifact id") {
				t.Errorf("%s: %s: %q", when, p, f.Notes)
			}
			if got := r.cat(p, "w"); !bytes.Equal(got, data) {
				t.Errorf("%s: %s: %d bytes", when, p, len(got))
			}
		}
		for _, x := range [][2]string{{first, second}, {"runs/a/1", "runs/a/2"}, {second, "runs/a/1"}} {
			if d := r.diff(x[0], x[1]); d.Equal != 1 ||
				len(d.Changed)+len(d.Reshaped)+len(d.Added)+len(d.Removed)+len(d.Others) != 0 {
				t.Errorf("%s: %s: %+v", when, x, d)
			}
		}
		if d := r.diff("runs/a/2", "runs/a/3"); d.Equal != 0 || len(d.Changed) != 1 ||
			d.Changed[0].ChangedElements != 1 || len(d.Added)+len(d.Removed)+len(d.Others) != 0 {
			t.Errorf("%s: %+v", when, d)
		}
	}
	check("resident")
	r.sync()
	r.evictAll()
	check("packed")
	notListed := func(note string) bool {
		return strings.HasPrefix(note, `not listed: tensors in "external.bin"`)
	}
	r.write("runs/a/1/external.bin", data[1:])
	f, err := r.Show(t.Context(), first, nil)
	if err != nil || len(f.Tensors) != 0 || !slices.ContainsFunc(f.Notes, notListed) {
		t.Errorf("too short: %+v, %v", f, err)
	}
	r.unlink("runs/a/1/external.bin")
	f, err = r.Show(t.Context(), first, nil)
	if err != nil || len(f.Tensors) != 0 || !slices.ContainsFunc(f.Notes, notListed) {
		t.Errorf("not there: %+v, %v", f, err)
	}
	r.onlyRoot()
}

// A model that names files outside of its folder gets none of them.
func TestExternalOutside(t *testing.T) {
	r := newRig(t)
	model := sample(t, "onnx/external.onnx")
	r.mkdir("in")
	r.write("external.bin", sample(t, "onnx/external.bin"))
	for _, name := range []string{"../rnal.bin", "/xternal.bin", "./../al.bin", "exter\x00l.bin",
		"..........."} {
		r.write("in/m.onnx", bytes.Replace(model, []byte("external.bin"),
			[]byte(name + strings.Repeat("/", 12-len(name)))[:12], 1))
		if f, err := r.Show(t.Context(), "in/m.onnx", nil); err != nil || len(f.Tensors) != 0 ||
			len(f.Notes) == 0 {
			t.Errorf("%q: %+v, %v", name, f, err)
		}
	}
	r.onlyRoot()
}
