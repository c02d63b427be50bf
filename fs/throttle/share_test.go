package throttle

import (
	"testing"
	"time"
)

// Of what the processors are used for follows how many packing may use.
func TestShare(t *testing.T) {
	const unknown = -1
	for name, c := range map[string]struct {
		siblings, workers int // before
		l                 load
		want              int
	}{
		"nobody else":                              {1, 4, load{4, 4, 4, 0.9}, 4},
		"nobody else, and packing waited":          {1, 0, load{4, 0, 0, 0}, 4},
		"a shell":                                  {1, 4, load{4, 4, 3.8, 0.9}, 4},
		"one program":                              {1, 4, load{4, 2, 1, 0}, 3},
		"one program, beside three workers":        {1, 3, load{4, 4, 3, 0.1}, 3},
		"one program that waits for three workers": {1, 3, load{4, 4, 3.2, 0.8}, 0},
		"the same, and the kernel does not say":    {1, 3, load{4, 4, 3.2, unknown}, 0},
		"waiting, but not for want of processors":  {1, 3, load{4, 3, 2, 0.8}, 3},
		"all are wanted":                           {1, 0, load{4, 4, 0, 1}, 0},
		"all are wanted, and packing has some":     {1, 2, load{4, 4, 2, 1}, 0},
		"most are wanted":                          {1, 0, load{4, 3.4, 0, 0.2}, 1},
		"more than there are":                      {1, 0, load{4, 5, 0, 0.2}, 0},
		"one thread a core, of eight cores":        {2, 0, load{16, 8, 0, 0}, 0},
		"one thread a core, of six of eight cores": {2, 0, load{16, 6, 0, 0}, 4},
		"a program beside packing on eight cores":  {2, 16, load{16, 15, 14, 0}, 14},
		"nothing is known":                         {1, 4, load{waiting: unknown}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := share{most: int(max(c.l.all, 4)), siblings: c.siblings, workers: c.workers}
			if a.judge(time.Now(), c.l, nil); a.workers != c.want {
				t.Errorf("%d workers, want %d", a.workers, c.want)
			}
		})
	}
}

// What is idle for moments is used less and less often, and what is idle for longer at once.
func TestSharePauses(t *testing.T) {
	idle, busy := load{2, 0, 0, 0}, load{2, 2, 0.5, 1}
	now := time.Now()
	a := share{most: 2, siblings: 1}
	// gap is how long it takes from the begin of a gap until it is used, and uses so much of it.
	gap := func(length time.Duration) (pause time.Duration) {
		for a.workers == 0 {
			now = now.Add(lookEvery)
			pause += lookEvery
			a.judge(now, idle, nil)
		}
		now = now.Add(length)
		a.judge(now, busy, nil)
		if a.workers != 0 {
			t.Fatal("it goes on after the gap")
		}
		return pause
	}
	if p := gap(lookEvery); p != lookEvery {
		t.Errorf("the first gap is used after %v", p)
	}
	last := time.Duration(0)
	for range 10 {
		p := gap(lookEvery)
		if p < last {
			t.Errorf("after %v, and before that after %v", p, last)
		}
		last = p
	}
	if last != maxPause {
		t.Errorf("moments are used every %v", last)
	}
	gap(2 * moment)
	if p := gap(2 * moment); p != lookEvery {
		t.Errorf("after a long gap the next is used after %v", p)
	}
}
