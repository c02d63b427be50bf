package view

import (
	"os"
	"strings"
	"testing"
)

// TestSources: docs/views.md has the order in which names are preferred.
func TestSources(t *testing.T) {
	b, err := os.ReadFile("../../docs/views.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(b)), " ")
	if want := "`" + strings.Join(Sources, " ") + "`"; !strings.Contains(words, want) {
		t.Errorf("docs/views.md does not have %s", want)
	}
	if len(Sources) < 12 || Sources[0] != ".pt" {
		t.Errorf("%v", Sources)
	}
}

func TestStem(t *testing.T) {
	for source, want := range map[string]string{
		"m.pt": "m", "a.b.npz": "a.b", "m.weights.h5": "m.weights", ".pt": "", "m.safetensors": "", "m": "",
		"": "",
	} {
		if got, ok := Stem(source); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", source, got, ok, want)
		}
	}
}

// Each source has a mark of its own.
func TestMark(t *testing.T) {
	for i, ext := range Sources {
		if got := Mark("m" + ext); got != 1<<i || i >= 31 {
			t.Errorf("m%s: %b", ext, got)
		}
	}
	for _, name := range []string{"m" + Suffix, "m", "", "metrics.json", "pt"} {
		if got := Mark(name); got != 0 {
			t.Errorf("%q: %b", name, got)
		}
	}
}
