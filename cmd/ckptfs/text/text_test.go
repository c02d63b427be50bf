package text

import (
	"os/exec"
	"testing"
)

// A word is one to a shell, and what it was.
func TestWord(t *testing.T) {
	for _, s := range []string{
		"/data/models", "/data/my models", "/it's", "$HOME`x`", "a\x1b[0m\n'\\b", "\xff", "",
		"*", "ä/ö", "a;b", "~",
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
