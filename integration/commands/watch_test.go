package commands

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestWatch: a server follows a training run by files alone, and has the weights of each step.
func TestWatch(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	out := mounttest.RunPython(t, "motion.py", m.Path("runs/rl"), "192", "3")
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

// TestWatchGoesOn: a follower goes on with the next daemon, ends with the mount, and says what it cannot follow.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	save := func(step string) {
		t.Helper()
		if err := os.MkdirAll(m.Path("runs/a/"+step), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.Path("runs/a/"+step+"/model.pt"), []byte(step), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	save("1")
	cmd := mounttest.Command("watch", m.Path("runs/a"))
	r, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	want := func(step string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != m.Path("runs/a/"+step) {
			t.Fatalf("printed %q, want step %s; %s", lines.Text(), step, said.String())
		}
	}
	for _, step := range []string{"2", "3"} {
		save(step)
	}
	_ = want
	want("2")
	want("3")
	m.Upgrade(t)
	save("4")
	want("4")
	m.Unmount(t)
	if lines.Scan() {
		t.Errorf("printed %q behind the end", lines.Text())
	}
	if err := cmd.Wait(); err == nil || said.Len() == 0 {
		t.Errorf("it ended without an error: %v, %s", err, said.String())
	}
}
