package clients

import (
	"os"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestOrbaxArrays: cat-tensor and show --stats read what Orbax wrote, sharded, chunked, compressed or not, of
// zarr 2 and 3, in a database and in files.
func TestOrbaxArrays(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Sh("mkdir -p runs")
	mounttest.RunPython(t, "orbax_arrays.py", m.Path("runs/a"))
	names, err := os.ReadDir(m.Path("runs/a"))
	m.Must(err)
	var truth mounttest.File
	m.JSON(&truth, "show", "--json", m.Path("runs/a/truth.npz"))
	if len(names) != 18 || len(truth.Tensors) != 13 {
		t.Fatalf("%d names, %d arrays", len(names), len(truth.Tensors))
	}
	elements := func(p, name string) string { return m.Run("cat-tensor", m.Path(p), name) }
	check := func() {
		t.Helper()
		for _, d := range names {
			if !d.IsDir() {
				continue
			}
			step := "runs/a/" + d.Name()
			for _, x := range truth.Tensors {
				if got, want := elements(step, "state/"+x.Name), elements("runs/a/truth.npz",
					x.Name); got != want {
					t.Errorf("%s: %s: %d bytes, want %d", d.Name(), x.Name, len(got), len(want))
				}
			}
			if said := m.Run("show", "--stats", m.Path(step)); !strings.Contains(said, "type int4 (1)") ||
				!strings.Contains(said, "MEAN") {
				t.Error(said)
			}
		}
	}
	check()
	m.Sync()
	m.EvictAll()
	check()
}
