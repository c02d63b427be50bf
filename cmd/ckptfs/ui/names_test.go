package ui

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
)

// A name of a million levels makes a tree of few, and its page has a URL that a browser takes.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("<b>a.", 1<<18)
	var all []control.Owned
	for _, name := range []string{long + "x", long + "y", "short.w"} {
		all = append(all, control.Owned{Tensor: control.Tensor{Name: name}, Owner: -1})
	}
	top := tree(all, "")
	b := &tensorsBody{Outline: &control.Outline{File: &control.File{Path: "runs/a/1/f"}}}
	b.about(top.Kids)
	nodes := 0
	var walk func(all []*node, depth int)
	walk = func(all []*node, depth int) {
		if depth > mostLevels {
			t.Fatalf("a level %d", depth)
		}
		for _, n := range all {
			nodes++
			if len(n.URL) > 3*mostTitle {
				t.Errorf("a URL of %d bytes", len(n.URL))
			}
			walk(n.Kids, depth+1)
		}
	}
	walk(top.Kids, 0)
	if nodes > 2*mostLevels {
		t.Errorf("%d nodes", nodes)
	}
	u, err := url.Parse(tensorURL("f", long))
	if err != nil {
		t.Fatal(err)
	}
	if q := u.Query(); q.Get("sha256") != hashOf(long) || q.Has("name") {
		t.Error("the URL of a long name asks for another")
	}
}

// A tensor of a set is at home in each file of it.
func TestHome(t *testing.T) {
	for _, c := range []struct {
		path, state, owner string
		want               bool
	}{
		{"runs/a/1/m.pt", control.StatePacked, "runs/a/1/m.pt", true},
		{"runs/a/1/m.pt", control.StatePacked, "runs/a/1/n.pt", false},
		{"runs/a/1", "", "runs/a/1/m-1.safetensors", true},
		{"runs/a/1", "", "runs/a/10/m-1.safetensors", false},
		{"runs/a/1/model.safetensors.index.json", "", "runs/a/1/m-1.safetensors", true},
		{"runs/a/2/model.safetensors.index.json", "", "runs/a/1/m-1.safetensors", false},
	} {
		b := &tensorsBody{Outline: &control.Outline{File: &control.File{Path: c.path, State: c.state}}}
		if b.has(c.owner) != c.want {
			t.Errorf("%+v", c)
		}
	}
}

// Of very many tensors without levels a page shows some, and leads to all others by how their names begin.
func TestFlat(t *testing.T) {
	var entries []safetensors.Entry
	for i := range 5000 {
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("w%04d", i), DType: formats.F32,
			Shape: []int64{1}})
	}
	head, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := serveStore(t, false, map[string][]byte{
		"runs/f/1/model.safetensors": append(head, make([]byte, 4*len(entries))...)})
	const file = "/part/tensors?path=runs/f/1/model.safetensors"
	_, b := ask(t, s.gate, "GET", file, local)
	n := strings.Count(b, "<li>")
	if n != mostKids || len(b) > 1<<20 || !strings.Contains(b, `name="prefix"`) {
		t.Errorf("%d of %d tensors, %d bytes", n, len(entries), len(b))
	}
	_, b = ask(t, s.gate, "GET", file+"&prefix=w499", local)
	if n = strings.Count(b, "<li>"); n != 10 || !strings.Contains(b, "name=w4999") {
		t.Errorf("%d of 10 tensors: %s", n, b)
	}
}

// Links lead to runs and steps whose names are not UTF-8.
func TestNamesOfBytes(t *testing.T) {
	s := serveStore(t, false, map[string][]byte{"runs/\xff\xfe/1\xfd/metrics.json": []byte(`{"val_loss": 0.5}`)})
	run, step := withQuery("/run", "run", "\xff\xfe"), pathURL("runs/\xff\xfe/1\xfd")
	for _, c := range []struct{ at, link string }{{"/runs", run}, {run, step}, {step, run}} {
		r, b := ask(t, s.gate, "GET", c.at, local)
		if r.StatusCode != http.StatusOK || !strings.Contains(b, html.EscapeString(c.link)) {
			t.Errorf("%s: %d, without %s: %.2000s", c.at, r.StatusCode, c.link, b)
		}
	}
	// A form asks for them, too.
	if _, b := ask(t, s.gate, "GET", "/runs", local); !strings.Contains(b, `name="run%" value="%FF%FE"`) {
		t.Errorf("the form of runs: %.3000s", b)
	}
	r, b := ask(t, s.gate, "GET", "/compare?run%25=%25FF%25FE", local)
	if r.StatusCode != http.StatusOK || !strings.Contains(strings.ToLower(b), strings.ToLower(run)) {
		t.Errorf("runs are compared: %d: %.3000s", r.StatusCode, b)
	}
}
