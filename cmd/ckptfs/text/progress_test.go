package text

import (
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// Each phase has its name, and a line of its own: a bar where its bytes are known, else a count.
func TestProgressOfPhases(t *testing.T) {
	var b strings.Builder
	update, done := Progress(&b, func() string { return "packing" })
	shows := func(what string, p control.Progress, words ...string) {
		t.Helper()
		b.Reset()
		update(p)
		for _, w := range words {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s: no %q in %q", what, w, b.String())
			}
		}
	}
	shows("a count", control.Progress{Phase: "looking at names", DoneFiles: 120_000},
		"looking at names, 120,000 files so far")
	shows("a bar after it",
		control.Progress{DoneBytes: 1 << 20, TotalBytes: 4 << 20, DoneFiles: 1, TotalFiles: 4}, "\r\x1b[K", "packing, file 2 of 4", "4.0 MiB")
	shows("a phase after that", control.Progress{Phase: "making it durable"}, "making it durable")
	if strings.Contains(b.String(), "file") {
		t.Errorf("files of a phase that counts none: %q", b.String())
	}
	shows("another bar", control.Progress{Phase: "comparing", DoneBytes: 2, TotalBytes: 4}, "comparing",
		"4 B")
	b.Reset()
	done()
	if s := b.String(); s == "" || strings.Contains(s, "comparing") {
		t.Errorf("at the end: %q", s)
	}
}
