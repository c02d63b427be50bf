package text

import (
	"math"
	"os/exec"
	"testing"
)

// A word is one to a shell, and what it was.
func TestWord(t *testing.T) {
	for _, s := range []string{
		"/data/models", "/data/my models", "/it's", "$HOME`x`", "a\x1b[0m\n'\\b", "\xff", "",
		"*", "ä/ö", "a;b", "~", "a b", "it's", "\x1b[31m\n\u202e'\\x", "\xff\xfeé", "$HOME `id`", "�",
	} {
		word := Word(s)
		out, err := exec.Command("bash", "-c", "printf %s "+word).Output()
		if err != nil || string(out) != s || Printable(word) != word {
			t.Errorf("%q: %s: %q, %v", s, word, out, err)
		}
	}
	if word := Word("/data/a-b_c.ckptfs"); word != "/data/a-b_c.ckptfs" {
		t.Error(word)
	}
}

// Pages and commands round alike.
func TestNumber(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 12: "12", -999_999: "-999999", 1e6: "1e+06",
		0.123456: "0.1235",
		-1.5:     "-1.5", 1.23456e-9: "1.235e-09", 12345.678: "1.235e+04", math.Inf(-1): "-inf"} {
		if got := Number(f); got != want {
			t.Errorf("%g: %s, want %s", f, got, want)
		}
	}
	if got := Number(math.NaN()); got != "nan" {
		t.Error(got)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{-21238: "-20.7 KiB", -3: "-3 B", 0: "0 B", 1536: "1.50 KiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d bytes are %q, not %q", n, got, want)
		}
	}
}
