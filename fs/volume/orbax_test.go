package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
)

// A step that Orbax wrote, and its items, list their arrays: resident, packed and evicted.
func TestShowOrbax(t *testing.T) {
	const src = "../../formats/testdata/orbax"
	r := newRig(t)
	err := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		to := "runs" + strings.TrimPrefix(p, src)
		if err == nil && d.IsDir() {
			r.mkdir(to)
		} else if err == nil {
			var b []byte
			if b, err = os.ReadFile(p); err == nil {
				r.write(to, b)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
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
	_, err = r.Show(t.Context(), "runs")
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
