package ledger

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestDeclared(t *testing.T) {
	for in, want := range map[string]Declared{
		`{}`:                                    {},
		`{"parent": "runs/a/3", "by": [1, {}]}`: {Parent: "runs/a/3"},
		`{"parent": "x", "how": "transfer", "tensors": {"a": "b"}}`: {Parent: "x",
			Transfer: true, Tensors: map[string]string{"a": "b"}},
		`{"parent": null, "merged_from": ["x", "../2"]}`:                                {MergedFrom: []string{"x", "../2"}},
		`{"parent": "x", "how": "declared", "tensors": null, "note": {"a": 1, "a": 2}}`: {Parent: "x"},
		`{"parent": "x", "how": "transfer", "tensors": {"a": "b"}, "tied": {"a": ["c"]}}`: {Parent: "x",
			Transfer: true, Tensors: map[string]string{"a": "b"},
			Tied: map[string][]string{"a": {"c"}}},
	} {
		if d, err := ParseDeclared([]byte(in)); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("%s: %+v, %v", in, d, err)
		}
	}
	for _, in := range []string{`{"parent": "a", "parent": "b"}`, `{"parent": "a", "note": 1, "note": 2}`,
		`{"tensors": {"a": "b", "a": "c"}}`, `{"tied": {"a": ["b"], "a": ["c"]}}`,
		`{"parent": "a", "how": "guessed"}`, `{"how": 1}`, `{"how": ["transfer"]}`, `{"Parent": "a"}`,
		`{"parent": "a", "Tensors": {}}`, `{"tensors": {"": "a"}}`, `{"tensors": {"a": ""}}`,
		`{"tensors": {"a": null}}`, `{"merged_from": [null]}`, `{"tied": {"a": "b"}}`, `{"tied": {"a": [1]}}`,
		`{"parent": "a"} {}`, `{"parent": "a"`, "{\"parent\": \"\xff\"}", `null`,
		``, `[]`, `{"parent": 3}`, `{"parent": "a\u0000"}`, `{"merged_from": "x"}`, `{"tensors": {"a": 1}}`,
		`{"parent": "` + strings.Repeat("x", 5000) + `"}`,
		strings.Repeat(" ", MaxDeclared) + "{}"} {
		if d, err := ParseDeclared([]byte(in)); err == nil {
			t.Errorf("%.40s: %+v", in, d)
		}
	}
}

func TestResolve(t *testing.T) {
	for said, want := range map[string]string{
		"runs/b/1": "runs/b/1", "runs/b/1/": "runs/b/1", "../2": "runs/a/2",
		"../../b/1/m.pt": "runs/b/1/m.pt", "/mnt/x/runs/b/1": "runs/b/1",
		"": "", "runs/a/3": "", "models/x": "", "/etc/passwd": "", "../../../../../etc": "", ".": "",
		"/mnt/xruns/b": "",
	} {
		got, err := Resolve(said, "runs/a/3", "/mnt/x")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", said, got, err)
		}
	}
	if got, err := Resolve("/runs/a/2", "runs/a/3", ""); err == nil {
		t.Error(got)
	}
}

// The names of a list are those of the step's tensors and of the parent's.
func TestBind(t *testing.T) {
	set := func(names ...string) map[string]bool {
		m := map[string]bool{}
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	renames := map[string]string{"stem": "embed", "head": "out"}
	tied := map[string][]string{"head": {"tail"}}
	for name, c := range map[string]struct {
		ours, theirs map[string]bool
		want         map[string]string
		unknown      string
	}{
		"both":                     {set("stem", "head", "x"), set("embed", "out", "y"), renames, ""},
		"parent not known":         {set("stem", "head"), nil, renames, ""},
		"unknown in the step":      {set("stem", "x"), set("embed", "out"), nil, `"head"`},
		"unknown in the parent":    {set("stem", "head"), set("embed"), nil, `"out"`},
		"the parent's in the step": {set("embed", "out"), set("embed", "out"), nil, `"head"`},
		"nothing":                  {nil, nil, nil, `"head"`},
		"behind a prefix": {set("model.stem", "model.head", "opt.stem"), nil,
			map[string]string{"model.stem": "embed", "model.head": "out"}, ""},
		"behind two": {set("m.stem", "m.head", "ema/stem", "ema/head"), nil,
			map[string]string{"m.stem": "embed", "m.head": "out", "ema/stem": "embed", "ema/head": "out"},
			""},
		"behind different ones": {set("m.stem", "n.head"), nil, nil, `"head"`},
		"tied": {set("stem", "tail"), nil,
			map[string]string{"stem": "embed", "tail": "out"}, ""},
		"tied, behind a prefix": {set("m.stem", "m.tail"), nil,
			map[string]string{"m.stem": "embed", "m.tail": "out"}, ""},
		"a word is no prefix": {set("mstem", "mhead"), nil, nil, `"head"`},
	} {
		d := Declared{Tensors: renames, Tied: tied}
		if name == "unknown in the step" || name == "the parent's in the step" {
			d.Tied = nil
		}
		got, err := d.Bind(c.ours, c.theirs)
		if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.unknown == "") ||
			err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.unknown)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	// What the list itself says of a name goes before what is said of one tied to it.
	d := Declared{Tensors: map[string]string{"head": "out", "tail": "end"},
		Tied: map[string][]string{"head": {"tail"}}}
	if got, err := d.Bind(set("head", "tail"), nil); err != nil || !reflect.DeepEqual(got, d.Tensors) {
		t.Errorf("%v, %v", got, err)
	}
}
