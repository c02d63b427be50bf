package commands

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestWatchGoesOn: a follower goes on with the next daemon, and ends with the mount.
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
	cmd := exec.Command(mounttest.Bin, "watch", "--all", "--settle", "1ms", m.Path("runs/a"))
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
	want("1")
	save("2")
	want("2")
	m.Run("upgrade", m.Dir)
	save("3")
	want("3")
	m.Must(m.Stop())
	if lines.Scan() {
		t.Errorf("printed %q behind the end", lines.Text())
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "unmounted") {
		t.Errorf("it ended without an error: %v, %s", err, said.String())
	}
}
