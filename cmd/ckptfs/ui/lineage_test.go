package ui

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// Of a long chain the nearest ancestors are shown, and the others unfold.
func TestAncestorsFold(t *testing.T) {
	for n, want := range map[int]int{3: 3, 6: 6, 7: 5, 30: 5} {
		l := control.ModelLineage{Model: control.Model{Path: "runs/a/1/m"}}
		for i := range n {
			m := control.Model{Path: fmt.Sprintf("runs/a/%d/m", i)}
			l.Chain = append(l.Chain, control.Ancestor{Model: m})
		}
		b := ancestryBodyOf("runs/a/1", &control.Lineage{Models: []control.ModelLineage{l}})
		var out strings.Builder
		if err := templates["ancestry"].ExecuteTemplate(&out, "main", &page{Body: b}); err != nil {
			t.Fatal(err)
		}
		open, folded, _ := strings.Cut(out.String(), "<details>")
		if got := strings.Count(open, "<tr><td>"); got != want {
			t.Errorf("%d of %d are shown: %s", got, n, open)
		}
		if got := strings.Count(folded, "<tr><td>"); got != n-want {
			t.Errorf("%d of %d unfold: %s", got, n, folded)
		}
		says := fmt.Sprintf("<summary>%d more ancestors of runs/a/1/m</summary>", n-want)
		if n > want && !strings.Contains(folded, says) {
			t.Errorf("not %s: %s", says, folded)
		}
	}
}

// What a removal gives back stands before where it comes from.
func TestOrder(t *testing.T) {
	s := serveStore(t, false)
	_, b := ask(t, s.gate, "GET", "/path?path=runs/a/2", local)
	last := 0
	for _, h := range []string{"Files", "Tensors", "Removing it", "Where it comes from"} {
		at := strings.Index(b, "<h2>"+h+"</h2>")
		if at < last {
			t.Errorf("%s stands at %d, behind %d", h, at, last)
		}
		last = at
	}
}

// The JSON of the lineage, of all runs or of a path, is what ckptfs lineage --json prints.
func TestLineageJSON(t *testing.T) {
	s := serveStore(t, false)
	_, b := ask(t, s.gate, "GET", "/lineage", local)
	if !strings.Contains(b, "<code>ckptfs lineage "+s.full("runs")+"</code>") {
		t.Errorf("the command is another: %s", b)
	}
	for to, p := range map[string]string{"/part/lineage?json=1": "runs", "/part/ancestry?path=runs/a&json=1": "runs/a",
		"/part/ancestry?path=runs/a/1/metrics.json&json=1": "runs/a/1/metrics.json",
		"/part/ancestry?path=runs/none&json=1":             "runs/none"} {
		l, err := s.c.Lineage(t.Context(), p)
		var want any = l
		if err != nil {
			want = map[string]any{"error": control.AsError(err)}
		}
		var says bytes.Buffer
		if err := text.JSON(&says, "").Encode(want); err != nil {
			t.Fatal(err)
		}
		if _, b := ask(t, s.gate, "GET", to, local); b != says.String() {
			t.Errorf("%s: %.300s, not %.300s", to, b, says.String())
		}
	}
}
