package main

import (
	"testing"

	"ckptfs/integration/mounttest"
)

// TestScale runs the section scale on a small store: that it works, and how long its rows take in the log.
func TestScale(t *testing.T) {
	mounttest.NeedFUSE(t)
	b, err := newBench(options{bin: mounttest.BuildWith(t, ""), dir: t.TempDir(), rounds: 1, files: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if err := b.scale(); err != nil {
		t.Fatalf("%v\n%s", err, b.logTail())
	}
}
