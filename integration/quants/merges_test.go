package quants

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// mostMerged is what a file that mergekit makes may take, in percent of its size.
var mostMerged = map[string]float64{"linear": 0.3, "linear-gradient": 1, "soup": 0.3, "slerp-usual": 0.4,
	"task": 0.3, "task-float32": 0.3, "tasks": 0.3, "stock": 0.3}

// TestMerges: what mergekit computes of fine-tunes is computed of them again.
func TestMerges(t *testing.T) {
	m, _ := made(t, t.TempDir(), "merges.py", slices.Collect(maps.Keys(mostMerged))...)
	s := newStore(t, m)
	s.add(m.files)
	for _, f := range m.files {
		t.Logf("%-20s %9d bytes, takes %8d, %6.2f %%", f.Kind, f.size, s.takes[f.Path], s.percent(f))
		if most := mostMerged[f.Kind]; most > 0 && s.percent(f) > most {
			t.Errorf("%s: %.2f %% of its size, want at most %.1f", f.Kind, s.percent(f), most)
		}
	}
	if said := s.Run("show", s.Path("linear/model.safetensors")); !strings.Contains(said, "0.7") {
		t.Errorf("nothing is told of the merge: %s", said)
	}
	s.same("packed", m.files)
	s.parts(m.files)
	s.Run("check", "--read-data", s.Dir)
}
