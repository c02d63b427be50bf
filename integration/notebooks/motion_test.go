package notebooks

import (
	"encoding/json"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestWatch: a server follows a training run by files alone, and has the weights of each step.
func TestWatch(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	out := mounttest.RunPython(t, "motion.py", packageDir(t), mounttest.Bin, m.Path("runs/rl"), "192", "3")
	told := 0
	for line := range strings.Lines(out) {
		var s struct {
			Step         string
			Patch, Model int64
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if s.Patch > s.Model/4 {
			t.Errorf("step %s: a patch of %d bytes, of a model of %d", s.Step, s.Patch, s.Model)
		}
		told++
	}
	if told != 3 {
		t.Errorf("%d steps: %s", told, out)
	}
}
