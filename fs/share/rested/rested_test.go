package rested

import "testing"

// Of more files than are looked for at a time, those stay that were used longest ago.
func TestOldest(t *testing.T) {
	var some []File
	for i := range 2 * AtATime {
		some = append(some, File{used: int64((i * 5) % (2 * AtATime))})
	}
	some = oldestOf(some)
	if len(some) != AtATime {
		t.Fatalf("%d files", len(some))
	}
	for i, c := range some {
		if c.used != int64(i) {
			t.Fatalf("file %d was used at %d", i, c.used)
		}
	}
	if n := len(oldestOf(some[:3])); n != 3 {
		t.Errorf("%d of 3", n)
	}
}
