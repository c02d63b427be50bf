package mounttest

import (
	"strings"
	"testing"
)

// WantSaid checks that a message has each of the words, whatever their case.
func WantSaid(t *testing.T, said string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(strings.ToLower(said), strings.ToLower(w)) {
			t.Errorf("the message does not speak of %q: %s", w, said)
		}
	}
	for _, bad := range []string{"panic", "goroutine ", "Usage:"} {
		if strings.Contains(said, bad) {
			t.Errorf("the message has %q in it: %s", bad, said)
		}
	}
}
