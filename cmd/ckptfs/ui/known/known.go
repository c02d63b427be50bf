// Package known keeps what a page needs of all runs at hand.
//
// The list of runs is never older than Fresh. It says which of the logs that are kept are not right any more:
// these are waited for. The others are asked again, too, but a page does not wait for that longer than
// Patience: one of a run of 50,000 steps has its log at once. A log that says other than the list has the
// list asked for again. So what one page says of a run, the next one says, too.
package known

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// Source is who knows the runs: a control.Client.
type Source interface {
	Runs(ctx context.Context) (*control.RunList, error)
	Log(ctx context.Context, run string, steps control.Listed) (*control.RunLog, error)
}

const (
	// Fresh is how old an answer may be that is given without asking again.
	Fresh = 2 * time.Second
	// Patience is how long a page waits for what it can do without.
	Patience = 50 * time.Millisecond
)

const (
	// mostBytes bounds the logs that are kept, of all runs together.
	mostBytes = 1 << 28
	// mostCells bounds the metrics of a run, times its steps: of more metrics those stay that most steps
	// have. Programs that count in a metric's name make one more with each step.
	mostCells = 1 << 24
)

// Log is what is kept of a run. It does not change.
type Log struct {
	Run   string // its name
	Steps []Step
	// Metrics are by name; each has a value for each step.
	Metrics map[string]Values
	Left    int // metrics that are left out: there are too many
}

// bytes is about how much memory l takes.
func (l *Log) bytes() int { return len(l.Steps) * (200 + 9*len(l.Metrics)) }

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
// earlier of equals does. Only complete steps count. -1: none, also where nobody knows which end is good.
func (l *Log) Best(v Values, good End) int {
	best := -1
	if good == Unknown {
		return -1
	}
	for i, x := range v.Of {
		if !v.Has[i] || math.IsNaN(x) || l.Steps[i].State != control.StepComplete {
			continue
		}
		if best < 0 || good.Better(x, v.Of[best]) {
			best = i
		}
	}
	return best
}

// End is which end of a metric is good.
type End int

// The ends.
const (
	Unknown End = iota
	Least
	Greatest
)

// Good is which end of a metric is good by its name.
func Good(metric string) End {
	switch m, known := runs.ModeOf(metric); {
	case !known:
		return Unknown
	case m == runs.Max:
		return Greatest
	}
	return Least
}

// Better reports whether x is nearer to the end than y. None is where that is Unknown.
func (e End) Better(x, y float64) bool { return e == Greatest && x > y || e == Least && x < y }

// String is the end in a word; "" for Unknown.
func (e End) String() string { return [...]string{"", "least", "greatest"}[e] }

// Whole says which steps have a value and are not torn: what a torn step has may be of anything.
func (l *Log) Whole(v Values) []bool {
	has := slices.Clone(v.Has)
	for i := range has {
		has[i] = has[i] && l.Steps[i].State != control.StepTorn
	}
	return has
}

// Last is the index of the last step that has a value of v and is not torn; -1: none.
func (l *Log) Last(v Values) int {
	for i := len(v.Of) - 1; i >= 0; i-- {
		if v.Has[i] && l.Steps[i].State != control.StepTorn {
			return i
		}
	}
	return -1
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
	now    func() time.Time

	mu    sync.Mutex
	logs  map[string]*entry
	bytes int // of logs
	most  int // mostBytes, but for tests
	warm  int // runs that Warm came to
	done  bool
}

type entry struct {
	log  *Log
	at   time.Time // when it was asked for
	used time.Time
}

// New makes an empty one.
func New(life context.Context, from Source) *Runs {
	r := &Runs{from: from, life: life, list: Keep(life, from.Runs), logs: map[string]*entry{},
		most: mostBytes, now: time.Now}
	r.list.now = func() time.Time { return r.now() }
	return r
}

// List is the list of runs.
func (r *Runs) List(ctx context.Context) (*control.RunList, error) { return r.list.Get(ctx, Fresh) }

// Peek is the log of a run if it is at hand; else nil. old: it is not what the list says of the run.
func (r *Runs) Peek(run *control.Run) (l *Log, old bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.logs[run.Run]
	if e == nil {
		return nil, false
	}
	e.used = r.now()
	return e.log, !e.log.agrees(run)
}

// agrees reports whether l is of what a list says of the run.
func (l *Log) agrees(run *control.Run) bool {
	of := control.Run{Steps: len(l.Steps)}
	for i := range l.Steps {
		s := &l.Steps[i]
		of.LogicalBytes += s.Logical
		switch s.State {
		case control.StepComplete:
			of.Complete++
		case control.StepTorn:
			of.Torn++
		default:
			of.Writing++
		}
		if s.Time.After(of.Last) {
			of.Last = s.Time
		}
	}
	return of.Steps == run.Steps && of.Complete == run.Complete && of.Torn == run.Torn &&
		of.Writing == run.Writing && of.LogicalBytes == run.LogicalBytes && of.Last.Equal(run.Last)
}

// Log is the log of a run, by its name.
func (r *Runs) Log(ctx context.Context, run string) (*Log, error) {
	list, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	said := &control.Run{}
	if i := slices.IndexFunc(list.Runs, func(r control.Run) bool { return r.Run == run }); i >= 0 {
		said = &list.Runs[i]
	}
	return r.logOf(ctx, run, said)
}

// Logs has the logs be read that are not what a list says of their runs, and waits for them, though not for
// long. It returns how many are still to come.
func (r *Runs) Logs(ctx context.Context, list *control.RunList) (left int) {
	old := r.old(list)
	if len(old) == 0 {
		return 0
	}
	got := r.flight.DoChan("", func() (any, error) {
		for _, run := range old {
			_, _ = r.logOf(r.life, run.Run, run) // its page will say why not
		}
		return nil, nil
	})
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-got:
		return 0
	}
	return len(r.old(list))
}

// old are the runs of a list of which the logs that are kept are not right.
func (r *Runs) old(list *control.RunList) (old []*control.Run) {
	for i := range list.Runs {
		if l, is := r.Peek(&list.Runs[i]); l != nil && is {
			old = append(old, &list.Runs[i])
		}
	}
	return old
}

// logOf is the log of a run of which the list says what said is.
func (r *Runs) logOf(ctx context.Context, run string, said *control.Run) (*Log, error) {
	r.mu.Lock()
	var have *Log
	fresh := false
	if e := r.logs[run]; e != nil {
		e.used = r.now()
		have, fresh = e.log, r.now().Sub(e.at) < Fresh
	}
	r.mu.Unlock()
	right := have != nil && have.agrees(said)
	if right && fresh {
		return have, nil
	}
	asked := r.now()
	got := r.flight.DoChan(run, func() (any, error) { return r.load(run) })
	var enough <-chan time.Time
	if right {
		timer := time.NewTimer(Patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-enough:
		return have, nil
	case x := <-got:
		if x.Err != nil {
			return nil, x.Err
		}
		e := x.Val.(*entry)
		if !e.log.agrees(said) && e.at.Before(asked) { // it was on its way already
			var err error
			if e, err = r.load(run); err != nil {
				return nil, err
			}
		}
		if !e.log.agrees(said) { // the list is older, or the run changes
			r.list.Forget()
		}
		return e.log, nil
	}
}

func (r *Runs) load(run string) (*entry, error) {
	begun := r.now()
	l, err := r.read(run)
	if Away(err) {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.logs[run]; old != nil {
		r.bytes -= old.log.bytes()
		delete(r.logs, run)
	}
	if err != nil { // it may be gone
		return nil, err
	}
	e := &entry{log: l, at: begun, used: r.now()}
	r.logs[run], r.bytes = e, r.bytes+l.bytes()
	for r.bytes > r.most && len(r.logs) > 1 {
		oldest := ""
		for name, e := range r.logs {
			if name != run && (oldest == "" || e.used.Before(r.logs[oldest].used)) {
				oldest = name
			}
		}
		r.bytes -= r.logs[oldest].log.bytes()
		delete(r.logs, oldest)
	}
	return e, nil
}

// Away reports that the daemon went away: what is known may still be so, and another daemon takes the mount
// over in a moment, if it is to.
func Away(err error) bool { return control.WentAway(err) || errors.Is(err, control.ErrNoDaemon) }

func (r *Runs) read(run string) (*Log, error) {
	l, all := &Log{Run: run}, map[string]*few{}
	_, err := r.from.Log(r.life, "runs/"+run, func(some []control.Step) error {
		for i := range some {
			s := &some[i]
			l.Steps = append(l.Steps, Step{Name: s.Step, State: s.State, Time: s.Time, Files: s.Files,
				Logical: s.LogicalBytes, New: s.NewBytes, Stored: s.StoredBytes, Plain: s.PlainBytes,
				Problem: s.Problem, Shared: s.SharedWith, SharedBy: s.SharedBytes})
			for name, x := range s.Metrics {
				v := all[name]
				if v == nil {
					v = &few{}
					all[name] = v
				}
				v.at, v.of = append(v.at, int32(len(l.Steps)-1)), append(v.of, float64(x))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.keep(all, mostCells)
	return l, nil
}

// few are the values of a metric that few steps may have.
type few struct {
	at []int32 // steps
	of []float64
}

// keep sets the metrics of l: of more than there is room for, those that most steps have.
func (l *Log) keep(all map[string]*few, cells int) {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(all[b].at), len(all[a].at)), cmp.Compare(a, b))
	})
	n := min(len(names), max(1, cells/max(1, len(l.Steps))))
	l.Metrics, l.Left = make(map[string]Values, n), len(names)-n
	for _, name := range names[:n] {
		v := Values{make([]float64, len(l.Steps)), make([]bool, len(l.Steps))}
		for k, i := range all[name].at {
			v.Of[i], v.Has[i] = all[name].of[k], true
		}
		l.Metrics[name] = v
	}
}

// Warm reads the logs of all runs, one after the other, so that the pages of all of them are quick.
func (r *Runs) Warm(ctx context.Context) {
	list, err := r.List(ctx)
	if err == nil {
		for i := range list.Runs {
			if ctx.Err() != nil {
				return
			}
			_, err := r.Log(ctx, list.Runs[i].Run) // its page will say why not
			for wait := 100 * time.Millisecond; Away(err) && wait < 5*time.Second; wait *= 2 {
				select {
				case <-time.After(wait):
					_, err = r.Log(ctx, list.Runs[i].Run)
				case <-ctx.Done():
					return
				}
			}
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
