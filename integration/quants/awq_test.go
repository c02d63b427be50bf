package quants

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// mostAWQ is what a file of AWQ may take beside what it was made of, in percent of its size. Alone it takes
// 88. Its scales and zeros, which are stored alone, take 2.8.
const mostAWQ = 5

// layers is how many the model has whose weights are quantised.
const layers = 7

// TestAWQ: codes of weights that were multiplied by factors, clipped, and of some layers divided before that.
// They stay readable when the weights are gone.
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
	said := s.Run("show", s.Path(m.files[1].Path))
	if strings.Count(said, "AWQ of "+m.files[0].Path) != layers || strings.Contains(said, " others, ") {
		t.Errorf("show says %s", said)
	}
	s.same("packed", m.files)
	s.parts(m.files)
	s.Run("check", "--read-data", s.Dir)
	s.Must(os.Remove(s.Path(m.files[0].Path)))
	s.Run("prune", "--grace", "0s", s.Dir)
	s.same("without the weights", m.files[1:])
	s.Run("check", "--read-data", s.Dir)
}

// TestAWQFirst: the codes are saved before the weights, and compact finds them.
func TestAWQFirst(t *testing.T) {
	m, _ := made(t, t.TempDir(), "awq.py")
	s := newStore(t, m)
	files := slices.Clone(m.files)
	slices.Reverse(files)
	s.add(files)
	before := s.live()
	s.Run("compact", s.Dir)
	took := s.takes[files[0].Path] - (before - s.live())
	percent := 100 * float64(took) / float64(files[0].size)
	t.Logf("compact makes it %.2f %%", percent)
	if percent > mostAWQ {
		t.Errorf("%s takes %.2f %% of its size, want at most %d", files[0].Path, percent, mostAWQ)
	}
	s.same("compacted", files)
	s.Run("check", "--read-data", s.Dir)
}
