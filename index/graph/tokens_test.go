package graph

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// tokens are those of encoding/json.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,true,false,null,"x\"\\ud800",{}],"\\u00e9":"é"}`, ` [ ] `, `"a"`, `0`, `[[[]],{"a":{"b":[ ]}}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if !json.Valid(p) || !utf8.Valid(p) { // as newReader
			return
		}
		want := json.NewDecoder(bytes.NewReader(p))
		want.UseNumber()
		got := tokens{p: p}
		for {
			before, ahead := got.at, got
			object := ahead.Object()
			if object != nil && !json.Valid(object) {
				t.Fatalf("object %q", object)
			}
			a, err := want.Token()
			b, err2 := got.Token()
			if s, ok := a.(string); ok && err == nil {
				if text, ok, err := (&tokens{p, before}).Text(); !ok || err != nil || text != s {
					t.Fatalf("text %q, want %q", text, s)
				}
			}
			if a != b || (err == nil) != (err2 == nil) {
				t.Fatalf("%v, %v; want %v, %v", b, err2, a, err)
			}
			if err != nil {
				return
			}
			if want.InputOffset() != got.InputOffset() || want.More() != got.More() {
				t.Fatalf("after %v: at %d, %v; want %d, %v", a, got.InputOffset(), got.More(), want.InputOffset(), want.More())
			}
		}
	})
}
