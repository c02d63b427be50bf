package ui

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// The first page names the files that a check of all data found damaged, and the command that names them
// again, also after a check that did not read them.
func TestDamagedFiles(t *testing.T) {
	s := serveStore(t, false)
	f, err := os.OpenFile(filepath.Join(s.at.Store, "tree/far0.safetensors"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("rot"), 1<<20); err != nil {
		t.Fatal(err)
	}
	for _, o := range []control.CheckOptions{{ReadData: true}, {}} {
		if _, err := s.c.Check(t.Context(), o, func(control.Progress) {}); err != nil {
			t.Fatal(err)
		}
		_, b := ask(t, s.gate, "GET", "/", func(r *http.Request) { r.Host = "localhost" })
		for _, want := range []string{"Something is wrong", "far0.safetensors</a>", "the local copy is damaged",
			"ckptfs check --read-data " + s.root()} {
			if !strings.Contains(b, want) {
				t.Errorf("after %+v the page does not say %q: %.3000s", o, want, b)
			}
		}
	}
	for to, damaged := range map[string]bool{"far0.safetensors": true, "far1.safetensors": false,
		"runs/a/1": false} {
		_, b := ask(t, s.gate, "GET", pathURL(to), func(r *http.Request) { r.Host = "localhost" })
		for _, says := range []string{">damaged</strong>", "the local copy is damaged",
			"<code>ckptfs check --read-data " + s.root()} {
			if strings.Contains(b, says) != damaged {
				t.Errorf("%s: says %q is %v: %.3000s", to, says, !damaged, b)
			}
		}
	}
	f2, err := os.OpenFile(filepath.Join(s.at.Store, "tree/runs/a/2/model.safetensors"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f2.Close()
	if _, err := f2.WriteAt([]byte("rot"), 300); err != nil {
		t.Fatal(err)
	}
	all := control.CheckOptions{ReadData: true}
	if _, err := s.c.Check(t.Context(), all, func(control.Progress) {}); err != nil {
		t.Fatal(err)
	}
	_, b := ask(t, s.gate, "GET", pathURL("runs/a/2"), func(r *http.Request) { r.Host = "localhost" })
	if !strings.Contains(b, "<dt>State</dt><dd>damaged</dd>") ||
		!strings.Contains(b, "runs/a/2/model.safetensors</a>: ") {
		t.Errorf("the page of a step with a damaged file: %.3000s", b)
	}
	many := &control.LastCheck{Problems: 100}
	for range 64 {
		many.Found = append(many.Found, control.Problem{Path: "f"})
	}
	if d := damagedOf(many); len(d.Files) != mostDamaged || d.More != 100-mostDamaged {
		t.Errorf("%+v", d)
	}
}
