// Package known keeps what a page needs of all runs at hand. What was asked a moment ago is answered at once,
// and asked again behind the answer: a page of a run of 50,000 steps does not wait for its log each time.
package known

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"ckptfs/fs/control"
)

// Source is who knows the runs: a control.Client.
type Source interface {
	Runs(ctx context.Context) (*control.RunList, error)
	Log(ctx context.Context, run string, steps control.Listed) (*control.RunLog, error)
}

// Fresh is how old an answer may be that is given without asking again.
const Fresh = 2 * time.Second

// mostSteps bounds the steps that are kept, of all runs together: some 200 bytes each, and 9 for each metric.
const mostSteps = 1 << 19

// Log is what is kept of a run. It does not change.
type Log struct {
	Run   string // its name
	Steps []Step
	// Metrics are by name; each has a value for each step.
	Metrics map[string]Values
}

// Step is a control.Step without its metrics.
type Step struct {
	Name     string
	State    string
	Time     time.Time
	Files    int
	Logical  int64 // bytes, as in control.Step
	New      int64
	Stored   int64
	Plain    int64
	Problem  string
	Shared   string
	SharedBy int64 // bytes
}

// Values are those of a metric, one for each step; Has says of which steps it is known.
type Values struct {
	Of  []float64
	Has []bool
}

// Best is the index of the step with the best value of v, as index/runs has it: NaN never wins, and the
// earlier of equals does. Only complete steps count. -1: none.
func (l *Log) Best(v Values, greatest bool) int {
	best := -1
	for i, x := range v.Of {
		if !v.Has[i] || math.IsNaN(x) || l.Steps[i].State != control.StepComplete {
			continue
		}
		if best < 0 || greatest && x > v.Of[best] || !greatest && x < v.Of[best] {
			best = i
		}
	}
	return best
}

// Names are the metrics, sorted.
func (l *Log) Names() []string {
	names := make([]string, 0, len(l.Metrics))
	for n := range l.Metrics {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Runs keeps the list of runs and their logs.
type Runs struct {
	from Source
	// life is that of the program: what was begun for one page goes on for the next.
	life   context.Context
	flight singleflight.Group
	list   *Kept[control.RunList]

	mu    sync.Mutex
	logs  map[string]*entry
	steps int // in logs
	warm  int // runs that Warm came to
	done  bool
}

type entry struct {
	log  *Log
	at   time.Time
	used time.Time
}

// New makes an empty one.
func New(life context.Context, from Source) *Runs {
	return &Runs{from: from, life: life, list: Keep(life, from.Runs), logs: map[string]*entry{}}
}

// List is the list of runs.
func (r *Runs) List(ctx context.Context) (*control.RunList, error) { return r.list.Get(ctx, Fresh) }

// Peek is the log of a run if it is at hand, however old; else nil.
func (r *Runs) Peek(run string) *Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.logs[run]; e != nil {
		e.used = time.Now()
		return e.log
	}
	return nil
}

// Log is the log of a run, by its name.
func (r *Runs) Log(ctx context.Context, run string) (*Log, error) {
	r.mu.Lock()
	var have *Log
	fresh := false
	if e := r.logs[run]; e != nil {
		e.used = time.Now()
		have, fresh = e.log, time.Since(e.at) < Fresh
	}
	r.mu.Unlock()
	if fresh {
		return have, nil
	}
	return wait(ctx, r.flight.DoChan(run, func() (any, error) { return r.load(run) }), have)
}

func (r *Runs) load(run string) (*Log, error) {
	l, err := r.read(run)
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.logs[run]; old != nil {
		r.steps -= len(old.log.Steps)
		delete(r.logs, run)
	}
	if err != nil { // it may be gone
		return nil, err
	}
	now := time.Now()
	r.logs[run], r.steps = &entry{log: l, at: now, used: now}, r.steps+len(l.Steps)
	for r.steps > mostSteps && len(r.logs) > 1 {
		oldest := ""
		for name, e := range r.logs {
			if name != run && (oldest == "" || e.used.Before(r.logs[oldest].used)) {
				oldest = name
			}
		}
		r.steps -= len(r.logs[oldest].log.Steps)
		delete(r.logs, oldest)
	}
	return l, nil
}

func (r *Runs) read(run string) (*Log, error) {
	l := &Log{Run: run, Metrics: map[string]Values{}}
	_, err := r.from.Log(r.life, "runs/"+run, func(some []control.Step) error {
		for i := range some {
			s := &some[i]
			l.Steps = append(l.Steps, Step{Name: s.Step, State: s.State, Time: s.Time, Files: s.Files,
				Logical: s.LogicalBytes, New: s.NewBytes, Stored: s.StoredBytes, Plain: s.PlainBytes,
				Problem: s.Problem, Shared: s.SharedWith, SharedBy: s.SharedBytes})
			for name, x := range s.Metrics {
				v := l.Metrics[name]
				v.Of, v.Has = padded(v.Of, len(l.Steps)), padded(v.Has, len(l.Steps))
				v.Of[len(l.Steps)-1], v.Has[len(l.Steps)-1] = float64(x), true
				l.Metrics[name] = v
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, v := range l.Metrics {
		l.Metrics[name] = Values{padded(v.Of, len(l.Steps)), padded(v.Has, len(l.Steps))}
	}
	return l, nil
}

// padded is a slice of n elements, those behind the ones of s zero.
func padded[T any](s []T, n int) []T { return append(s, make([]T, n-len(s))...) }

// Warm reads the logs of all runs, one after the other, so that the pages of all of them are quick.
func (r *Runs) Warm(ctx context.Context) {
	list, err := r.List(ctx)
	if err == nil {
		for i := range list.Runs {
			if ctx.Err() != nil {
				return
			}
			_, _ = r.Log(ctx, list.Runs[i].Run) // its page will say why not
			r.mu.Lock()
			r.warm = i + 1
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
}

// Warmed is how many runs Warm came to, and whether it has ended.
func (r *Runs) Warmed() (runs int, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.warm, r.done
}
