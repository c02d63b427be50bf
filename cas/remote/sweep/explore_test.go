package sweep_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// explorer runs worlds in all ways that deviate in at most some points from running one process after the
// other without faults, these in any order. A deviation is a preemption, a fault, or that a late request is
// applied.
type explorer struct {
	make   func() *scene
	wrap   wrapper
	sound  bool // there are no faults
	forget bool // what was explored is explored again
	seen   memory
	mu     sync.Mutex
	ends   map[digest]bool // states in which all processes have ended
	runs   atomic.Int64
	failed atomic.Pointer[failure]
}

// failure is a run that violates something.
type failure struct {
	chosen []int
	err    error
}

// follow runs one world: what was chosen, and from there on what comes first, until it comes to a state that
// was explored, with as many deviations left.
func (e *explorer) follow(chosen []int, left int) []step {
	e.runs.Add(1)
	s := e.make()
	final := s.final
	s.final = func() error {
		e.end(s.state())
		return final()
	}
	steps, err := s.run(e.wrap(), func(i int, o []option) int {
		switch {
		case i < len(chosen):
			return chosen[i]
		case !e.forget && e.seen.has(s.state(), left):
			return -1
		}
		return 0
	})
	if err != nil {
		e.failed.CompareAndSwap(nil, &failure{chosenOf(steps), err})
	}
	return steps
}

func (e *explorer) end(d digest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ends == nil {
		e.ends = map[digest]bool{}
	}
	e.ends[d] = true
}

func chosenOf(steps []step) []int {
	chosen := make([]int, len(steps))
	for i, s := range steps {
		chosen[i] = s.chosen
	}
	return chosen
}

// from explores what deviates behind the choices, with left deviations, in as many goroutines as workers.
func (e *explorer) from(chosen []int, left, workers int) {
	if e.failed.Load() != nil {
		return
	}
	steps := e.follow(chosen, left)
	var group sync.WaitGroup
	defer group.Wait()
	room := make(chan struct{}, workers)
	for i := len(chosen); i < len(steps); i++ {
		for n := 1; n < len(steps[i].options); n++ {
			o := steps[i].options[n]
			if o.cost > left || e.sound && o.mode != done {
				continue
			}
			next := append(chosenOf(steps[:i]), n)
			if workers < 2 {
				e.from(next, left-o.cost, 1)
				continue
			}
			room <- struct{}{}
			group.Go(func() {
				e.from(next, left-o.cost, 1)
				<-room
			})
		}
	}
}

// seeds runs n worlds at random.
func (e *explorer) seeds(n uint64, workers int) {
	var next atomic.Uint64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for seed := next.Add(1); seed <= n; seed = next.Add(1) {
				e.seed(seed)
			}
		})
	}
	group.Wait()
}

// seed runs one world at random: mostly the process that runs goes on.
func (e *explorer) seed(seed uint64) {
	if e.failed.Load() != nil {
		return
	}
	e.runs.Add(1)
	r := rand.New(rand.NewPCG(seed, 0))
	steps, err := e.make().run(e.wrap(), func(_ int, o []option) int {
		if r.IntN(4) > 0 {
			return 0
		}
		for {
			n := r.IntN(len(o))
			if o[n].cost < 2 && (o[n].mode == done || r.IntN(4) == 0) {
				return n
			}
		}
	})
	if err != nil {
		e.failed.CompareAndSwap(nil, &failure{chosenOf(steps), fmt.Errorf("seed %d: %w", seed, err)})
	}
}

// tell runs a failure again and returns what happened.
func (e *explorer) tell(f *failure) (lines []string) {
	w := e.make()
	w.trace = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	w.run(e.wrap(), func(i int, _ []option) int { return f.chosen[i] })
	return lines
}
