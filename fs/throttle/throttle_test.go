package throttle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// machine has four processors, of which others want some. Packing gets what it asks for, or half of what is
// asked for more than there is.
type machine struct {
	mu                 sync.Mutex
	others             float64
	working            int
	at                 time.Time
	busy, own, waiting time.Duration
	start              time.Time
}

const machineCPUs = 4

func newMachine() *machine { return &machine{start: time.Now(), at: time.Now()} }

// passLocked brings the counters up to date.
func (m *machine) passLocked() {
	passed := time.Since(m.at)
	m.at = time.Now()
	own, others := float64(m.working), m.others
	if own+others > machineCPUs {
		own, others = max(own/2, own-others), max(machineCPUs-own, others-own/2)
		own = min(own, machineCPUs-others)
		m.waiting += passed
	}
	m.own += time.Duration(own * float64(passed))
	m.busy += time.Duration((own + others) * float64(passed))
}

func (m *machine) read() (cpuTime, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passLocked()
	return cpuTime{at: time.Now(), cpus: machineCPUs, all: machineCPUs * time.Since(m.start), busy: m.busy,
		own: m.own, waiting: m.waiting}, nil
}

func (m *machine) want(others float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passLocked()
	m.others = others
}

func (m *machine) work(ctx context.Context, c *Throttle) error {
	over, err := c.Turn(ctx)
	if err != nil {
		return err
	}
	defer over()
	m.mu.Lock()
	m.passLocked()
	m.working++
	m.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passLocked()
	m.working--
	return nil
}

// Packing has the processors that others leave, and those alone, unless something presses or a caller waits.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		var presses bool
		c := New(machineCPUs, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return presses })
		c.read, c.share.siblings = m.read, 1
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for range machineCPUs {
			workers.Go(func() {
				for m.work(ctx, c) == nil {
				}
			})
		}
		// share is what packing has of all processors in the next seconds.
		share := func(seconds int) float64 {
			before, _ := m.read()
			time.Sleep(time.Duration(seconds) * time.Second)
			after, _ := m.read()
			return after.since(before).own / machineCPUs
		}
		time.Sleep(lookEvery)
		for _, step := range []struct {
			others   float64
			presses  bool
			min, max float64
		}{
			{0, false, 0.95, 1},
			{4, false, 0, 0},
			{3, false, 0.2, 0.25},
			{0, false, 0.95, 1},
			{1, false, 0.7, 0.75},
			{4, false, 0, 0},
			{4, true, 0.01, 1.5 / burstShare},
			{4, false, 0, 0},
			{0, true, 0.95, 1},
		} {
			m.want(step.others)
			m.mu.Lock()
			presses = step.presses
			m.mu.Unlock()
			time.Sleep(maxPause + 2*lookEvery)
			if s := share(20); s < step.min || s > step.max {
				t.Errorf("%+v: %.3f of the processors", step, s)
			}
		}

		m.want(4)
		time.Sleep(time.Second)
		done := c.Wait()
		if s := share(1); s < 0.45 {
			t.Errorf("waited for: %.2f of the processors", s)
		}
		done()
		time.Sleep(maxPause)
		m.mu.Lock()
		presses = false
		m.mu.Unlock()
		time.Sleep(maxPause)
		if s := share(10); s != 0 {
			t.Errorf("waited for no longer: %.2f of the processors", s)
		}
		done = c.Press()
		if s := share(10); s < 0.01 || s > 1.5/burstShare {
			t.Errorf("pushed: %.3f of the processors", s)
		}
		done()

		cancel()
		workers.Wait()
		if c.active != 0 || c.waiting != 0 {
			t.Errorf("%d workers have turns, %d wait", c.active, c.waiting)
		}
	})
}

// A gap is used at once, and its end noticed.
func TestThrottleGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		c := New(machineCPUs, func() bool { return false })
		c.read, c.share.siblings = m.read, 1
		var workers sync.WaitGroup
		for range machineCPUs {
			workers.Go(func() {
				for m.work(t.Context(), c) == nil {
				}
			})
		}
		own := func() time.Duration { u, _ := m.read(); return u.own }
		for range 5 {
			m.want(4)
			time.Sleep(10 * time.Second)
			before := own()
			m.want(0)
			time.Sleep(time.Second)
			m.want(4)
			if used := own() - before; used < 3*machineCPUs*time.Second/4 {
				t.Errorf("of a gap of a second packing uses %v", used/machineCPUs)
			}
			before = own()
			time.Sleep(time.Second)
			if after := own() - before; after > 2*machineCPUs*lookEvery {
				t.Errorf("after it packing uses %v", after/machineCPUs)
			}
		}
	})
}

// No caller is kept waiting: one that begins to wait for the packing ends a worker's waiting at once, and so
// does the end of it.
func TestThrottleHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.want(4)
		c := New(machineCPUs, func() bool { return false })
		c.read = m.read
		turn := func(ctx context.Context) <-chan error {
			got := make(chan error, 1)
			go func() { got <- m.work(ctx, c) }()
			synctest.Wait()
			return got
		}
		first := turn(t.Context())
		time.Sleep(time.Minute + 100*time.Microsecond)
		if len(first) > 0 {
			t.Fatal("there are turns though others want all processors")
		}
		if why := c.Why(time.Now()); why == "" {
			t.Error("and it does not say why")
		}
		start := time.Now()
		done := c.Wait()
		if err := <-first; err != nil || time.Since(start) > 2*time.Millisecond {
			t.Errorf("%v after somebody began to wait: %v", time.Since(start), err)
		}
		if why := c.Why(time.Now()); why != "" {
			t.Errorf("waited for: %s", why)
		}
		done()
		ctx, cancel := context.WithCancel(t.Context())
		second := turn(ctx)
		time.Sleep(100 * time.Microsecond)
		cancel()
		start = time.Now()
		if err := <-second; !errors.Is(err, context.Canceled) || time.Since(start) > 0 {
			t.Errorf("%v after it was to end: %v", time.Since(start), err)
		}
	})
}

// Where the kernel says nothing packing goes on.
func TestThrottleBlind(t *testing.T) {
	c := New(2, func() bool { return false })
	c.read = func() (cpuTime, error) { return cpuTime{}, errors.New("no /proc") }
	for range 3 {
		if err := c.Pass(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if why := c.Why(time.Now()); why != "" {
		t.Error(why)
	}
	c = nil
	c.Wait()()
	c.Press()()
	if err := c.Pass(t.Context()); err != nil || c.Why(time.Now()) != "" {
		t.Error(err)
	}
}
