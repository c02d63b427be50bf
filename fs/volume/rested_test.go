package volume

import (
	"context"
	"testing"

	"ckptfs/fs/content"
)

// A file that changes while it is seen to is seen to again.
func TestRestedAgain(t *testing.T) {
	r := newRig(t, identifies)
	r.write("a.pt", sample(t, "same/model.pt"))
	r.sync()
	var seen int
	r.ids.One = func(_ context.Context, n *content.File) {
		if files, _ := r.ids.Pending(); files != 1 {
			t.Errorf("%d wait, want the one that is being seen to", files)
		}
		if seen++; seen == 1 {
			r.ids.Add(n)
		}
	}
	for want := 1; want >= 0; want-- {
		r.ids.Turn(0)
		if files, more := r.ids.Pending(); files != want || more {
			t.Errorf("%d wait (more: %v), want %d", files, more, want)
		}
	}
	if seen != 2 {
		t.Errorf("seen to %d times, want 2", seen)
	}
	r.onlyRoot()
}
