package main

import (
	"testing"
	"time"

	"ckptfs/fs/tree"
)

// The end of a daemon that cannot be seen is known by what it says of the store, a little after its socket's.
func TestUnseenEnd(t *testing.T) {
	for _, clean := range []bool{true, false} {
		dir := t.TempDir()
		d, err := tree.OpenStore(dir, false)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		l, err := tree.Acquire(d, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		e := &ending{since: time.Now(), pidfd: -1, grace: 2 * time.Second}
		if !clean {
			e.grace = 300 * time.Millisecond
		}
		go func() {
			time.Sleep(100 * time.Millisecond)
			_ = l.Release(clean)
		}()
		if err := e.inOrder(t.Context(), dir); (err == nil) != clean {
			t.Errorf("closed in order %v: %v", clean, err)
		}
	}
}
