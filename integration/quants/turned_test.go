package quants

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// made are the files that a program of Python writes and tells of.
func made(t *testing.T, dir, program string, args ...string) (m *model, of map[string]string) {
	t.Helper()
	mounttest.NeedFUSE(t)
	m, of = &model{dir: dir}, map[string]string{}
	for line := range strings.Lines(mounttest.RunPython(t, program, append([]string{dir}, args...)...)) {
		var f struct {
			file
			Of string `json:"of"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s said %q: %v", program, line, err)
		}
		f.size, f.sum = digest(t, filepath.Join(dir, f.Path))
		m.files = append(m.files, f.file)
		if f.Of != "" {
			of[f.Path] = f.Of
		}
	}
	return m, of
}

// mostTurned is what a file may take beside one with the same numbers in another layout, in percent of its
// size.
var mostTurned = map[string]float64{"gpt2/linear.pt": 0.5, "gpt2/linear-bf16.safetensors": 0.5,
	"gpt2/model-F16.gguf": 0.5, "gpt2/model-Q8_0.gguf": 0.6, "cnn/keras.h5": 0.7, "back/torch.pt": 0.7}

// TestTurned: what another framework has in another layout is stored as that: transposed, or with the places
// of a kernel first, whatever it is called; and stays when the other is gone.
func TestTurned(t *testing.T) {
	m, of := made(t, t.TempDir(), "turned.py")
	s := newStore(t, m)
	s.add(m.files)
	for _, f := range m.files {
		t.Logf("%-30s %9d bytes, takes %8d, %6.2f %%", f.Path, f.size, s.takes[f.Path], s.percent(f))
		if most := mostTurned[f.Path]; of[f.Path] != "" && s.percent(f) > most {
			t.Errorf("%s takes %.2f %% of its size beside %s, want at most %.1f", f.Path, s.percent(f), of[f.Path], most)
		}
	}
	for name, want := range map[string]string{"gpt2/linear.pt": "transposed", "cnn/keras.h5": "axes in reverse order"} {
		if said := s.Run("show", s.Path(name)); !strings.Contains(said, want) {
			t.Errorf("nothing of %s is %s: %s", name, want, said)
		}
	}
	s.same("packed", m.files)
	s.Run("check", "--read-data", s.Dir)
	s.Remount()
	s.parts(m.files)
	var left []file
	for _, f := range m.files {
		if of[f.Path] == "" {
			s.Must(os.Remove(s.Path(f.Path)))
		} else {
			left = append(left, f)
		}
	}
	s.Run("prune", "--grace", "0s", s.Dir)
	s.Run("check", "--read-data", s.Dir)
	s.same("without what they are of", left)
	s.parts(left)
}
