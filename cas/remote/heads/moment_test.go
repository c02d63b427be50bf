package heads

import (
	"sync"
	"testing"

	"ckptfs/cas/remote/record"
)

// What one head removed of another's does not come back when a collector takes out the one, then the other,
// while a Refresh reads them.
func TestOneMoment(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a 1")
	r.commit(bert, 1, "runs/b 1") // stands for the tombstone of runs/a
	r.refreshed(true)
	r.commit(bert, 2, "runs/b 1,runs/c 1")
	r.watch(func(key string) {
		if key == record.HeadKey(bert) && r.Head(bert).Sequence < 2 {
			r.commit(anna, 2, "")
			r.commit(bert, 3, "runs/c 1")
		}
	})
	r.refreshed(true)
	r.below("runs", "bert.00000002 runs/c 1")
	r.refreshed(false)
}

// Where others commit all the time, a Refresh ends, and the next one finds what it missed.
func TestNoMoment(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a 1")
	r.commit(bert, 1, "runs/b 1")
	var mu sync.Mutex
	busy, sequence := true, int64(1)
	r.watch(func(string) {
		mu.Lock()
		defer mu.Unlock()
		if busy {
			sequence++
			r.commit(bert, sequence, "runs/b 1")
			r.commit(anna, sequence, "runs/a 1,runs/c 1")
		}
	})
	r.refreshed(true)
	if sequence < 1+mostRounds {
		t.Errorf("commit %d", sequence)
	}
	busy = false
	r.refreshed(true)
	r.below("runs", "anna.00000001 runs/a 1\nanna.00000001 runs/c 1\nbert.00000002 runs/b 1")
	r.refreshed(false)
}

// A commit to a head that a collector has stamped since is not noted beside heads that are as they were.
func TestNote(t *testing.T) {
	r := newRig(t)
	r.commit(anna, 1, "runs/a 1")
	r.refreshed(true)
	head := func(sequence int64, stamp uint32) *record.Head {
		h := *r.Head(anna)
		h.Commit, h.Sequence, h.Stamp = record.ID{byte(sequence), 2}, sequence, stamp
		return &h
	}
	for _, one := range []struct {
		h    *record.Head
		want bool
	}{{head(2, 1), false}, {head(3, 0), false}, {head(2, 0), true}, {head(2, 0), true}, {head(4, 0), false}} {
		noted, err := r.Note(anna, "v", one.h)
		if err != nil || noted != one.want {
			t.Errorf("commit %d, stamp %d: %v, %v", one.h.Sequence, one.h.Stamp, noted, err)
		}
	}
	if got := r.Head(anna).Sequence; got != 2 {
		t.Errorf("commit %d", got)
	}
}
