package volume

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// courtesy keeps packing out of the way of who computes on the same processors. While others want them, each of
// packing's workers rests nine times as long as it worked, so all of them take a tenth of the machine; a training that
// runs on the processors goes on at its pace, and one that runs on accelerators leaves them idle and is not asked.
//
// Nobody is kept waiting by it: as long as somebody waits for the packing (a sync, an umount, a close beyond
// --max-unpacked) there is no rest.
//
// A lower priority of packing's threads would not do: the scheduler shares processors between sessions first, and nice
// values count within one.
type courtesy struct {
	read func() (cpuTime, error)
	now  func() time.Time

	wanted atomic.Int32

	mu      sync.Mutex
	hurry   chan struct{} // closed when somebody begins to wait
	at      time.Time     // of last
	last    cpuTime
	crowded bool
}

// cpuTime is processor time since some moment, of all processors together.
type cpuTime struct {
	all  time.Duration // passed
	busy time.Duration // used, by whomever
	own  time.Duration // used by this process
}

const (
	sampleEvery = 200 * time.Millisecond
	sampleOld   = 5 * sampleEvery // says nothing of now
	// Others want the processors when hardly any is idle and they have a share of them that counts; packing alone can keep all
	// of them busy, so what others would use does not show. They want them no longer once some are idle while packing rests.
	hardlyIdle, someIdle = 0.1, 0.4
	shareThatCounts      = 0.25
	restPerWork          = 9
	maxRest              = time.Second
)

func newCourtesy() *courtesy {
	return &courtesy{read: readCPUTime, now: time.Now, hurry: make(chan struct{})}
}

// wait says that somebody waits for the packing, until the function it returns is called.
func (c *courtesy) wait() (done func()) {
	if c.wanted.Add(1) == 1 {
		c.mu.Lock()
		close(c.hurry)
		c.hurry = make(chan struct{})
		c.mu.Unlock()
	}
	return func() { c.wanted.Add(-1) }
}

// rest is called by a worker that has worked so long.
func (c *courtesy) rest(ctx context.Context, worked time.Duration) {
	c.mu.Lock()
	c.look()
	crowded, hurry := c.crowded, c.hurry
	c.mu.Unlock()
	if !crowded || c.wanted.Load() > 0 { // who begins to wait after that closes hurry
		return
	}
	t := time.NewTimer(min(restPerWork*worked, maxRest))
	defer t.Stop()
	select {
	case <-t.C:
	case <-hurry:
	case <-ctx.Done():
	}
}

// look brings crowded up to date. mu is held.
func (c *courtesy) look() {
	now := c.now()
	age := now.Sub(c.at)
	if age < sampleEvery {
		return
	}
	u, err := c.read()
	if err != nil {
		c.crowded = false
		return
	}
	before := c.last
	c.last, c.at = u, now
	all := u.all - before.all
	if age > sampleOld || all <= 0 {
		c.crowded = false
		return
	}
	busy, own := float64(u.busy-before.busy)/float64(all), float64(u.own-before.own)/float64(all)
	idle := 1 - busy
	c.crowded = busy-own > shareThatCounts && (idle < hardlyIdle || c.crowded && idle < someIdle)
}

// readCPUTime asks the kernel. What runs at a low priority does not count as busy.
func readCPUTime() (u cpuTime, err error) {
	p, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	const tick = 10 * time.Millisecond // USER_HZ, which is 100 on every architecture that Go runs on
	line, _, _ := bytes.Cut(p, []byte("\n"))
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; guests are in user and nice already
	for i, f := range bytes.Fields(line) {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if i == 0 || i > 8 || err != nil {
			continue
		}
		u.all += time.Duration(n) * tick
		if i != 2 && i != 4 && i != 5 {
			u.busy += time.Duration(n) * tick
		}
	}
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return u, err
	}
	u.own = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return u, nil
}
