package volume

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
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
			for p, prefix := range map[string]string{"runs/" + name: "state/", "runs/" + name + "/state": ""} {
				f, err := r.Show(t.Context(), p)
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
	_, err := r.Show(t.Context(), "runs")
	wantErr(t, "a folder of something else", err, errNotRegular)
	r.write("runs/ocdbt/state/manifest.ocdbt", []byte("nothing"))
	_, err = r.Show(t.Context(), "runs/ocdbt")
	wantErr(t, "a damaged database", err, formats.ErrNotFormat)
	r.unlink("runs/ocdbt/state/manifest.ocdbt")
	if _, err = r.Show(t.Context(), "runs/ocdbt/state"); !errors.Is(err, formats.ErrNotFormat) || errors.Is(err, unix.ENOENT) {
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
			if d := r.diff("runs/a/1", "runs/a/2"); d.Equal != 6 || len(d.Changed)+len(d.Added)+len(d.Removed)+len(d.Reshaped)+len(d.Others) != 0 {
				t.Errorf("%s, %s: %+v", name, state, d)
			}
			if d := r.diff("runs/a/1", "runs/a/3"); d.Equal != 5 || len(d.Changed) != 1 || d.Changed[0].Name != "params/layer.0/kernel" || d.Changed[0].MaxAbs != nil || len(d.Added)+len(d.Removed)+len(d.Reshaped)+len(d.Others) != 0 {
				t.Errorf("%s, %s: %+v", name, state, d)
			}
		}
		f, err := r.Inspect(t.Context(), "runs/a/1", control.InspectOptions{Stats: true}, nil)
		if err != nil || len(f.Notes) != 1 || !strings.HasPrefix(f.Notes[0], "no statistics") {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
		if _, err := r.Tensor(t.Context(), "runs/a/1", "state/step", false); !errors.Is(err, errSealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
