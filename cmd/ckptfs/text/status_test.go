package text

import "testing"

// A group of small files does not fill the screen, and one more name takes no more room than its number.
func TestNamesOf(t *testing.T) {
	for want, paths := range map[string][]string{
		"":                      nil,
		"a":                     {"a"},
		"a, b, c, d, e":         {"a", "b", "c", "d", "e"},
		"a, b, c, d and 2 more": {"a", "b", "c", "d", "e", "f"},
	} {
		if got := namesOf(paths); got != want {
			t.Errorf("%q are %q; want %q", paths, got, want)
		}
	}
}
