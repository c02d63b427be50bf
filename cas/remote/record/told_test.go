package record

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/golden"
)

func exampleTold() *Told {
	at := func(b byte) Ref { return Ref{Object: id(b), Off: 64, Stored: 100} }
	return &Told{Manifest: cas.Hash{7}, Model: &Model{
		Parent: Parent{"runs/a/1/m", cas.Hash{8}}, How: "declared",
		Merged: []Parent{{Path: "runs/b/1/m"}},
		Graph:  []Part{{cas.Hash{1}, at(9)}, {cas.Hash{2}, at(5)}}, Source: "sidecar"},
		Above:   []Ancestor{{Parent{"runs/a/0/m", cas.Hash{9}}, "previous step"}},
		Metrics: []Metric{{"loss", 0.5}}}
}

func TestTold(t *testing.T) {
	p, err := exampleTold().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "told.hex", annotateTold(p))
	for name, x := range map[string]*Told{"all": exampleTold(), "nothing": {},
		"metrics": {Metrics: []Metric{{"loss", math.Inf(1)}}},
		"a model": {Manifest: cas.Hash{1}, Model: &Model{}}} {
		p, err := x.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := DecodeTold(p); err != nil || !reflect.DeepEqual(got, x) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, change := range map[string]func(x *Told){
		"no manifest":       func(x *Told) { x.Manifest = cas.Hash{} },
		"no model":          func(x *Told) { x.Model = nil },
		"ancestor outside":  func(x *Told) { x.Above[0].Path = "etc/passwd" },
		"how of nothing":    func(x *Told) { x.Above[0].How = "" },
		"many ancestors":    func(x *Told) { x.Above = make([]Ancestor, maxAbove+1) },
		"a part outside":    func(x *Told) { x.Model.Graph[0].Off = MaxObject },
		"metrics out order": func(x *Told) { x.Metrics = []Metric{{"b", 1}, {"a", 1}} },
		"much":              func(x *Told) { x.Model.Merged = manyParents() },
	} {
		x := exampleTold()
		change(x)
		if _, err := x.Encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func manyParents() []Parent {
	all := make([]Parent, maxMerged)
	for i := range all {
		all[i].Path = "runs/" + strings.Repeat("x", 200)
	}
	return all
}

func annotateTold(p []byte) string {
	n := &notes{p: p}
	n.note(4, "magic %q", p[:4])
	n.fixed(1, "flags")
	n.note(32, "manifest")
	for range n.num("objects:") {
		n.note(16, "  id")
	}
	size := n.num("model: bytes")
	n.note(int(size), "  as in an entry")
	for range n.num("above:") {
		n.str("  path")
		n.note(33, "  manifest")
		n.str("  how")
	}
	for range n.num("metrics:") {
		n.str("  name")
		n.note(8, "  value")
	}
	return n.String()
}

func FuzzTold(f *testing.F) {
	for _, x := range []*Told{exampleTold(), {}} {
		p, err := x.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		bounded(t, len(p), 200, 1<<16, func() {
			checkAgain(t, p, func(p []byte) ([]byte, error) {
				x, err := DecodeTold(p)
				if err != nil {
					return nil, err
				}
				return x.Encode()
			})
		})
	})
}
