package throttle

import "time"

// share is how many workers packing may use. It is shown what the processors are used for, from time to time.
//
// What others use says what they want only as long as packing does not take it from them. So it is as many as
// others leave processors; and when hardly any processor is idle then, and something waits for one, it is
// none until some are idle without packing.
type share struct {
	most int // workers
	// hardware threads of a core: a thread that has a core to itself is faster than two that share it
	siblings int

	workers int
	since   time.Time     // when it became none, or some
	pause   time.Duration // for which it is none, at least
}

const (
	hardlyIdle  = 0.1 // share of the processors
	countsAsUse = 0.5 // of one processor, by others
	almostNone  = 0.5 // of one processor: as good as idle
	muchWaiting = 0.3 // share of the time

	// Where it was some for a moment only, because what is idle is so for moments, it will be none for
	// longer.
	moment   = 250 * time.Millisecond
	maxPause = 2 * time.Second
)

// judge is told what the processors did, and what was done of what control groups may use, by all that are in
// them.
func (s *share) judge(now time.Time, l load, limits []load) {
	before := s.workers
	left := min(l.left(s.siblings), s.most)
	wanted := l.wanted()
	for _, g := range limits {
		left = min(left, g.within())
		wanted = wanted || g.wanted()
	}
	switch {
	case before == 0 && now.Sub(s.since) < s.pause:
	case before > 0 && wanted:
		s.workers = 0
	default:
		s.workers = left
	}
	if (s.workers > 0) == (before > 0) {
		return
	}
	if s.workers == 0 {
		if now.Sub(s.since) < moment {
			s.pause = min(max(2*s.pause, lookEvery), maxPause)
		} else {
			s.pause = 0
		}
	}
	s.since = now
}

// load is what the processors did for a while.
type load struct {
	all, busy, own float64 // processors: there are, in use, by this process
	waiting        float64 // share of the time in which something waited for one; negative: not known
}

// left is how many processors others leave.
func (l load) left(siblings int) int {
	return max(0, int(l.all-float64(siblings)*(l.busy-l.own)+almostNone))
}

// within is how many processors others in a control group leave of its limit. Nothing is rounded up once they
// use it: all of them stand still for the rest of a period in which it is used up.
func (l load) within() int {
	left := l.all - (l.busy - l.own)
	if l.busy-l.own < countsAsUse {
		left += almostNone
	}
	return max(0, int(left))
}

// wanted reports whether others want what this process uses.
func (l load) wanted() bool {
	return l.busy-l.own > countsAsUse && l.all-l.busy < hardlyIdle*l.all &&
		(l.waiting < 0 || l.waiting > muchWaiting)
}
