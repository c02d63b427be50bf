package source

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// tokens are those of encoding/json.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,true,false,null,"x\"\\ud800",{}],"\\u00e9":"é"}`, ` [ ] `,
		`"a"`, `0`, `[[[]],{"a":{"b":[ ]}}]`,
		`[1 2]`, `{"a"}`, `{"a":}`, `[,]`, `{,}`, `[1,]`, `{"a":1,}`, `01`, `-`, `1.`, `.5`, `1e`, `"\u12g4"`,
		`"\x"`, "\"\n\"", `tru`, `nulll`, `[}`, `{]`, ` `, ``, `[1]]`, `{"a":1 "b":2}`, `{1:2}`,
		`-0.0E-12`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		ok := json.Valid(p)
		if deep := bytes.Count(p, []byte("[")) + bytes.Count(p, []byte("{")); valid(string(p)) != ok &&
			!(ok && deep > 2*maxDepth) {
			t.Fatalf("%q: valid %v", p, !ok)
		}
		if !ok || !utf8.Valid(p) { // as newReader
			return
		}
		want := json.NewDecoder(bytes.NewReader(p))
		want.UseNumber()
		got := tokens{s: string(p)}
		for {
			before, ahead := got.at, got
			object := ahead.Object()
			if object != "" && !json.Valid([]byte(object)) {
				t.Fatalf("object %q", object)
			}
			number, isNumber := (&tokens{string(p), before}).Number()
			a, err := want.Token()
			b, err2 := got.Token()
			if s, ok := a.(string); ok && err == nil {
				if text, ok, err := (&tokens{string(p), before}).Text(); !ok || err != nil || text != s {
					t.Fatalf("text %q, want %q", text, s)
				}
			}
			if n, ok := a.(json.Number); ok != isNumber || string(n) != number {
				t.Fatalf("number %q, want %v", number, a)
			}
			if a != b || (err == nil) != (err2 == nil) {
				t.Fatalf("%v, %v; want %v, %v", b, err2, a, err)
			}
			if err != nil {
				return
			}
			if want.InputOffset() != got.InputOffset() || want.More() != got.More() {
				t.Fatalf("after %v: at %d, %v; want %d, %v", a, got.InputOffset(), got.More(),
					want.InputOffset(), want.More())
			}
		}
	})
}
