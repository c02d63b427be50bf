package pyjson

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// plain is a value as encoding/json has it, with numbers as they are written.
func plain(v any) any {
	switch v := v.(type) {
	case Number:
		return json.Number(v)
	case Array:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case *Object:
		out := make(map[string]any)
		for i := range v.Len() {
			k, x := v.Key(i)
			out[k] = plain(x)
		}
		return out
	}
	return v
}

func TestParse(t *testing.T) {
	v, err := Parse([]byte(` {"b": [1, -2.5e3, null], "a": {"x": true}, "b": "\u00e9\ud83d\ude00\n\/é"} `), 100)
	if err != nil {
		t.Fatal(err)
	}
	o := v.(*Object)
	if k, x := o.Key(0); o.Len() != 2 || k != "b" || x != "é😀\n/é" {
		t.Errorf("%d keys, the first %q: %q", o.Len(), k, x)
	}
	for text, want := range map[string]struct {
		n  int64
		is bool
	}{"12": {12, true}, "-0": {0, true}, "1.0": {0, false}, "1e3": {0, false}, "99999999999999999999": {0, false}} {
		v, err := Parse([]byte(text), 1)
		if err != nil {
			t.Fatal(err)
		}
		if n, is := v.(Number).Int(); is != want.is || is && n != want.n {
			t.Errorf("%s: %d, %t", text, n, is)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, text := range []string{"", "{", "[1,]", `{"a" 1}`, `{1:2}`, "01", "1.", "-", "1e", "NaN",
		"Infinity", "-Infinity", "1e999", `"\ud800"`, `"\udc00\ud800"`, `"\ud800x"`, `"\x"`, `"\u12"`,
		"\"\n\"", `"`, "[1] 2", "\xff", "\ufeff1", "nul", "'a'",
		strings.Repeat("[", 100) + strings.Repeat("]", 100), "[1,1,1,1]",
	} {
		if v, err := Parse([]byte(text), 4); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: %v, %v", text, v, err)
		}
	}
}

// What is read is what encoding/json reads, too.
func FuzzParse(f *testing.F) {
	f.Add([]byte(` {"b": [1, -2.5e3, null], "a": {"x": true}, "b": "\u00e9\ud83d\ude00\n\/é"} `))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text, 10_000)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil || d.More() {
			t.Fatalf("encoding/json refuses it: %v", err)
		}
		if got := plain(v); !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, and not %v", got, want)
		}
	})
}
