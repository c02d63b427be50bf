package control

import (
	"encoding/json"
	"testing"
)

// Whoever asks for runs and steps is told their names as they are, also if these are not UTF-8.
func TestExactNames(t *testing.T) {
	for _, name := range []string{"a", "\xff\xfeb", "\ufffd"} {
		var run Run
		var step Step
		for said, to := range map[any]any{&Run{Run: name, Exact: Exact(name), Steps: 3}: &run,
			&Step{Step: name, Exact: Exact(name), Files: 3}: &step} {
			p, err := json.Marshal(said)
			if err == nil {
				err = json.Unmarshal(p, to)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if run.Run != name || run.Steps != 3 || step.Step != name || step.Files != 3 {
			t.Errorf("%q: %+v, %+v", name, run, step)
		}
	}
}
