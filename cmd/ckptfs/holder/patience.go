package holder

import "time"

// patience is how long daemons may fail before one is ready.
type patience struct {
	first, most time.Duration // the wait after the first failure, and the longest: it doubles
	tries       int           // failures in a row
	total       time.Duration // since one was ready
}

// Patience is how long a mount is kept at most while no daemon gets ready.
const Patience = 2 * time.Minute

var usual = patience{first: 50 * time.Millisecond, most: 2 * time.Second, tries: 10, total: Patience}

func (p patience) orUsual() patience {
	if p == (patience{}) {
		return usual
	}
	return p
}

// next is how long to wait before the next daemon is started, after so many failures and so much time; not
// ok: that is enough.
func (p patience) next(failures int, since time.Duration) (wait time.Duration, ok bool) {
	if failures == 0 {
		return 0, true
	}
	if failures >= p.tries || since >= p.total {
		return 0, false
	}
	wait = p.first
	for range failures - 1 {
		wait = min(2*wait, p.most)
	}
	return wait, true
}
