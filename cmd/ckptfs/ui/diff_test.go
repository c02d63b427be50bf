package ui

import (
	"slices"
	"strings"
	"testing"
)

// What changed between two steps has their metrics, from which value to which, and names the steps.
func TestDiffMetrics(t *testing.T) {
	s := serveStore(t, false, map[string][]byte{
		"runs/m/1/metrics.json": []byte(`{"loss": 0.5, "acc": 0.25, "gone": 7, "same": 1, "nan": NaN}`),
		"runs/m/2/metrics.json": []byte(`{"loss": 0.375, "acc": 0.5, "new": 8, "same": 1, "nan": NaN}`)})
	for _, to := range []string{"/diff?a=runs/m/1&b=runs/m/2", "/diff?a=runs/m/1/metrics.json&b=runs/m"} {
		_, b := ask(t, s.gate, "GET", to, local)
		want := [][]string{{"acc", "0.25", "0.5", "+0.25"}, {"gone", "7", "none", ""},
			{"loss", "0.5", "0.375", "-0.125"},
			{"nan", "nan", "nan", ""}, {"new", "none", "8", ""}, {"same", "1", "1", ""}}
		rows := cells(b)
		if len(rows) != 1+len(want) || !slices.EqualFunc(rows[1:], want, slices.Equal[[]string]) {
			t.Errorf("%s: %q", to, rows)
		}
		if len(rows) > 0 && !slices.Equal(rows[0], []string{"Metric", "m/1", "m/2", "Change"}) {
			t.Errorf("%q", rows[0])
		}
	}
	_, b := ask(t, s.gate, "GET", "/diff?a=runs/m/1&b=runs/m/2", local)
	const title = "What changed from m/1 to m/2"
	if !strings.Contains(b, "<title>"+title+" ") || !strings.Contains(b, "<h1>"+title+"</h1>") {
		t.Errorf("the page has another title: %s", b)
	}
	for _, to := range []string{"/diff?a=far0.safetensors&b=far1.safetensors", "/diff?a=runs/m/1&b=far1.safetensors",
		"/diff?a=runs/none/1&b=runs/m/1"} {
		if _, b := ask(t, s.gate, "GET", to, local); strings.Contains(b, "<table>") {
			t.Errorf("%s has metrics: %s", to, b)
		}
	}
}
