package quants

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// mostAverages is what the files of a kind may take together, in percent of their size. Of ten steps the
// first and the ninth have an average that is none of those before.
var mostAverages = map[string]float64{"one/checkpoint.pt": 33, "lerp/checkpoint.pt": 33,
	"two/ema.safetensors": 15, "swa/swa.pt": 15, "back/model.safetensors": 1}

// TestAverages: averages of weights that torch makes are computed of those of steps before and of the weights
// of their step, in one file or two; and half precision is the rounding of master copies.
func TestAverages(t *testing.T) {
	m, _ := made(t, t.TempDir(), "averages.py")
	s := newStore(t, m)
	s.add(m.files)
	type sum struct{ raw, takes int64 }
	sums := map[string]sum{}
	var order []string
	for _, f := range m.files {
		name := f.Kind + "/" + path.Base(f.Path)
		x, known := sums[name]
		if !known {
			order = append(order, name)
		}
		sums[name] = sum{x.raw + f.size, x.takes + s.takes[f.Path]}
		t.Logf("%-34s %9d bytes, takes %8d, %6.2f %%", f.Path, f.size, s.takes[f.Path], s.percent(f))
	}
	for _, name := range order {
		share := 100 * float64(sums[name].takes) / float64(sums[name].raw)
		t.Logf("%-30s %6.2f %%", name, share)
		if most := mostAverages[name]; most > 0 && share > most {
			t.Errorf("%s: %.2f %% of its size, want at most %.1f", name, share, most)
		}
	}
	if said := s.Run("show", s.Path("runs/two/4/ema.safetensors")); !strings.Contains(said, "0.997") {
		t.Errorf("nothing is told of the average: %s", said)
	}
	s.same("packed", m.files)
	s.Run("compact", s.Dir)
	s.same("compacted", m.files)
	s.parts(m.files)
	s.Run("check", "--read-data", s.Dir)
}

// mostInStep is what both files of the steps may take together, in percent of their size, if the one that
// the other is made of is saved last.
var mostInStep = map[string]float64{"first": 33, "master": 62}

// TestLateSources: what is saved before the weights that it is an average of, and half precision that is
// saved before its master copies, are stored with the help of these, if they come in the same step.
func TestLateSources(t *testing.T) {
	for kind, most := range mostInStep {
		m, _ := made(t, t.TempDir(), "averages.py", kind)
		s := newStore(t, m)
		before, raw := s.live(), int64(0)
		for i := 0; i < len(m.files); i += 2 {
			for _, f := range m.files[i : i+2] {
				data, err := os.ReadFile(filepath.Join(m.dir, f.Path))
				s.Must(err)
				s.Write(f.Path, data)
				raw += f.size
			}
			s.Sync()
		}
		share := 100 * float64(s.live()-before) / float64(raw)
		t.Logf("%s: %.2f %%", kind, share)
		if share > most {
			t.Errorf("%s: %.2f %% of its size, want at most %.1f", kind, share, most)
		}
		s.same("packed", m.files)
	}
}
