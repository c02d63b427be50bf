package ui

import (
	"net/http"
	"strings"
	"testing"
)

// The page of a run says why metrics of its steps are not known, as ckptfs log does.
func TestProblems(t *testing.T) {
	s := serveStore(t, false)
	l, err := s.runs.Log(t.Context(), "unread")
	if err != nil || len(l.Steps) != 7 || l.Steps[6].Problem == "" {
		t.Fatalf("%+v, %v", l, err)
	}
	_, b := ask(t, s.gate, "GET", "/run?run=unread", func(r *http.Request) { r.Host = "localhost" })
	named := `<a href="/path?path=runs%2Funread%2F6">6</a>: ` + l.Steps[6].Problem
	for _, want := range []string{named, "and 2 more steps"} {
		if !strings.Contains(unescap.Replace(b), want) {
			t.Errorf("the page does not say %q: %.3000s", want, b)
		}
	}
	_, b = ask(t, s.gate, "GET", "/run?run=a", func(r *http.Request) { r.Host = "localhost" })
	if strings.Contains(b, "cannot be read") {
		t.Error("the page says so of a run in order")
	}
}
