// Package throttle keeps background work out of the way of programs that compute on the same processors.
//
// Each batch of work waits for its turn. There are turns for as many workers as other programs leave
// processors, and as others in this process' control groups leave of what these may use (a container's
// limit). There are none while they want all of them. A training on processors meets at a barrier after each
// of its operations: work on a tenth of the processors, on one now and on another then, makes it half as slow
// again. What leaves it its pace is to keep to the gaps, in which it loads, evaluates and saves.
//
// The work does not starve. While something presses, its workers work for a fortieth of the time, all of them
// at the same time, so that a program that waits at a barrier loses that time once. And while a caller waits
// for the work (a sync, an umount, a close beyond --max-unpacked) there are turns for all.
//
// Low priorities of threads would not do. The scheduler shares processors between sessions and containers
// first, and priorities count within one. And where they do count, a thread of a Go program that is kept
// waiting while it holds a lock, or when garbage is to be collected, keeps all others waiting, those too that
// serve reads. A worker that waits for its turn holds nothing.
//
// The state is in Throttle, under its one mutex, which is a leaf: nothing is called with it held. The
// processors are looked at by the worker that asks for a turn, at most every watchEvery; there is no
// goroutine.
package throttle

import (
	"context"
	"fmt"
	"time"

	"ckptfs/cas/locks"
)

// leaf is the rank of Throttle.mu: callers hold locks of theirs, and nothing is locked under it.
type leaf struct{}

func (leaf) Rank() (int, string) { return locks.Volume + 990, "Throttle.mu" }

// Throttle gives turns to workers. A nil *Throttle gives one to each that asks.
type Throttle struct {
	read    func() (cpuTime, error)
	now     func() time.Time
	presses func() bool

	mu       locks.Mutex[leaf]
	wanted   int           // callers that wait for the work
	pressing int           // callers that are content with a part of the processors
	active   int           // turns
	waiting  int           // workers
	change   chan struct{} // closed when one of them may have its turn sooner than it thinks
	share    share
	looked   time.Time
	last     cpuTime // of no time: none to compare with
	limits   []load  // of the control groups, over limitsEvery at least
	before   cpuTime // that limits were last found at
	pressed  bool
	burst    struct{ end, next time.Time }
}

const (
	// A worker that wants a turn looks at the processors, if none has for that long: while there are turns,
	// and while there are none.
	watchEvery = 20 * time.Millisecond
	lookEvery  = 50 * time.Millisecond
	lookOld    = 10 * lookEvery // says nothing of now

	// What a control group may use is used up early in each period of a tenth of a second, as a rule: less
	// time tells nothing.
	limitsEvery = 100 * time.Millisecond

	burstTime  = 10 * time.Millisecond
	burstShare = 40 // one moment of so many is in a burst
)

// New makes a Throttle for so many workers. presses, which is called with no lock held, reports whether the
// work has to go on though others want the processors.
func New(workers int, presses func() bool) *Throttle {
	return &Throttle{
		read: newProcessors().read, now: time.Now, presses: presses,
		change: make(chan struct{}), share: share{most: workers, siblings: hardwareThreads()},
	}
}

// Wait says that a caller waits for the work, until done is called.
func (t *Throttle) Wait() (done func()) {
	if t == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted++
	t.wakeLocked()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wanted--
	}
}

// Press says that there is work that presses, until done is called.
func (t *Throttle) Press() (done func()) {
	if t == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pressing++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pressing--
	}
}

// wakeLocked has the workers that wait look again.
func (t *Throttle) wakeLocked() {
	t.mu.AssertHeld()
	if t.waiting > 0 {
		close(t.change)
		t.change = make(chan struct{})
	}
}

// Turn waits until a worker may work, which it does until it calls over. The error is ctx's.
func (t *Throttle) Turn(ctx context.Context) (over func(), err error) {
	if t == nil {
		return func() {}, ctx.Err()
	}
	for ctx.Err() == nil {
		t.look()
		t.mu.Lock()
		if t.wanted > 0 || t.active < t.turnsLocked() {
			t.active++
			t.mu.Unlock()
			return t.over, nil
		}
		again, change := t.looked.Add(lookEvery), t.change
		if next := t.burst.next; t.pressed && next.Before(again) {
			again = next
		}
		t.waiting++
		t.mu.Unlock()
		timer := time.NewTimer(max(again.Sub(t.now()), time.Millisecond))
		select {
		case <-timer.C:
		case <-change:
		case <-ctx.Done():
		}
		timer.Stop()
		t.mu.Lock()
		t.waiting--
		t.mu.Unlock()
	}
	return nil, ctx.Err()
}

func (t *Throttle) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active--
	t.wakeLocked()
}

// Pass waits until a worker might work, and takes no turn. The error is ctx's.
func (t *Throttle) Pass(ctx context.Context) error {
	over, err := t.Turn(ctx)
	if err == nil {
		over()
	}
	return err
}

// turnsLocked is how many workers may work.
func (t *Throttle) turnsLocked() int {
	t.mu.AssertHeld()
	if t.share.workers > 0 || !t.pressed {
		return t.share.workers
	}
	now := t.now()
	if !now.Before(t.burst.next) {
		t.burst.end, t.burst.next = now.Add(burstTime), now.Add(burstShare*burstTime)
		t.last = cpuTime{} // what others want does not show in a burst
	}
	if now.Before(t.burst.end) {
		return t.share.most
	}
	return 0
}

// look brings share and pressed up to date.
func (t *Throttle) look() {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	age := now.Sub(t.looked)
	every := lookEvery
	if t.share.workers > 0 {
		every = watchEvery
	}
	if age < every {
		return
	}
	t.looked = now // by one at a time
	t.mu.Unlock()
	u, err := t.read()
	presses := t.presses()
	t.mu.Lock()
	last := t.last
	t.last, t.pressed = u, presses || t.pressing > 0
	if now.Before(t.burst.end) {
		t.last = cpuTime{}
	}
	switch {
	case err != nil:
		t.share.workers = t.share.most
	case age > lookOld:
		t.share.workers, t.share.since, t.share.pause = 0, now, 0
		t.limits, t.before = nil, u
	case !last.at.IsZero():
		if u.at.Sub(t.before.at) >= limitsEvery {
			t.limits, t.before = u.limits(t.before), u
		}
		t.share.judge(now, u.since(last), t.limits)
	}
}

// Why says what keeps packing waiting; nothing when nothing does. From patient on it presses.
func (t *Throttle) Why(patient time.Time) string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.wanted > 0 || t.share.workers > 0:
		return ""
	case t.pressed:
		return fmt.Sprintf("other programs use all processors: packing has a %dth of the time; `ckptfs sync` packs at once",
			burstShare)
	default:
		return fmt.Sprintf("other programs use all processors: packing waits until %s, and has a %dth of the time then; "+
			"`ckptfs sync` packs at once", patient.Format(time.TimeOnly), burstShare)
	}
}
