package content

import (
	"maps"
	"testing"
)

// A sync says that those copies are durable that were there before, unless one failed meanwhile.
func TestForgotten(t *testing.T) {
	g := forgotten{after: map[uint64]uint64{10: 1, 20: 2, 30: 3, 40: 4, 50: unknown}}
	g.held(1)
	if g.take(10) != durable || g.take(20) != 2 || g.take(20) != durable {
		t.Error("one is durable, one is to be, and was taken")
	}
	g.miss(2)
	g.after[35] = 3 // forgotten when the sync had failed
	g.held(4)
	if want := map[uint64]uint64{30: 3, 35: 3, 50: unknown}; !maps.Equal(g.after, want) {
		t.Errorf("%v, want %v", g.after, want)
	}
	for ino, want := range map[uint64]uint64{30: unknown, 35: unknown, 40: durable, 50: unknown} {
		if got := g.take(ino); got != want {
			t.Errorf("%d: %d, want %d", ino, got, want)
		}
	}
}
