package text

import (
	"strings"
	"testing"

	"ckptfs/fs/control"
)

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

// A store that nobody has mounted packs nothing, and no close waits.
func TestStatusOfAnUnmountedStore(t *testing.T) {
	var b strings.Builder
	st := &control.Status{Mode: control.ModeUnmounted, MaxUnpacked: 1 << 30, PackingWaits: "others work"}
	Status(&b, st)
	if s := b.String(); strings.Contains(s, "waits") {
		t.Errorf("%s", s)
	}
	st.Looking = new(int64)
	b.Reset()
	Status(&b, st)
	if s := b.String(); !strings.Contains(s, "once the store is mounted") || strings.Contains(s, "so far") ||
		strings.Contains(s, "0 B") {
		t.Errorf("%s", s)
	}
}
