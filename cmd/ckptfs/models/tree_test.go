package models

import (
	"bytes"
	"math"
	"testing"

	"ckptfs/cas/golden"
	"ckptfs/fs/control"
)

func TestTree(t *testing.T) {
	run := func(name, from string, metrics map[string]control.Number, merged ...string) *branch {
		return &branch{Run: control.Run{Run: name, Steps: 3, LogicalBytes: 1 << 20}, From: from,
			MergedFrom: merged, LastMetrics: metrics}
	}
	b := run("base", "", map[string]control.Number{"loss": 0.25, "acc": 1. / 3})
	b.Torn, b.Writing = 1, 2
	all := []*branch{
		run("again", "runs/made/1", nil), b,
		run("esc\x1b", "runs/base/1", map[string]control.Number{"loss": control.Number(math.NaN())}),
		run("made", "runs/again/2", nil),
		run("merge", "runs/tune/2", map[string]control.Number{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
			"runs/esc\x1b/2", "runs/tune/2"),
		run("orphan", "runs/gone/3", nil), run("tune", "runs/base/1200", nil),
		run("tune-2", "runs/tune/3", nil),
	}
	var out bytes.Buffer
	printTree(&out, all)
	golden.Same(t, "tree.golden", out.String())
}

// The step of another run is looked for along the chain, past the run's own steps and past what is no step.
func TestComesFrom(t *testing.T) {
	chain := func(paths ...string) (l control.ModelLineage) {
		for _, p := range paths {
			l.Chain = append(l.Chain, control.Ancestor{Model: control.Model{Path: p}})
		}
		return l
	}
	merged := chain("runs/a/1/x")
	merged.Merged = []control.Model{{Path: "runs/b/2/x"}, {Path: "runs/c/1/x"}, {Path: "runs/c/1/y"}}
	for _, tc := range []struct {
		models []control.ModelLineage
		from   string
		merged int
	}{
		{nil, "", 0},
		{[]control.ModelLineage{chain("runs/a/1/m", "runs/a/0/m", "runs/b/7/m", "runs/c/1/m")},
			"runs/b/7", 0},
		{[]control.ModelLineage{chain("runs/a/1/m", "up/loaded.pt", "runs/b")}, "", 0},
		{[]control.ModelLineage{chain("runs/a/1/o"), chain("runs/a/1/m", "runs/b/e=1.ckpt")},
			"runs/b/e=1.ckpt", 0},
		{[]control.ModelLineage{merged}, "runs/b/2", 2},
	} {
		b := &branch{Run: control.Run{Run: "a"}}
		b.comes(&control.Lineage{Models: tc.models})
		if b.From != tc.from || len(b.MergedFrom) != tc.merged {
			t.Errorf("from %q, merged from %q, want %q and %d", b.From, b.MergedFrom, tc.from, tc.merged)
		}
	}
}
