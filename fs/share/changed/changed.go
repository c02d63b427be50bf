// Package changed knows what of runs changed since it was looked through to be published.
package changed

import (
	"maps"
	"sync"
	"time"

	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// Log is what changed. It is safe for concurrent use.
type Log struct {
	now   func() time.Time
	quiet time.Duration // for which a change counts

	mu      sync.Mutex
	touched map[string]time.Time // of what runs hold, and runs: when something in it changed last
	dirty   map[string]bool      // runs that something changed in since they were looked through
	all     bool                 // every run is dirty
	looking Runs                 // what was dirty before the push that is under way looked through it
	done    map[string]*steps.Step
}

// New returns a Log by which all runs are to be looked through.
func New(now func() time.Time, quiet time.Duration) *Log {
	return &Log{now: now, quiet: quiet, touched: map[string]time.Time{}, dirty: map[string]bool{}, all: true,
		done: map[string]*steps.Step{}}
}

// Touched notes that a name in a run, or what it leads to, changed.
func (l *Log) Touched(p string) {
	at := shared.Step(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touched[at] = l.now()
	l.dirty[shared.Run(p)] = true
	delete(l.done, at)
}

// TouchedAll notes that something changed of which not all names are known.
func (l *Log) TouchedAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = true
	clear(l.done)
}

// Rest is for how long what a run holds was left alone, at most most.
func (l *Log) Rest(p string, most time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.touched[shared.Step(p)]; ok {
		return min(most, l.now().Sub(at))
	}
	return most
}

// WasDone reports whether all of a step is published.
func (l *Log) WasDone(p string, st *steps.Step) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done[p] == st
}

// Runs are runs that are to be looked through.
type Runs struct {
	log   *Log
	all   bool
	dirty map[string]bool
}

// All are all runs.
func All() Runs { return Runs{all: true} }

// Has reports whether a run is to be looked through.
func (r Runs) Has(run string) bool { return r.all || r.dirty[run] }

// Undo has them looked through again.
func (r Runs) Undo() {
	l := r.log
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = l.all || r.all
	maps.Copy(l.dirty, r.dirty)
	l.looking = Runs{}
}

// Look is what is dirty, and is about to be looked through: what changes from here on makes it dirty again.
func (l *Log) Look() Runs {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looking = Runs{l, l.all, l.dirty}
	l.all, l.dirty = false, map[string]bool{}
	return l.looking
}

// ToLookAt is what is dirty, or was until the push that is under way.
func (l *Log) ToLookAt() Runs {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Runs{all: l.all || l.looking.all, dirty: maps.Clone(l.dirty)}
	maps.Copy(r.dirty, l.looking.dirty)
	return r
}

// Pushed notes what a push published: steps of which all is published now, and what runs hold, or runs, that
// were removed. left are names that it left.
func (l *Log) Pushed(done map[string]*steps.Step, removed, left []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, st := range done {
		if !l.all && !l.dirty[shared.Run(at)] { // else it may have changed since it was looked at
			l.done[at] = st
		}
	}
	for _, at := range removed {
		delete(l.done, at)
	}
	for _, p := range left {
		l.dirty[shared.Run(p)] = true
	}
	l.looking = Runs{}
	now := l.now()
	maps.DeleteFunc(l.touched, func(_ string, at time.Time) bool { return now.Sub(at) >= l.quiet })
}
