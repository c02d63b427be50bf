package volume

import "time"

// allowance is how many workers packing may use. It is shown what the processors are used for, from time to time.
//
// What others use says what they want only as long as packing does not take it from them. So it is as many as others leave processors;
// and when hardly any processor is idle then, and something waits for one, it is none until some are idle without packing.
type allowance struct {
	most     int // workers
	siblings int // hardware threads of a core: who has one of them to himself is faster than who shares it

	workers int
	since   time.Time     // when it became none, or some
	pause   time.Duration // for which it is none, at least
}

const (
	hardlyIdle  = 0.1 // share of the processors
	countsAsUse = 0.5 // of one processor, by others
	almostNone  = 0.5 // of one processor: as good as idle
	muchWaiting = 0.3 // share of the time

	// Where it was some for a moment only, because what is idle is so for moments, it will be none for longer.
	moment   = 250 * time.Millisecond
	maxPause = 2 * time.Second
)

func (a *allowance) judge(now time.Time, l load) {
	before := a.workers
	others := l.busy - l.own
	left := max(0, min(int(l.all-float64(a.siblings)*others+almostNone), a.most))
	switch {
	case before == 0 && now.Sub(a.since) < a.pause:
	case before > 0 && others > countsAsUse && l.all-l.busy < hardlyIdle*l.all && (l.waiting < 0 || l.waiting > muchWaiting):
		a.workers = 0
	default:
		a.workers = left
	}
	if (a.workers > 0) == (before > 0) {
		return
	}
	if a.workers == 0 {
		if now.Sub(a.since) < moment {
			a.pause = min(max(2*a.pause, lookEvery), maxPause)
		} else {
			a.pause = 0
		}
	}
	a.since = now
}

// load is what the processors did for a while.
type load struct {
	all, busy, own float64 // processors: there are, in use, by this process
	waiting        float64 // share of the time in which something waited for one; negative: not known
}
