package volume

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// machine is four processors, of which others want a share. This process takes all that is left while it works, and half of
// what they want.
type machine struct {
	start     time.Time
	others    float64
	at        time.Time
	worked    time.Duration // since at
	busy, own time.Duration
}

func (m *machine) cpuTime() (cpuTime, error) {
	now := time.Now()
	passed := now.Sub(m.at)
	m.at = now
	own := 4 * max(1-m.others, 0.5) * float64(m.worked)
	others := min(4*m.others*float64(passed), 4*float64(passed)-own)
	m.worked = 0
	m.own += time.Duration(own)
	m.busy += time.Duration(own + others)
	return cpuTime{all: 4 * now.Sub(m.start), busy: m.busy, own: m.own}, nil
}

// Workers rest while others compute, and not otherwise; nor when somebody waits for them, nor once they are to end.
func TestCourtesy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{start: time.Now(), at: time.Now()}
		c := newCourtesy()
		c.read = m.cpuTime
		// work is some work of 10 ms a piece, and the time that it took.
		work := func(pieces int) time.Duration {
			start := time.Now()
			for range pieces {
				time.Sleep(10 * time.Millisecond)
				m.worked += 10 * time.Millisecond
				c.rest(context.Background(), 10*time.Millisecond)
			}
			return time.Since(start)
		}
		if took := work(100); took != time.Second {
			t.Errorf("alone: %v for a second of work", took)
		}
		m.others = 1
		work(100)
		if took := work(100); took < 9*time.Second {
			t.Errorf("beside others: %v for a second of work", took)
		}
		done := c.wait()
		if took := work(100); took != time.Second {
			t.Errorf("waited for: %v for a second of work", took)
		}
		done()
		if took := work(100); took < 9*time.Second {
			t.Errorf("waited for no longer: %v for a second of work", took)
		}
		m.others = 0.1
		work(100)
		if took := work(100); took != time.Second {
			t.Errorf("beside few: %v for a second of work", took)
		}

		m.others = 1
		work(100)
		start := time.Now()
		go func() {
			time.Sleep(100 * time.Millisecond)
			c.wait()
		}()
		if c.rest(context.Background(), time.Second); time.Since(start) != 100*time.Millisecond {
			t.Errorf("rested %v though somebody waited after 100 ms", time.Since(start))
		}
		c.wanted.Store(0)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		start = time.Now()
		if c.rest(ctx, time.Second); time.Since(start) != 0 {
			t.Errorf("rested %v though it is to end", time.Since(start))
		}
	})
}

// The kernel tells of this process and of the machine.
func TestReadCPUTime(t *testing.T) {
	u, err := readCPUTime()
	if err != nil || u.all <= 0 || u.busy <= 0 || u.busy > u.all {
		t.Errorf("%+v, %v", u, err)
	}
}
