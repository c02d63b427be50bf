package quants

import (
	"strings"
	"testing"
)

// TestTold: what files are computed from is told of their tensors and of the files, and proved.
func TestTold(t *testing.T) {
	m := tiny(t)
	s := newStore(t, m)
	files := m.files[:2]
	for _, f := range m.files[2:] {
		if f.Kind == "Q4_K_M" || f.Kind == "FP8" {
			files = append(files, f)
		}
	}
	s.add(files)
	hf := files[0]
	for _, f := range files[1:] {
		var shown struct {
			Tensors []struct {
				Name     string
				Bytes    int64
				StoredAs *struct {
					Op, Order string
					Bases     []struct{ Path, Tensor string }
					Scales    float64
				} `json:"stored_as"`
			}
		}
		s.JSON(&shown, "show", "--json", s.Path(f.Path))
		told := 0
		for _, x := range shown.Tensors {
			as := x.StoredAs
			if as == nil {
				continue
			}
			told++
			if len(as.Bases) != 1 || as.Bases[0].Path != hf.Path || as.Bases[0].Tensor == "" ||
				as.Op != "quantised" && as.Order != "rope-permuted" || as.Scales > 0.1 {
				t.Errorf("%v: %s is stored as %+v", f, x.Name, as)
			}
		}
		if told < 8 {
			t.Errorf("%v: %d tensors are stored with the help of others", f, told)
		}
		said := s.Run("lineage", s.Path(f.Path))
		if !strings.Contains(said, ": reproduced: ") || !strings.Contains(said, " "+hf.Path+"; 99.") {
			t.Errorf("%v: %s", f, said)
		}
		said = s.Run("verify", s.Path(f.Path), "--from", s.Path(hf.Path))
		if !strings.HasPrefix(said, "yes: 99.") {
			t.Errorf("%v: %s", f, said)
		}
	}
	said, code := s.RunOutcome("verify", s.Path(hf.Path), "--from", s.Path(files[2].Path))
	if code != 1 || !strings.Contains(said, "no: 0 % ") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
