package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A metric whose name does not say which end is good has no best on any page, unless one is chosen.
func TestNoBest(t *testing.T) {
	files := map[string][]byte{}
	for i, run := range []string{"x", "y"} {
		for step := range 3 {
			files[fmt.Sprintf("runs/%s/%d/metrics.json", run, step)] = fmt.Appendf(nil,
				`{"lr": %g, "grad_norm": %d, "epoch": %d, "acc": %g}`, 0.25/float64(step+1), step+i, step, float64(step)/4)
		}
	}
	s := serveStore(t, false, files)
	_, b := ask(t, s.gate, "GET", "/run?run=x&metric=lr&metric=acc&metric=epoch", local)
	if n := strings.Count(b, `"best":`); n != 1 {
		t.Errorf("%d curves have a best: %s", n, b)
	}
	for _, row := range cells(b) {
		switch row[0] {
		case "lr", "grad_norm", "epoch":
			if row[1] != "" || row[2] != "" || row[3] == "" {
				t.Errorf("of %s: %q", row[0], row)
			}
		case "acc":
			if row[1] != "0.5" || row[2] != "2 greatest" {
				t.Errorf("%q", row)
			}
		}
	}
	_, b = ask(t, s.gate, "GET", "/path?path=runs/x/2", local)
	if n := strings.Count(b, "best of its run"); n != 1 {
		t.Errorf("%d tiles are best: %s", n, b)
	}
	_, b = ask(t, s.gate, "GET", "/compare?run=x&run=y", local)
	for _, row := range cells(b) {
		marked := strings.Contains(strings.Join(row, " "), " best")
		if marked != slices.Contains(row, "acc") {
			t.Errorf("compared: %q", row)
		}
	}
	// The list of runs: by lr none is best, nor has a column of it; where an end is chosen, one is.
	_, b = ask(t, s.gate, "GET", "/runs?metric=lr", local)
	if strings.Contains(b, ">Best<") || !strings.Contains(b, "The name of lr does not say") {
		t.Errorf("by lr: %s", b)
	}
	if !strings.Contains(b, "<code>ckptfs runs ") || strings.Contains(b, "<code>ckptfs best ") {
		t.Errorf("the list of runs is not the command: %s", b)
	}
	_, b = ask(t, s.gate, "GET", "/runs?metric=lr&mode=min&sort=best", local)
	rows := cells(b)
	if i := slices.Index(rows[0], "Best"); i < 0 || strings.Contains(b, "does not say") {
		t.Errorf("by the least lr: %s", b)
	}
	if want := "<code>ckptfs best --mode min " + s.full("runs/x") + " lr<"; !strings.Contains(b, want) {
		t.Errorf("no %s: %s", want, b)
	}
}
