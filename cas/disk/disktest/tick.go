// Package disktest is what tests of files share.
package disktest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// WaitTick waits until what is looked at has changed before, by the clock that ctimes are of.
func WaitTick(t testing.TB) {
	t.Helper()
	clock := func() int64 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			t.Fatal(err)
		}
		return now.Nano()
	}
	for began := time.Now().UnixNano(); clock() <= began; {
	}
}
