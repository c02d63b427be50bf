package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/integration/engine"
)

// patience bounds a round. What takes longer hangs.
const patience = 8 * time.Minute

// run is one run of the whole.
type run struct {
	options
	engine   *engine.Engine
	machines []*machine
	ledger   *ledger
	rounds   int

	mu         sync.Mutex
	rng        *rand.Rand
	log        *os.File
	losses     []string
	complaints map[string]int

	next                                atomic.Int64 // size of a common file
	saves, removals                     atomic.Int64
	daemons, holders, engines, commands atomic.Int64 // that were killed
	collections, copies, disks, files   atomic.Int64
}

func newRun(o options) *run {
	return &run{options: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), ledger: newLedger(),
		complaints: map[string]int{}}
}

func (r *run) summary() string {
	s := fmt.Sprintf("torture: seed %d: %d rests, %d files saved and %d steps removed, %d acknowledged; "+
		"killed: %d daemons, %d with their holders, %d engines, %d commands; "+
		"%d collections, %d copied stores, %d lost disks; "+
		"%d files compared, %d losses", r.Seed, r.rounds, r.saves.Load(), r.removals.Load(), r.ledger.acked,
		r.daemons.Load(), r.holders.Load(), r.engines.Load(), r.commands.Load(),
		r.collections.Load(), r.copies.Load(),
		r.disks.Load(), r.files.Load(), len(r.losses))
	for _, c := range slices.Sorted(maps.Keys(r.complaints)) {
		s += fmt.Sprintf("\ntorture: %d times: %s", r.complaints[c], c)
	}
	return s
}

// intN draws a number.
func (r *run) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

// fork makes a source of numbers for a goroutine.
func (r *run) fork() *rand.Rand {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rand.New(rand.NewPCG(r.rng.Uint64(), 1))
}

// say writes to the log of the run.
func (r *run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	fmt.Fprintln(r.log, line)
	if r.verbose {
		fmt.Println(line)
	}
}

// lose notes a loss; the run goes on to the next rest, so that all of it is seen.
func (r *run) lose(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	r.say("LOSS: %s", s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses = append(r.losses, s)
	fmt.Fprintf(os.Stderr, "torture: round %d: LOSS: %s\n", r.rounds, s)
}

// complain counts what a command said that failed. That may be since something was killed beside it.
func (r *run) complain(format string, args ...any) {
	s := strings.TrimSpace(fmt.Sprintf(format, args...))
	s = strings.ReplaceAll(s, r.Dir, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.complaints) < 30 {
		r.complaints[s]++
	}
}

// run runs until time or rounds are over, or something was lost.
func (r *run) run() (err error) {
	if r.log, err = os.Create(filepath.Join(r.Dir, "run.log")); err != nil {
		return err
	}
	defer r.log.Close()
	for name, value := range engine.Environ(filepath.Join(r.Dir, "none")) {
		os.Setenv(name, value)
	}
	if r.engine, err = engine.New(filepath.Join(r.Dir, "engine")); err != nil {
		return err
	}
	defer r.engine.Kill()
	defer func() {
		for _, m := range r.machines {
			err = errors.Join(err, m.Clean())
		}
	}()
	for i := range r.options.machines {
		m, err := r.newMachine(i)
		r.machines = append(r.machines, m)
		if err != nil {
			return err
		}
	}
	end := time.Now().Add(r.Time)
	for (r.rounds == 0 || time.Now().Before(end)) && (r.options.rounds == 0 || r.rounds < r.options.rounds) {
		if err := r.once(); err != nil {
			return fmt.Errorf("seed %d, round %d: %w\nkept: %s", r.Seed, r.rounds, err, r.Dir)
		}
		r.rounds++
	}
	if err := r.rest(); err != nil || len(r.losses) == 0 {
		return err
	}
	return fmt.Errorf("seed %d: %d losses at the end, the first: %s\nkept: %s", r.Seed, len(r.losses),
		r.losses[0], r.Dir)
}

// once is one round: work, and a rest.
func (r *run) once() error {
	watchdog := time.AfterFunc(patience+r.round, func() {
		r.lose("hangs: nothing came to an end for %v; the stacks are in the daemons' logs", patience)
		for _, m := range r.machines {
			m.Dump()
			_ = m.Clean()
		}
	})
	defer watchdog.Stop()
	stop := make(chan struct{})
	var work, blows sync.WaitGroup
	for _, m := range r.machines {
		one, other, third := r.fork(), r.fork(), r.fork()
		work.Go(func() { m.save(one, stop) })
		work.Go(func() { m.runCommands(other, stop) })
		blows.Go(func() { m.strike(third, stop) })
	}
	rng := r.fork()
	blows.Go(func() { r.strikeEngine(rng, stop) })
	time.Sleep(r.round)
	close(stop)
	blows.Wait() // who works on needs daemons
	work.Wait()
	if len(r.losses) == 0 {
		if err := r.rest(); err != nil {
			return err
		}
	}
	if len(r.losses) == 0 && r.intN(2) == 0 {
		if err := r.copyStore(); err != nil {
			return err
		}
	}
	if len(r.losses) == 0 && r.intN(2) == 0 {
		if err := r.loseDisk(); err != nil {
			return err
		}
	}
	if n := len(r.losses); n > 0 {
		return fmt.Errorf("%d losses, the first: %s", n, r.losses[0])
	}
	return nil
}
