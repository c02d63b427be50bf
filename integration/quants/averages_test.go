package quants

import (
	"path"
	"testing"
)

// TestAverages: averages of weights, and master copies of them, are stored as that, whichever is saved first.
func TestAverages(t *testing.T) {
	m, _ := made(t, t.TempDir(), "averages.py")
	s := newStore(t, m)
	s.add(m.files)
	type sum struct{ raw, takes int64 }
	sums := map[string]sum{}
	var order []string
	for _, f := range m.files {
		name := f.Kind + "/" + path.Base(f.Path)
		if sums[name] == (sum{}) {
			order = append(order, name)
		}
		x := sums[name]
		sums[name] = sum{x.raw + f.size, x.takes + s.takes[f.Path]}
		t.Logf("%-34s %9d bytes, takes %8d, %6.2f %%", f.Path, f.size, s.takes[f.Path], s.percent(f))
	}
	for _, name := range order {
		t.Logf("%-30s %6.2f %%", name, 100*float64(sums[name].takes)/float64(sums[name].raw))
	}
	s.same("packed", m.files)
	before := s.live()
	s.Run("compact", s.Dir)
	t.Logf("compact: from %d to %d bytes", before, s.live())
	s.same("compacted", m.files)
	s.Run("check", "--read-data", s.Dir)
}
