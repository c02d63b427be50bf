package models

import (
	"slices"
	"testing"
	"time"

	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

func TestParseBest(t *testing.T) {
	for s, want := range map[string]runs.KeepBest{
		"loss=2":        {Metric: "loss", N: 2},
		"val/acc:max=1": {Metric: "val/acc", Mode: runs.Max, N: 1},
		"x:min=3":       {Metric: "x", N: 3},
		"val/acc=4":     {Metric: "val/acc", Mode: runs.Max, N: 4},
		"val/acc:min=4": {Metric: "val/acc", N: 4},
	} {
		if got, err := parseBest(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "loss", "loss=", "loss=0", "=3", "loss:most=1", "loss=-1", ":max=1",
		":=1", "loss:=1", "lr=1", "x=3"} {
		if got, err := parseBest(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
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
	loss := runs.Metrics{{Name: "loss", Value: 0.5}}
	if err != nil || !steps[0].Complete || !slices.Equal(steps[0].Metrics, loss) {
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

// What is behind the step that a run can be gone on from is kept and does not count: a program that was
// killed between two files left it.
func TestJudgedBehindLast(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	l := &control.RunLog{Last: "step-9"}
	for _, name := range []string{"step-8", "step-9", "step-10", "step-final"} {
		l.Steps = append(l.Steps, control.Step{Step: name, State: control.StepComplete, Time: old})
	}
	for last, want := range map[string][]string{
		"step-9": {"step-9", "step-10", "step-final"}, "step-10": {"step-10", "step-final"},
		"": {"step-final"},
	} {
		l.Last = last
		steps, err := judged(l, false)
		if err != nil {
			t.Fatal(err)
		}
		decisions, err := runs.Policy{KeepLast: 1, ForgetTorn: true}.Decide(steps, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, d := range decisions {
			if d.Keep {
				kept = append(kept, d.Step.Name)
			}
		}
		if !slices.Equal(kept, want) {
			t.Errorf("last %q: %q are kept, want %q", last, kept, want)
		}
	}
	l.Last = "step-9"
	l.Steps[0].Metrics = map[string]control.Number{"loss": 1}
	steps, err := judged(l, true)
	if err != nil {
		t.Fatal(err)
	}
	best := []runs.KeepBest{{Metric: "loss", N: 1}}
	for _, p := range []runs.Policy{{KeepWithin: time.Minute}, {KeepBest: best}} {
		decisions, err := p.Decide(steps, time.Now())
		if err != nil || !decisions[1].Keep || !decisions[2].Keep {
			t.Errorf("%+v: %+v, %v", p, decisions, err)
		}
	}
}
