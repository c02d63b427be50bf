package throttle

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// courtesy keeps packing out of the way of who computes on the same processors. Each batch of packing waits for its turn, and
// there are turns for as many workers as others leave processors, and as others in its control groups leave of what these may use (a container's limit);
// none while they want all of them. A training on processors meets at a barrier
// after each of its operations: packing by a tenth of the processors, of one now and of another then, makes it half as slow again.
// What leaves it its pace is to keep to the gaps, in which it loads, evaluates and saves.
//
// Packing does not starve. While something presses (see packer.presses) its workers work for a fortieth of the time, all of them at the same
// time, so that who waits at a barrier loses that time once. And while somebody waits for the packing (a sync, an umount, a close
// beyond --max-unpacked) there are turns for all.
//
// Low priorities for packing's threads would not do. The scheduler shares processors between sessions and containers first, and
// priorities count within one. And where they do count, a thread of a Go program that is kept waiting while it holds a lock, or when garbage
// is to be collected, keeps all others waiting, those too that serve reads. A worker that waits for its turn holds nothing.
type courtesy struct {
	read    func() (cpuTime, error)
	now     func() time.Time
	presses func() bool

	mu      sync.Mutex
	wanted  int           // who waits for the packing
	pushing int           // who is content with a part of the processors
	active  int           // turns
	waiting int           // workers
	change  chan struct{} // closed when one of them may have its turn sooner than it thinks
	allowed allowance
	looked  time.Time
	last    cpuTime // of no time: none to compare with
	limits  []load  // of the control groups, over limitsEvery at least
	before  cpuTime // that limits were last found at
	pressed bool
	burst   struct{ end, next time.Time }
}

const (
	// Whoever wants a turn looks at the processors, if nobody has for that long: while there are turns, and while there are none.
	watchEvery = 20 * time.Millisecond
	lookEvery  = 50 * time.Millisecond
	lookOld    = 10 * lookEvery // says nothing of now

	// What a control group may use is used up early in each period of a tenth of a second, as a rule: less time tells nothing.
	limitsEvery = 100 * time.Millisecond

	burstTime  = 10 * time.Millisecond
	burstShare = 40 // one moment of so many is in a burst
)

func newCourtesy(workers int, presses func() bool) *courtesy {
	return &courtesy{
		read: newProcessors().read, now: time.Now, presses: presses,
		change: make(chan struct{}), allowed: allowance{most: workers, siblings: hardwareThreads()},
	}
}

// wait says that somebody waits for the packing, until the function it returns is called.
func (c *courtesy) wait() (done func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted++
	c.wake()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wanted--
	}
}

// push says that there is work that presses, until the function it returns is called.
func (c *courtesy) push() (done func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushing++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pushing--
	}
}

// wake has the workers that wait look again. mu is held.
func (c *courtesy) wake() {
	if c.waiting > 0 {
		close(c.change)
		c.change = make(chan struct{})
	}
}

// turn waits until a worker may work, which it does until it calls over.
func (c *courtesy) turn(ctx context.Context) (over func(), err error) {
	if c == nil {
		return func() {}, ctx.Err()
	}
	for ctx.Err() == nil {
		c.look()
		c.mu.Lock()
		if c.wanted > 0 || c.active < c.turns() {
			c.active++
			c.mu.Unlock()
			return c.over, nil
		}
		again, change := c.looked.Add(lookEvery), c.change
		if next := c.burst.next; c.pressed && next.Before(again) {
			again = next
		}
		c.waiting++
		c.mu.Unlock()
		t := time.NewTimer(max(again.Sub(c.now()), time.Millisecond))
		select {
		case <-t.C:
		case <-change:
		case <-ctx.Done():
		}
		t.Stop()
		c.mu.Lock()
		c.waiting--
		c.mu.Unlock()
	}
	return nil, ctx.Err()
}

func (c *courtesy) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	c.wake()
}

// pass waits until a worker might work.
func (c *courtesy) pass(ctx context.Context) error {
	over, err := c.turn(ctx)
	if err == nil {
		over()
	}
	return err
}

// turns is how many workers may work. mu is held.
func (c *courtesy) turns() int {
	if c.allowed.workers > 0 || !c.pressed {
		return c.allowed.workers
	}
	now := c.now()
	if !now.Before(c.burst.next) {
		c.burst.end, c.burst.next = now.Add(burstTime), now.Add(burstShare*burstTime)
		c.last = cpuTime{} // what others want does not show in a burst
	}
	if now.Before(c.burst.end) {
		return c.allowed.most
	}
	return 0
}

// look brings allowed and pressed up to date.
func (c *courtesy) look() {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(c.looked)
	every := lookEvery
	if c.allowed.workers > 0 {
		every = watchEvery
	}
	if age < every {
		return
	}
	c.looked = now // by one at a time
	c.mu.Unlock()
	u, err := c.read()
	presses := c.presses()
	c.mu.Lock()
	last := c.last
	c.last, c.pressed = u, presses || c.pushing > 0
	if now.Before(c.burst.end) {
		c.last = cpuTime{}
	}
	switch {
	case err != nil:
		c.allowed.workers = c.allowed.most
	case age > lookOld:
		c.allowed.workers, c.allowed.since, c.allowed.pause = 0, now, 0
		c.limits, c.before = nil, u
	case !last.at.IsZero():
		if u.at.Sub(c.before.at) >= limitsEvery {
			c.limits, c.before = u.limits(c.before), u
		}
		c.allowed.judge(now, u.since(last), c.limits)
	}
}

// why says what keeps packing waiting; nothing when nothing does. From patient on it presses.
func (c *courtesy) why(patient time.Time) string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.wanted > 0 || c.allowed.workers > 0:
		return ""
	case c.pressed:
		return fmt.Sprintf("other programs use all processors; packing takes them for a %dth of the time", burstShare)
	default:
		return fmt.Sprintf("other programs use all processors; from %s on packing takes them for a %dth of the time", patient.Format(time.TimeOnly), burstShare)
	}
}
