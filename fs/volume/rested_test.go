package volume

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
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

// What can wait waits for a pass that somebody waits for, also in the middle of a walk.
func TestRestedAfterPasses(t *testing.T) {
	r := newRig(t, identifies)
	for _, name := range []string{"a.pt", "b.pt"} {
		r.write(name, sample(t, "same/model.pt"))
	}
	r.sync()
	seen := 0
	r.ids.One = func(context.Context, *content.File) { seen++ }
	r.ids.LookAtAll()
	tour := names.Tour{File: func(string, *names.Node, *unix.Stat_t) error {
		r.ids.Turn(0)
		return nil
	}}
	if err := r.names.Tour(context.Background(), tour); err != nil || seen != 0 {
		t.Errorf("%d seen to beside a pass, %v", seen, err)
	}
	if r.ids.Turn(0); seen != 2 {
		t.Errorf("%d seen to after the pass, want 2", seen)
	}
}
