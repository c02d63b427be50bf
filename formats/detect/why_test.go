package detect

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"ckptfs/formats"
)

// What a manifest cannot hold is told apart from what was not seen when the file was stored.
func TestWhyTooMany(t *testing.T) {
	p, err := os.ReadFile("../testdata/safetensors/flat.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for keeps, want := range map[bool]string{true: "were not seen", false: "more than a manifest holds"} {
		got := New(0).Why("m.safetensors", bytes.NewReader(p), int64(len(p)),
			func(*formats.Layout) bool { return keeps })
		if !strings.Contains(got, want) || !strings.HasPrefix(got, "safetensors: ") {
			t.Errorf("%v: %q", keeps, got)
		}
	}
}
