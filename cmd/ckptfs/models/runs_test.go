package models

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// A run of very many metrics has a line like others.
func TestRunsOfManyMetrics(t *testing.T) {
	r := control.Run{Run: "a"}
	for i := range 2000 {
		r.Metrics = append(r.Metrics, fmt.Sprintf("metric%04d", i))
	}
	few := control.Run{Run: "b", Metrics: r.Metrics[:10]}
	long := control.Run{Run: "c", Metrics: []string{strings.Repeat("x", 5000), "loss"}}
	var b bytes.Buffer
	printRuns(&b, &control.RunList{Runs: []control.Run{r, few, long}})
	lines := strings.Split(b.String(), "\n")
	if !strings.Contains(lines[1], "metric0009 and 1,990 more") || strings.Contains(lines[1], "metric0010") {
		t.Error(lines[1])
	}
	if !strings.Contains(lines[2], "metric0009") || strings.Contains(lines[2], "more") {
		t.Error(lines[2])
	}
	if len(lines[3]) > 400 || !strings.Contains(lines[3], "loss") {
		t.Error(lines[3])
	}
}
