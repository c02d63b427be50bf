package text

import (
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// A chain that begins without a parent says how one is declared; one that a merge began does not need any.
func TestSuggestParent(t *testing.T) {
	first := control.Model{Seq: 1, Path: "runs/resumed/6/m.pt", Tensors: 2, How: "none"}
	chain := []control.Ancestor{{Model: first}}
	l := &control.Lineage{Models: []control.ModelLineage{{Model: first, Chain: chain}}}
	says := func() bool {
		var b strings.Builder
		Lineage(&b, l)
		return strings.Contains(b.String(), "no parent of runs/resumed/6/m.pt is known") &&
			strings.Contains(b.String(), "setfattr -n user.parent")
	}
	if !says() {
		t.Error("it does not say how a parent is declared")
	}
	l.Models[0].Merged = []control.Model{{Seq: 2}}
	if says() {
		t.Error("a merged model needs no parent")
	}
	l.Models[0].Merged = nil
	l.Models = append(l.Models, l.Models[0])
	if says() {
		t.Error("of many models each would say it")
	}
}

// A model of which no tensors are known, since its bytes are not here, is not said to have none.
func TestUnknownTensors(t *testing.T) {
	first := control.Model{Seq: 2, Path: "runs/a/2/m.pt", Parent: 1, How: "previous step"}
	chain := []control.Ancestor{{Model: first}, {Model: control.Model{Seq: 1, Path: "runs/a/1/m.pt"}}}
	var b strings.Builder
	Lineage(&b, &control.Lineage{Models: []control.ModelLineage{{Model: first, Chain: chain}}})
	if got := b.String(); strings.Contains(got, "owns 0") || !strings.Contains(got, "ckptfs pull") {
		t.Error(got)
	}
}
