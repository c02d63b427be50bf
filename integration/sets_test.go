package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
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
func (m *mount) wantDiff(a, b string, equal int, changed ...string) {
	m.t.Helper()
	var d comparison
	m.json(&d, "diff", "--json", m.path(a), m.path(b))
	var names []string
	for _, c := range d.Changed {
		names = append(names, c.Name)
	}
	if d.Equal != equal || strings.Join(names, " ") != strings.Join(changed, " ") || len(d.Reshaped)+len(d.Added)+len(d.Removed)+len(d.Others) > 0 {
		m.t.Errorf("diff %s %s: %d equal, want %d; %q changed, want %q; %d reshaped, %d added, %d removed, %d others", a, b, d.Equal, equal, names, changed,
			len(d.Reshaped), len(d.Added), len(d.Removed), len(d.Others))
	}
}

// TestShardedSets: what huggingface_hub cuts into files is one checkpoint to show, diff, cat-tensor and find, whatever it is cut into.
func TestShardedSets(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	runPython(t, "sets.py", m.path("runs"))
	const last = "layers.3.weight"
	indexes := map[string]string{"two": "model.safetensors.index.json", "four": "model.safetensors.index.json", "bin": "pytorch_model.bin.index.json",
		"variant": "model.safetensors.index.fp16.json"}
	check := func() {
		t.Helper()
		one := m.cli("cat-tensor", m.path("runs/one/2/model.safetensors"), last)
		for name, index := range indexes {
			dir := "runs/" + name + "/2"
			for _, p := range []string{dir, dir + "/" + index, "runs/" + name} {
				m.wantDiff(p, "runs/one/2", 10)
				m.wantDiff("runs/one", p, 10)
				m.wantDiff("runs/two/1", p, 9, last)
			}
			for _, p := range []string{dir, dir + "/" + index} {
				if got := m.cli("cat-tensor", m.path(p), last); got != one {
					t.Errorf("%s: %d bytes, want %d", p, len(got), len(one))
				}
				if got := m.cli("cat-tensor", m.path(p)+":"+last); got != one {
					t.Errorf("%s: by one argument %d bytes, want %d", p, len(got), len(one))
				}
				var f file
				m.json(&f, "show", "--json", "--stats", m.path(p))
				if len(f.Tensors) != 10 {
					t.Errorf("%s: %d tensors", p, len(f.Tensors))
				}
				if said := m.cli("show", "--stats", m.path(p)); !strings.Contains(said, "MEAN") {
					t.Errorf("%s: %s", p, said)
				}
			}
		}
	}
	check()
	m.sync()
	m.evictAll()
	check()
	m.wantDiff("runs/two/1", "runs/four/1", 10)
	m.wantDiff("runs/two/1", "runs/variant/1/model.fp16.safetensors.index.json", 10)
	said := m.cli("find", "--like", m.path("runs/two/1", indexes["two"])+":layers.0.weight")
	if n := strings.Count(said, "layers.0.weight"); n != 10 {
		t.Error(fmt.Sprintf("%d files have it", n), said)
	}
	if said := m.cli("owner", m.path("runs/two/2", indexes["two"])+":"+last); !strings.Contains(said, "runs/two/2") {
		t.Error(said)
	}
}
