package ledger

import (
	"reflect"
	"strings"
	"testing"
)

func TestDeclared(t *testing.T) {
	for in, want := range map[string]Declared{
		`{}`:                                    {},
		`{"parent": "runs/a/3", "by": [1, {}]}`: {Parent: "runs/a/3"},
		`{"parent": "x", "how": "transfer", "tensors": {"a": "b"}}`: {Parent: "x", Transfer: true, Tensors: map[string]string{"a": "b"}},
		`{"parent": null, "merged_from": ["x", "../2"]}`:            {MergedFrom: []string{"x", "../2"}},
	} {
		if d, err := ParseDeclared([]byte(in)); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("%s: %+v, %v", in, d, err)
		}
	}
	for _, in := range []string{``, `[]`, `{"parent": 3}`, `{"parent": "a\u0000"}`, `{"merged_from": "x"}`, `{"tensors": {"a": 1}}`, `{"parent": "` + strings.Repeat("x", 5000) + `"}`,
		strings.Repeat(" ", MaxDeclared) + "{}"} {
		if d, err := ParseDeclared([]byte(in)); err == nil {
			t.Errorf("%.40s: %+v", in, d)
		}
	}
}

func TestResolve(t *testing.T) {
	for said, want := range map[string]string{
		"runs/b/1": "runs/b/1", "runs/b/1/": "runs/b/1", "../2": "runs/a/2", "../../b/1/m.pt": "runs/b/1/m.pt", "/mnt/x/runs/b/1": "runs/b/1",
		"": "", "runs/a/3": "", "models/x": "", "/etc/passwd": "", "../../../../../etc": "", ".": "", "/mnt/xruns/b": "",
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
