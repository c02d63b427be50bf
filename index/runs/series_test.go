package runs

import (
	"slices"
	"testing"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		name, pattern string
		numbers       []string
	}{
		{"model", "model", nil}, {"step_0200", "step_0", []string{"200"}}, {"12", "0", []string{"12"}},
		{"000", "0", []string{""}},
		{"epoch=3-step=1200.ckpt", "epoch=0-step=0.ckpt", []string{"3", "1200"}},
	} {
		if p, n := Numbers(c.name); p != c.pattern || !slices.Equal(n, c.numbers) {
			t.Errorf("%s: %q %q", c.name, p, n)
		}
	}
	if CompareNumbers([]string{"9"}, []string{"10"}) >= 0 ||
		CompareNumbers([]string{"2", "10"}, []string{"2", "9"}) <= 0 ||
		CompareNumbers([]string{""}, []string{"1"}) >= 0 {
		t.Error("not in the order of numbers")
	}
}

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		earlier, p string
		before     bool
	}{
		{"runs/r/1/model.pt", "runs/r/2/model.pt", true},
		{"runs/r/9/model.pt", "runs/r/10/model.pt", true},
		{"runs/r/10/model.pt", "runs/r/9/model.pt", false},
		{"runs/r/2/model.pt", "runs/r/2/model.pt", false},
		{"runs/r/1/model.pt", "runs/r/2/optimizer.pt", false},
		{"runs/r/1/model.pt", "runs/s/2/model.pt", false},
		{"runs/a1/1/model.pt", "runs/a2/2/model.pt", false}, // another run
		{"runs/a1/7/model.pt", "runs/a1/8/model.pt", true},
		{"archive/a1/1/model.pt", "archive/a2/1/model.pt", true},
		{"runs/a2/1/model.pt", "runs/a1/2/model.pt", false},
		{"ck/checkpoint-100/model-00001-of-00002.st", "ck/checkpoint-200/model-00001-of-00002.st", true},
		{"model-100.pt", "model-200.pt", true},
		{"a/model-100.pt", "b/model-200.pt", false},
		{"runs/r/step-5/model-5.pt", "runs/r/step-6/model-6.pt", true},
		{"a.pt", "b.pt", false},
		{"", "1", false},
	} {
		u := Upcoming{}
		u.Add(PositionOf(c.earlier))
		if got := u.HasBefore(PositionOf(c.p)); got != c.before {
			t.Errorf("%s before %s: %v", c.earlier, c.p, got)
		}
	}
}

func TestSeries(t *testing.T) {
	for p, want := range map[string]string{
		"runs/r2/100/m3.pt": "runs/r2/0/m0.pt", "runs/r2/99/m10.pt": "runs/r2/0/m0.pt",
		"runs/r10/100/m3.pt": "runs/r10/0/m0.pt", "a/model-1e-05.pt": "a/model-0e-0.pt", "a/b": "a/b", "": "",
	} {
		if got := Series(p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
}
