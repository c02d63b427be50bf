package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

func TestParseBest(t *testing.T) {
	for s, want := range map[string]runs.KeepBest{
		"loss=2":        {Metric: "loss", N: 2},
		"val/acc:max=1": {Metric: "val/acc", Mode: runs.Max, N: 1},
		"x:min=3":       {Metric: "x", N: 3},
	} {
		if got, err := parseBest(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "loss", "loss=", "loss=0", "=3", "loss:most=1", "loss=-1", ":max=1",
		":=1", "loss:=1"} {
		if got, err := parseBest(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

// openedRun is openRun of a folder on whatever device it is.
func openedRun(t *testing.T, dir string) *os.Root {
	t.Helper()
	run, err := openRun(dir, deviceAt(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return run
}

func deviceAt(t *testing.T, dir string) procs.Device {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return procs.Device{Major: int(unix.Major(st.Dev)), Minor: int(unix.Minor(st.Dev))}
}

// A run whose folder is replaced by a link loses its own steps, and nobody else's.
func TestRemoveStepOfSwappedRun(t *testing.T) {
	base := realDir(t)
	mine, moved := filepath.Join(base, "mine"), filepath.Join(base, "moved")
	others := filepath.Join(base, "others")
	left := forgottenPrefix + "0123456789abcdef"
	for _, dir := range []string{mine, others} {
		makeFile(t, filepath.Join(dir, "1/model.pt"), "x")
		makeFile(t, filepath.Join(dir, left, "model.pt"), "x")
	}
	makeFile(t, filepath.Join(others, "deep/1/model.pt"), "x")
	if err := os.Symlink(filepath.Join(others, "deep"), filepath.Join(mine, "1/link")); err != nil {
		t.Fatal(err)
	}
	run := openedRun(t, mine)
	if err := errors.Join(os.Rename(mine, moved), os.Symlink(others, mine)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(removeStep(run, "1"), removeLeft(run)); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(moved); err != nil || len(names) != 0 {
		t.Errorf("left in the run: %v, %v", names, err)
	}
	for _, name := range []string{"1/model.pt", left + "/model.pt", "deep/1/model.pt"} {
		if _, err := os.Stat(filepath.Join(others, name)); err != nil {
			t.Error(err)
		}
	}
	if run, err := openRun(mine, deviceAt(t, others)); err == nil {
		run.Close()
		t.Error("a link is opened as a run")
	}
	if run, err := openRun(others, procs.Device{Major: 1, Minor: 2}); err == nil {
		run.Close()
		t.Error("a folder on another device is opened as a run")
	}
}

func TestRemoveStep(t *testing.T) {
	dir := realDir(t)
	for name, content := range map[string]string{"9/deep/model.pt": "y", "10/model.pt": "x", "notes.txt": "n",
		forgottenPrefix + "0123456789abcdef/model.pt": "left", forgottenPrefix + "notes/mine": "kept"} {
		makeFile(t, filepath.Join(dir, name), content)
	}
	run := openedRun(t, dir)
	if err := removeStep(run, "9"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("s", 255)
	makeFile(t, filepath.Join(dir, long, "model.pt"), "z")
	if err := removeStep(run, long); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"epoch=1.ckpt", forgottenPrefix + "fedcba9876543210"} {
		makeFile(t, filepath.Join(dir, name), "f")
	}
	if err := removeStep(run, "epoch=1.ckpt"); err != nil {
		t.Fatal(err)
	}
	if err := removeLeft(run); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 || left[0].Name() != forgottenPrefix+"notes" || left[1].Name() != "10" ||
		left[2].Name() != "notes.txt" {
		t.Errorf("%q", left)
	}
}

// Complete is what is closed and at rest; metrics that cannot be read choose nothing.
func TestJudged(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	l := &control.RunLog{Steps: []control.Step{
		{Step: "1", State: control.StepComplete, Time: old, Metrics: map[string]control.Number{"loss": 0.5}},
		{Step: "2", State: control.StepTorn, Time: old},
		{Step: "3", State: control.StepWriting, Time: old, Problem: "metrics.json: cut off"},
		{Step: "4", State: control.StepComplete, Time: time.Now()},
	}}
	steps, err := judged(l, false)
	if err != nil || !steps[0].Complete || steps[0].Metrics["loss"] != 0.5 {
		t.Errorf("%+v, %v", steps, err)
	}
	for _, s := range steps[1:] {
		if s.Complete || s.Writing != (s.Name != "2") {
			t.Errorf("%+v", s)
		}
	}
	if _, err := judged(l, true); err == nil {
		t.Error("metrics that cannot be read are none")
	}
}
