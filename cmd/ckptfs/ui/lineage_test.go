package ui

import (
	"fmt"
	"strings"
	"testing"

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
