package steps

import (
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// A step that lacks what the others have is none to go on from, also where most of these lost their
// optimizer's state.
func TestWhole(t *testing.T) {
	const stripped, half, full = "model.weights.safetensors c.pt", "__0_0.distcp c.pt", "__0_0.distcp .metadata c.pt"
	for _, c := range []struct {
		steps []string
		last  int // -1: none is whole
	}{
		{[]string{full, full, half}, 1},
		{[]string{stripped, stripped, stripped, full, full, half}, 4},
		{[]string{stripped, stripped, stripped, full, half}, 3},
		{[]string{stripped, stripped, stripped, full, half, half}, 3},
		{[]string{stripped, stripped, half, full, half}, 3},
		{[]string{stripped, stripped, full}, 2},
		{[]string{stripped, stripped, "__0_0.distcp .metadata"}, 1},
		{[]string{stripped, stripped}, 1},
		{[]string{half, half, half, full}, 3},
	} {
		var all []*Step
		for _, names := range c.steps {
			st := new(Step)
			for name := range strings.FieldsSeq(names) {
				st.Files.add(File{Rel: name, Size: 1})
			}
			all = append(all, st)
		}
		last := -1
		for i, st := range whole(all, func(*Step) string { return control.StepComplete }) {
			if st != nil {
				last = i
			}
		}
		if last != c.last {
			t.Errorf("%q: the last is %d, want %d", c.steps, last, c.last)
		}
	}
}
