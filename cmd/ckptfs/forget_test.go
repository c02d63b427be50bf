package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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
	for _, bad := range []string{"", "loss", "loss=", "loss=0", "=3", "loss:most=1", "loss=-1"} {
		if got, err := parseBest(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestStepsOf(t *testing.T) {
	run := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for name, content := range map[string]string{
		"10/model.pt": "x", "10/metrics.json": `{"loss": 0.5}`, "9/deep/model.pt": "y", "new/model.pt": "z", "notes.txt": "n",
		forgottenPrefix + "8/model.pt": "left",
	} {
		makeFile(t, filepath.Join(run, name), content)
		if filepath.Dir(name) != "new" {
			if err := os.Chtimes(filepath.Join(run, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, err := range []error{os.Mkdir(filepath.Join(run, "empty"), 0o755), os.Symlink("10", filepath.Join(run, "latest"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	steps, err := stepsOf(run)
	if err != nil || len(steps) != 3 {
		t.Fatalf("%+v, %v", steps, err)
	}
	runs.Sort(steps)
	if steps[0].Name != "9" || !steps[0].Complete || steps[1].Name != "10" || steps[1].Metrics["loss"] != 0.5 || steps[2].Name != "new" || steps[2].Complete {
		t.Errorf("%+v", steps)
	}
	if err := removeStep(run, "9"); err != nil {
		t.Fatal(err)
	}
	if err := removeLeft(run); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(run + "/*")
	if err != nil || len(left) != 5 {
		t.Errorf("%q", left)
	}
	if hidden, _ := filepath.Glob(run + "/.*"); len(hidden) > 0 {
		t.Errorf("%q", hidden)
	}
	makeFile(t, filepath.Join(run, "10/metrics.json"), `{"loss": `)
	if _, err := stepsOf(run); err == nil {
		t.Error("metrics that cannot be read are none")
	}
}
