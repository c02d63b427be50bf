package quants

import "testing"

// mostAWQ is what a file of AWQ may take beside what it was made of, in percent of its size. Alone it takes
// 88.
const mostAWQ = 5

// TestAWQ: codes of weights that were multiplied by factors, clipped, and of some layers divided before that.
func TestAWQ(t *testing.T) {
	m, _ := made(t, t.TempDir(), "awq.py")
	s := newStore(t, m)
	s.add(m.files)
	for _, f := range m.files {
		t.Logf("%-30s %9d bytes, takes %8d, %6.2f %%", f.Path, f.size, s.takes[f.Path], s.percent(f))
	}
	for _, f := range m.files[1:] {
		if s.percent(f) > mostAWQ {
			t.Errorf("%s takes %.2f %% of its size, want at most %d", f.Path, s.percent(f), mostAWQ)
		}
	}
	s.same("packed", m.files)
	s.parts(m.files)
	s.Run("check", "--read-data", s.Dir)
}
