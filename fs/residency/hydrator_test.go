package residency

import (
	"testing"
	"time"

	"ckptfs/fs/content"
)

// nowhere is an inode that nothing is asked of.
type nowhere struct{ content.Inode }

func (nowhere) Dead() bool     { return false }
func (nowhere) Changes(uint64) {}
func (nowhere) Pin()           {}
func (nowhere) Unpin()         {}

// A file that is to be hydrated waits while a program reads packed files, but not for ever, and not at the
// end.
func TestHydrationWaits(t *testing.T) {
	files := content.New(content.Parts{})
	start := time.Now()
	at := start
	h := NewHydrator(Options{Max: 1 << 40, Now: func() time.Time { return at }, Count: &files.Count})
	var readFor time.Duration
	h.after = func(d time.Duration) <-chan time.Time {
		if at.Sub(start) < readFor {
			d = min(d, 100*time.Millisecond)
			files.Count.ReadPacked.Add(1)
		}
		at = at.Add(d)
		c := make(chan time.Time, 1)
		c <- at
		return c
	}
	add := func() {
		f := content.NewFile(files, nowhere{})
		f.Lock()
		defer f.Unlock()
		h.Add(f)
	}
	waits := func(what string, lasts, want time.Duration) {
		t.Helper()
		start, readFor = at, lasts
		add()
		for len(h.queue) > 0 {
			if !h.wait() {
				t.Fatal("the end")
			}
			h.next()
		}
		if got := at.Sub(start); got < want || got > want+200*time.Millisecond {
			t.Errorf("%s: hydrated after %v, want %v", what, got, want)
		}
	}
	waits("opened", 0, readsStill)
	waits("loaded", 4*time.Second, 4*time.Second+readsStill)
	waits("read for ever", 1<<60, maxHydrateWait)

	// Those that waited together do not wait again, one after the other.
	add()
	add()
	waits("the last of three", 0, readsStill)

	h.after = func(time.Duration) <-chan time.Time { return nil }
	add()
	close(h.quit)
	if h.wait() {
		t.Error("hydrated at the end")
	}
}
