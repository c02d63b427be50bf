package models

import (
	"bytes"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// A torn step is no part of a curve, and is named.
func TestPlotTorn(t *testing.T) {
	all := steps("1", "2", "3", "4")
	all[1].State, all[3].State = control.StepTorn, control.StepTorn
	all[3].Metrics = map[string]control.Number{"loss": 1000}
	var b bytes.Buffer
	if err := plotAll(&b, &control.RunLog{Steps: all}, []string{"loss"}, 60); err != nil {
		t.Fatal(err)
	}
	if head, _, _ := strings.Cut(b.String(), "\n"); !strings.Contains(head, "last 0.333") ||
		!strings.Contains(head, "2 torn steps left out") || strings.Contains(b.String(), "1000") {
		t.Error(b.String())
	}
}
