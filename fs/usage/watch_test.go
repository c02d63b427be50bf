package usage

import (
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// A record that takes another place is noticed, whenever the count began.
func TestCommitWhileCounting(t *testing.T) {
	entries := []cas.Entry{{Hash: hashOf(1), Location: cas.Location{Segment: 2, Stored: 10}}}
	for name, before := range map[string]bool{"before": true, "meanwhile": false} {
		c := &counts{mu: new(locks.Mutex[countsLock])}
		count := func() error {
			c.reset(nil)
			c.table.add(&entries[0].Hash, noRun, 1)
			return nil
		}
		commit := count
		if before {
			count()
			commit = func() error { return nil }
		}
		err := c.commit(entries, func(_ []cas.Hash, locs []cas.Location) error {
			locs[0] = cas.Location{Segment: 1, Stored: 20}
			return nil
		}, commit)
		if err != nil || !c.isStale() {
			t.Errorf("a count that began %s: stale is %v, %v", name, c.isStale(), err)
		}
	}
}
