package clients

import (
	"os"
	"path"
	"regexp"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestResume: trainers that were killed in the middle of a save go on from the last whole step: by what the
// library finds itself where torn steps are hidden, and by the link of the run.
func TestResume(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hide-torn")
	for _, c := range []struct {
		library, run  string
		half, between string // files at which it is killed
		then          string // where it goes on then
		itself        bool   // it finds that by itself, too; else by the link
	}{
		{"transformers", "trainer", "optimizer.pt", "-", "3", false},
		{"accelerate", "checkpoints", "optimizer.bin", "-", "3", false},
		// Its last.ckpt is torn then; the step is not.
		{"lightning", "lightning", "epoch=2.ckpt", "last.ckpt", "4", false},
		{"lightning-link", "linked", "epoch=2.ckpt", "epoch=3.ckpt", "3", true},
	} {
		t.Run(c.run, func(t *testing.T) {
			t.Parallel()
			run, link := m.Path("runs/"+c.run), m.Path(".ckptfs/latest/"+c.run)
			if err := os.MkdirAll(run, 0o755); err != nil {
				t.Fatal(err)
			}
			goesOn := func(saves, want string, args ...string) {
				t.Helper()
				args = append([]string{c.library, run, saves}, args...)
				out := mounttest.RunPython(t, "resume.py", args...)
				if began := regexp.MustCompile(`(?m)^\d+$`).FindString(out); began != want {
					t.Errorf("it went on from step %q, not %s: %s", began, want, out)
				}
			}
			dies := func(saves, file string) {
				t.Helper()
				out, err := mounttest.TryPython(t, "resume.py", c.library, run, saves, "--die", file)
				if err == nil {
					t.Errorf("it was not killed: %s", out)
				}
			}
			leadsTo := func() string {
				t.Helper()
				to, err := os.Readlink(link)
				if err != nil {
					t.Error(err)
				}
				return path.Base(to)
			}
			dies("3", c.half)
			second := leadsTo()
			goesOn("3", "2")
			if to := leadsTo(); to == second {
				t.Errorf("the link still leads to %s", to)
			}
			dies("4", c.between)
			if c.itself {
				goesOn("4", c.then)
				dies("5", "epoch=4.ckpt")
				c.then = "4"
			}
			goesOn("5", c.then, "--from", link)
		})
	}
}
