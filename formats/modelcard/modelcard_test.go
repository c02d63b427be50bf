package modelcard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ckptfs/formats/fixture"
	"ckptfs/formats/pyjson"
)

// show is a value in brief.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case Other:
		return "other"
	case string:
		return fmt.Sprintf("%q", v)
	case pyjson.Array:
		var b []string
		for _, x := range v {
			b = append(b, show(x))
		}
		return "[" + strings.Join(b, " ") + "]"
	case *pyjson.Object:
		if v == nil {
			return "none"
		}
		var b []string
		for i := range v.Len() {
			k, x := v.Key(i)
			b = append(b, fmt.Sprintf("%q:%s", k, show(x)))
		}
		return "{" + strings.Join(b, " ") + "}"
	}
	return "?"
}

const card = `---
# a comment
license: apache-2.0   # another
language:
- en
- no
tags: [merge, "a b", 7b, 3]
base_model:
    - a/b
    -
      name: c
      n: 1.5
    - name: d
      url: 'https://x'

extra_gated_prompt: >-
  Anything: 'goes
    here, [too

  - and here
empty:
none: ~
model-index:
  - name: x
    results:
      - task:
          type: text-generation
        date: 2024-01-02
yes: no
url: a:b#c
---
rest: of it
`

// What is read is what PyYAML 6.0.4 reads. Cards were made at random, and compared: none was read otherwise.
func TestParse(t *testing.T) {
	want := `{"license":"apache-2.0" "language":["en" "no"] "tags":["merge" "a b" "7b" other] ` +
		`"base_model":["a/b" {"name":"c" "n":other} {"name":"d" "url":"https://x"}] "extra_gated_prompt":other ` +
		`"empty":null "none":null "model-index":[{"name":"x" "results":[{"task":{"type":"text-generation"} ` +
		`"date":other}]}] "\x00yes":other "url":"a:b#c"}`
	for _, text := range []string{card, strings.ReplaceAll(card, "\n", "\r\n")} {
		o, err := Parse([]byte(text))
		if got := show(o); err != nil || got != want {
			t.Errorf("%v\n%s", err, got)
		}
	}
	for text, want := range map[string]string{
		"": "none", "# Title\n": "none", "---\n---\n": "none", "----\n": "none", "---\n- a\n---": "none",
		"---\na: b": `{"a":"b"}`, "---\na: [x,]\n": `{"a":["x"]}`, "---\n\tb: c\n": `{"b":"c"}`,
	} {
		if o, err := Parse([]byte(text)); err != nil || show(o) != want {
			t.Errorf("%q: %s, %v", text, show(o), err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, text := range []string{"a", "a: &x b", "a: *x", "a: !t b", "a: {b: c}", `a: "b\n"`, "a: 'b",
		"a: b\n  c", "a: b: c", "a: b\n c: d", "  a: b\nc: d", "a: [b", "a: [[b]]", "a: <<", "- - a",
		"a: b\n- c", "a: @b", "a: 'b' c",
		"a: b\x00", "a: \u2028", "...", "? a", "a: - b", "a: [b: c]", "a:\n - b\n  - c"} {
		if o, err := Parse([]byte("---\n" + text + "\n---\n")); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %s, %v", text, show(o), err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(card))
	f.Fuzz(func(t *testing.T, file []byte) {
		fixture.Within(t, fixture.Bound{Fixed: 256 << 10, PerByte: 2000}, len(file), func() {
			if _, err := Parse(file); err != nil && !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
		})
	})
}
