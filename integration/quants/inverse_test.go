package quants

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// inverse is a file that programs/dequants.py writes, and what it was computed from.
type inverse struct {
	file
	of file
}

// makeInverse runs programs/dequants.py on the small Llama.
func makeInverse(t *testing.T, dir string) (all []inverse, m *model) {
	t.Helper()
	m = tiny(t)
	for line := range strings.Lines(mounttest.RunPython(t, "dequants.py", m.dir, dir)) {
		var x struct{ Path, Of, Kind string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("dequants.py said %q: %v", line, err)
		}
		i := slices.IndexFunc(m.files, func(f file) bool { return f.Path == x.Of })
		if i < 0 {
			t.Fatalf("%s is of %s, which is not there", x.Path, x.Of)
		}
		f := inverse{file{Path: x.Path, Kind: x.Kind}, m.files[i]}
		f.size, f.sum = digest(t, filepath.Join(dir, f.Path))
		all = append(all, f)
	}
	return all, m
}

// mostInverse is what a file may take beside what it was computed from, in percent of its size.
const mostInverse = 0.5

// TestInverse: what is dequantised, widened or rounded is stored as what it is computed from, whichever type
// it has, and stays when that is gone.
func TestInverse(t *testing.T) {
	dir := t.TempDir()
	files, m := makeInverse(t, dir)
	slices.SortStableFunc(files, func(a, b inverse) int { return strings.Compare(a.of.Path, b.of.Path) })
	s := newStore(t, m)
	theirs := store{s.Mount, &model{dir: dir}, map[string]int64{}}
	for i := 0; i < len(files); {
		base := files[i].of
		s.add([]file{base})
		var made []file
		for ; i < len(files) && files[i].of.Path == base.Path; i++ {
			f := files[i]
			theirs.add([]file{f.file})
			made = append(made, f.file)
			took := theirs.percent(f.file)
			t.Logf("%-24s of %8d bytes takes %6.2f %%", f.Kind, f.size, took)
			if took > mostInverse {
				t.Errorf("%s of %s takes %.2f %% of its size, want at most %.1f", f.Path, base.Path, took, mostInverse)
			}
			s.told(f)
		}
		s.same("packed", []file{base})
		theirs.same("packed", made)
		theirs.parts(made)
		s.Must(os.Remove(s.Path(base.Path)))
		s.Run("prune", "--grace", "0s", s.Dir)
		theirs.same("without what they are of", made)
		s.Run("check", "--read-data", s.Dir)
		for _, f := range made {
			s.Must(os.Remove(s.Path(f.Path)))
		}
		s.Run("prune", "--grace", "0s", s.Dir)
	}
}

// told checks what is told of some files.
func (s *store) told(f inverse) {
	s.T.Helper()
	if f.Kind != "FP8-block BF16" && f.Kind != "Q4_K_M F16" {
		return
	}
	if said := s.Run("lineage", s.Path(f.Path)); !strings.Contains(said, ": reproduced: dequantised from ") {
		s.T.Errorf("%s: %s", f.Kind, said)
	}
	said := s.Run("verify", s.Path(f.Path), "--from", s.Path(f.of.Path))
	if !strings.HasPrefix(said, "yes: 99.") && !strings.HasPrefix(said, "yes: 100") {
		s.T.Errorf("%s: %s", f.Kind, said)
	}
}

// TestInverseFirst: codes come after what was dequantised from them.
func TestInverseFirst(t *testing.T) {
	dir := t.TempDir()
	files, m := makeInverse(t, dir)
	s := newStore(t, m)
	theirs := store{s.Mount, &model{dir: dir}, map[string]int64{}}
	most := map[string]float64{"Q8_0 BF16": 0.5, "Q4_K_M BF16": 4, "FP8-block BF16": 0.5,
		"FP8-block F16": 0.5, "FP8-dynamic BF16": 0.5, "HF F16": 0.5, "HF F32": 0.5}
	for _, f := range files {
		if most[f.Kind] == 0 || strings.Contains(f.Path, "-to-") {
			continue
		}
		theirs.add([]file{f.file})
		s.add([]file{f.of})
		took := s.percent(f.of)
		t.Logf("%s takes %6.2f %% behind %s", f.of.Path, took, f.Kind)
		if took > most[f.Kind] {
			t.Errorf("%s takes %.2f %% of its size behind %s, want at most %.1f", f.of.Path, took, f.Path,
				most[f.Kind])
		}
		s.Run("compact", s.Dir)
		s.same("compacted", []file{f.of})
		theirs.same("compacted", []file{f.file})
		s.Run("check", "--read-data", s.Dir)
		s.Must(os.Remove(s.Path(f.of.Path)))
		s.Must(os.Remove(s.Path(f.Path)))
		s.Run("prune", "--grace", "0s", s.Dir)
	}
}
