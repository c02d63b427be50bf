package clients

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// comparison is what `ckptfs diff --json` says.
type comparison struct {
	Equal   int `json:"equal"`
	Changed []struct {
		Name string `json:"name"`
	} `json:"changed"`
	Reshaped []json.RawMessage `json:"reshaped"`
	Added    []json.RawMessage `json:"added"`
	Removed  []json.RawMessage `json:"removed"`
	Others   []json.RawMessage `json:"others"`
}

// wantDiff compares, and wants so many tensors equal, and those of these names changed.
func wantDiff(m *mounttest.Mount, a, b string, equal int, changed ...string) {
	m.T.Helper()
	var d comparison
	m.JSON(&d, "diff", "--json", m.Path(a), m.Path(b))
	var names []string
	for _, c := range d.Changed {
		names = append(names, c.Name)
	}
	if d.Equal != equal || strings.Join(names, " ") != strings.Join(changed, " ") ||
		len(d.Reshaped)+len(d.Added)+len(d.Removed)+len(d.Others) > 0 {
		m.T.Errorf("diff %s %s: %d equal, want %d; %q changed, want %q; %d reshaped, %d added, %d removed, %d others", a, b, d.Equal, equal, names, changed,
			len(d.Reshaped), len(d.Added), len(d.Removed), len(d.Others))
	}
}

// TestShardedSets: what huggingface_hub cuts into files is one checkpoint to show, diff, cat-tensor and find,
// whatever it is cut into.
func TestShardedSets(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	mounttest.RunPython(t, "sets.py", m.Path("runs"))
	const last = "layers.3.weight"
	indexes := map[string]string{"two": "model.safetensors.index.json", "four": "model.safetensors.index.json", "bin": "pytorch_model.bin.index.json",
		"variant": "model.safetensors.index.fp16.json"}
	check := func() {
		t.Helper()
		one := m.Run("cat-tensor", m.Path("runs/one/2/model.safetensors"), last)
		for name, index := range indexes {
			dir := "runs/" + name + "/2"
			for _, p := range []string{dir, dir + "/" + index, "runs/" + name} {
				wantDiff(m, p, "runs/one/2", 10)
				wantDiff(m, "runs/one", p, 10)
				wantDiff(m, "runs/two/1", p, 9, last)
			}
			for _, p := range []string{dir, dir + "/" + index} {
				if got := m.Run("cat-tensor", m.Path(p), last); got != one {
					t.Errorf("%s: %d bytes, want %d", p, len(got), len(one))
				}
				if got := m.Run("cat-tensor", m.Path(p)+":"+last); got != one {
					t.Errorf("%s: by one argument %d bytes, want %d", p, len(got), len(one))
				}
				var f mounttest.File
				m.JSON(&f, "show", "--json", "--stats", m.Path(p))
				if len(f.Tensors) != 10 {
					t.Errorf("%s: %d tensors", p, len(f.Tensors))
				}
				if said := m.Run("show", "--stats", m.Path(p)); !strings.Contains(said, "MEAN") {
					t.Errorf("%s: %s", p, said)
				}
			}
		}
	}
	check()
	m.Sync()
	m.EvictAll()
	check()
	wantDiff(m, "runs/two/1", "runs/four/1", 10)
	wantDiff(m, "runs/two/1", "runs/variant/1/model.fp16.safetensors.index.json", 10)
	said := m.Run("find", "--like", m.Path("runs/two/1", indexes["two"])+":layers.0.weight")
	if n := strings.Count(said, "layers.0.weight"); n != 10 {
		t.Error(fmt.Sprintf("%d files have it", n), said)
	}
	if said := m.Run("owner", m.Path("runs/two/2", indexes["two"])+":"+last); !strings.Contains(said,
		"runs/two/2") {
		t.Error(said)
	}
}
