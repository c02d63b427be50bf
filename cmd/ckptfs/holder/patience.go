package holder

import (
	"os"
	"time"
)

// patience is how long daemons may fail before one is ready.
type patience struct {
	first, most time.Duration // the wait after the first failure, and the longest: it doubles
	tries       int           // failures in a row, and
	total       time.Duration // since one was ready
}

// patienceEnv is another time than two minutes, for tests.
const patienceEnv = "CKPTFS_HOLDER_PATIENCE"

// Patience is how long a mount is kept at least while no daemon gets ready.
func Patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(patienceEnv)); err == nil && d > 0 {
		return d
	}
	return 2 * time.Minute
}

func (p patience) orUsual() patience {
	if p == (patience{}) {
		total := Patience()
		return patience{first: 50 * time.Millisecond, most: total / 30, tries: 10, total: total}
	}
	return p
}

// next is how long to wait before the next daemon is started, after so many failures and so much time; not
// ok: that is enough. Where somebody has asked for the end of the mount, the failures alone are.
func (p patience) next(failures int, since time.Duration, asked bool) (wait time.Duration, ok bool) {
	if failures == 0 {
		return 0, true
	}
	if failures >= p.tries && (asked || since >= p.total) {
		return 0, false
	}
	wait = p.first
	for range failures - 1 {
		if wait = min(2*wait, p.most); wait == p.most {
			break
		}
	}
	return wait, true
}
