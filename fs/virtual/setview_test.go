package virtual

import (
	"errors"
	"testing"

	"ckptfs/fs/models"
	"ckptfs/fs/view"
)

// TestSetTooLarge: a set that has no view is an error, and nothing worse.
func TestSetTooLarge(t *testing.T) {
	v := New(Options{})
	s, err := v.openSet(&models.Shards{Files: make([]string, maxSetFiles+1)})
	if s != nil || !errors.Is(err, view.ErrNoView) {
		t.Errorf("%v, %v", s, err)
	}
}

// TestHeld: what sets pin has its part of what is kept, and no more, but one set of any size.
func TestHeld(t *testing.T) {
	s := &tensorIndexes{maxBytes: 3000, lingers: 1 << 40}
	s.put(indexOf(1, "a", "b"))
	if !s.hold(10_000) || s.get(nil, 1) != nil {
		t.Error("one, and nothing is kept beside it")
	}
	if s.hold(1) {
		t.Error("two, of which one is too large")
	}
	s.hold(-10_000)
	for i, want := range []bool{true, true, false} {
		if s.hold(1500) != want {
			t.Errorf("number %d of three, of which two fit: %v", i, !want)
		}
	}
	s.hold(-3000)
	s.put(indexOf(2, "a", "b"))
	if s.get(nil, 2) == nil || s.held != 0 {
		t.Errorf("%d are held", s.held)
	}
	s.drop()
}
