package policy

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, rules ...string) *Policy {
	t.Helper()
	p, err := Parse([]byte(Head + "\n" + strings.Join(rules, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Patterns match as those of gitignore do.
func TestPatterns(t *testing.T) {
	for _, c := range []struct{ pattern, yes, no string }{
		{"*.gguf", "a.gguf b/c/a.gguf a.gguf/x", "a.ggufs b/gguf"},
		{"model.pt", "model.pt a/model.pt a/model.pt/b", "xmodel.pt model.ptx"},
		{"/model.pt", "model.pt model.pt/a", "a/model.pt"},
		{"runs/prod", "runs/prod runs/prod/1/m.pt", "a/runs/prod runs/prods"},
		{"runs/prod/**", "runs/prod/1/m.pt runs/prod/x", "runs/prod runs/prods/x"},
		{"runs/*/last", "runs/a/last runs/a/last/m.pt", "runs/a/b/last runs/last"},
		{"runs/**/last", "runs/last runs/a/last runs/a/b/last/m.pt", "runs/a/lasts"},
		{"**/x/y", "x/y a/x/y a/b/x/y/z", "xx/y"},
		{"**", "a a/b", ""},
		{"runs/", "runs/a a/runs/b", "runs a/runs"},
		{"step-?", "step-1 a/step-2/m.pt", "step-10 step-"},
		{"step-[0-4]", "step-3", "step-5"},
		{"step-[!0-4]", "step-5", "step-3"},
		{`a\*`, "a* x/a*", "ab"},
		{`\[!a]`, "[!a]", "[^a] b"},
		{`/a\ b`, "a b a b/c", "ab"},
		{"a**b", "ab axxb", "a/b"},
		{"**/**/m", "m a/m a/b/c/m", "mm"},
	} {
		p := parse(t, c.pattern+" plain")
		list := func(s string) []string {
			if strings.Contains(c.pattern, `\ `) {
				return []string{s}
			}
			return strings.Fields(s)
		}
		if c.pattern == `/a\ b` {
			c.yes = "a b/c"
		}
		for _, y := range list(c.yes) {
			if !p.Is(Plain, y) {
				t.Errorf("%s does not match %s", c.pattern, y)
			}
		}
		for _, n := range list(c.no) {
			if p.Is(Plain, n) {
				t.Errorf("%s matches %s", c.pattern, n)
			}
		}
	}
}

// Of the rules of one kind the last one decides, whether it is of one path or of many.
func TestLastDecides(t *testing.T) {
	p := parse(t, "runs/** hydrated", "!runs/tmp/** hydrated", "/runs/tmp/keep hydrated", "*.gguf plain",
		"!/a.gguf plain")
	for path, want := range map[string]bool{
		"runs/a/m.pt": true, "runs/tmp/m.pt": false, "runs/tmp/keep/m.pt": true, "x": false,
	} {
		if got := p.Is(Hydrated, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if p.Is(Plain, "a.gguf") || !p.Is(Plain, "b/a.gguf") || p.Is(Plain, "runs/a/m.pt") {
		t.Error("a rule of another kind, or of another path, decides")
	}
	p = parse(t, "/a hydrated", "!** hydrated")
	if p.Is(Hydrated, "a") {
		t.Error("an earlier rule of one path decides")
	}
	p = parse(t, "runs/** drop-optimizer keep-last=2", "runs/b/** drop-optimizer keep-last=5 older-than=2w")
	if r := p.Of(Drop, "runs/b/1/m.pt"); r == nil || r.KeepLast != 5 || r.OlderThan != 14*24*time.Hour {
		t.Errorf("%+v", r)
	}
	again, err := Lines(2, func(i int) (int, string, string) {
		r := p.Rules()[i]
		return r.Line + 3, r.Pattern, r.What()
	})
	if err != nil || again.Of(Drop, "runs/b/1/m.pt").Line != 6 {
		t.Errorf("%+v, %v", again, err)
	}
	var none *Policy
	if none.Is(Plain, "a") || none.Has(Plain) || none.Rules() != nil {
		t.Error("there are rules where there are none")
	}
}

// What cannot be read is an error that names the line.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "line 1: ",
		"x\n":                       "line 1: ",
		"ckptfs policy 2\n":         "version",
		Head + "\n\n# a\n*.pt\n":    "line 4: ",
		Head + "\n*.pt packed\n":    "there is no rule",
		Head + "\n*.pt plain now\n": "takes nothing",
		Head + "\na drop-optimizer keep-last=2 keep-last=3\n": "twice",
		Head + "\n[a plain\n":                                "without its ]",
		Head + "\na//b plain\n":                              "two slashes",
		Head + "\n../b plain\n":                              "go down",
		Head + "\n/ plain\n":                                 "of no name",
		Head + "\n! plain\n":                                 "of no name",
		Head + "\na drop-optimizer\n":                        "keep-last",
		Head + "\na drop-optimizer keep-last=1":              "keep-last",
		Head + "\na drop-optimizer keep-last=+1":             "keep-last",
		Head + "\na drop-optimizer keep-last=2 older-than=3": "older-than",
		Head + "\na\x00 plain\n":                             "zero",
		Head + "\n" + strings.Repeat("a", 5000) + " plain":   "bytes",
	} {
		_, err := Parse([]byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %s", text, err, want)
		}
	}
}

// A policy is changed by lines: comments stay, and what is added decides.
func TestEdit(t *testing.T) {
	rule := func(pattern string, words ...string) *Rule {
		r, err := ParseRule(pattern, words...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	text, err := Add(nil, rule("*.gguf", "plain"))
	if want := Head + "\n*.gguf\tplain\n"; err != nil || string(text) != want {
		t.Fatalf("%q, %v", text, err)
	}
	text = append(text, "# mine\n!/a hydrated # not\nruns/** hydrated"...) // no line's end
	text, err = Add(text, rule(Exact("a b#"), "hydrated"))
	if want := Head + "\n*.gguf\tplain\n# mine\n!/a hydrated # not\nruns/** hydrated\n/a\\ b\\#\thydrated\n"; err != nil || string(text) != want {
		t.Fatalf("%q, %v", text, err)
	}
	text, err = Add(text, rule("runs/**", "hydrated"))
	if want := Head + "\n*.gguf\tplain\n# mine\n!/a hydrated # not\n/a\\ b\\#\thydrated\nruns/**\thydrated\n"; err != nil || string(text) != want {
		t.Fatalf("%q, %v", text, err)
	}
	text, n, err := Remove(text, Hydrated, Exact("a b#"))
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	text, n, err = Remove(text, "", "runs/**")
	if want := Head + "\n*.gguf\tplain\n# mine\n!/a hydrated # not\n"; err != nil || n != 1 || string(text) != want {
		t.Fatalf("%q, %d, %v", text, n, err)
	}
	if _, n, err := Remove(text, "", "runs/**"); n != 0 || err != nil {
		t.Error(n, err)
	}
	if _, err := Add(text, rule("a b", "plain")); err == nil {
		t.Error("a pattern with a blank was added")
	}
	if _, _, err := Remove([]byte("x"), "", "a"); err == nil {
		t.Error("what cannot be read was changed")
	}
	for _, r := range []*Rule{rule("a", "drop-optimizer", "keep-last=2", "older-than=36h"),
		rule("a", "drop-optimizer", "older-than=4w", "keep-last=3"), rule("!a", "drop-optimizer")} {
		again, err := ParseRule(r.Pattern, strings.Fields(r.What())...)
		if err != nil || *again != *r {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// What is read matches what it was made for, and reads again as itself.
func FuzzPolicy(f *testing.F) {
	f.Add("*.gguf plain # never\nruns/** drop-optimizer keep-last=2\n!a/b hydrated", "runs/a/1/m.pt")
	f.Add("a\\ b alone\n[a-z]/**/x plain", "a b")
	f.Add("**/**/** plain\n***/* alone", "a/b/c/d/e")
	f.Fuzz(func(t *testing.T, rules, at string) {
		p, err := Parse([]byte(Head + "\n" + rules))
		if err == nil && len(p.Rules()) < 64 { // each Add reads all of them
			text := []byte(nil)
			for i := range p.Rules() {
				r := p.Rules()[i]
				for _, k := range Kinds {
					p.Is(k, at)
				}
				if text, err = Add(text, &r); err != nil {
					t.Fatalf("%+v: %v", r, err)
				}
			}
			if len(text) > 0 {
				again, err := Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range Kinds {
					if again.Is(k, at) != p.Is(k, at) {
						t.Fatalf("%s of %q is not the same as of\n%s", k, at, text)
					}
				}
			}
		}
		clean := strings.Trim(at, "/")
		pattern := Exact(clean)
		if pattern == "" || strings.Contains("/"+clean+"/", "//") || strings.Contains("/"+clean+"/", "/./") ||
			strings.Contains("/"+clean+"/", "/../") || len(pattern) > maxPattern {
			return
		}
		r, err := ParseRule(pattern, "hydrated")
		if err != nil {
			t.Fatal(err)
		}
		text, err := Add(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Parse(text)
		if err != nil || !q.Is(Hydrated, clean) || !q.Is(Hydrated, clean+"/x") || q.Is(Hydrated, clean+"x") {
			t.Fatalf("%q: %v", pattern, err)
		}
	})
}
