package quants

import "testing"

// mostGPTQ is what codes may take that GPTQ has chosen, in percent of their file's size. Alone they take 86.
const mostGPTQ = 42

// TestGPTQ: of codes that were chosen one after the other, for what those before had lost, those are stored
// that are not the nearest.
func TestGPTQ(t *testing.T) {
	m, _ := made(t, t.TempDir(), "gptq.py")
	s := newStore(t, m)
	s.add(m.files)
	for _, f := range m.files {
		t.Logf("%-30s %9d bytes, takes %8d, %6.2f %%", f.Path, f.size, s.takes[f.Path], s.percent(f))
	}
	for _, f := range m.files[1:] {
		if s.percent(f) > mostGPTQ {
			t.Errorf("%s takes %.2f %% of its size, want at most %d", f.Path, s.percent(f), mostGPTQ)
		}
	}
	s.same("packed", m.files)
	s.parts(m.files)
	s.Run("check", "--read-data", s.Dir)
}
