package known

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/fs/control"
)

type source struct {
	runs, steps int
	slow        chan struct{} // unless nil, a log is not told before it is closed
	asked       atomic.Int64
	gone        bool
	away        atomic.Int64 // how often the daemon is not there
}

func (s *source) Runs(context.Context) (*control.RunList, error) {
	l := &control.RunList{}
	for i := range s.runs {
		r := control.Run{Run: fmt.Sprint("r", i), Steps: s.steps, LogicalBytes: int64(10 * s.steps)}
		if s.steps > 3 {
			r.Torn = 1
		}
		r.Complete = r.Steps - r.Torn
		l.Runs = append(l.Runs, r)
	}
	return l, nil
}

func (s *source) Log(_ context.Context, run string, steps control.Listed) (*control.RunLog, error) {
	s.asked.Add(1)
	if s.gone {
		return nil, errors.New("no such run")
	}
	if s.away.Add(-1) >= 0 {
		return nil, fmt.Errorf("store: %w", control.ErrNoDaemon)
	}
	n := s.steps
	if s.slow != nil {
		<-s.slow
	}
	for i := range n {
		st := control.Step{Step: fmt.Sprint(i), State: control.StepComplete, LogicalBytes: 10,
			Metrics: map[string]control.Number{"loss": control.Number(s.steps - i)}}
		if i%2 == 1 {
			st.Metrics["acc"] = control.Number(i)
		}
		if i == 3 {
			st.State = control.StepTorn
		}
		if err := steps([]control.Step{st}); err != nil {
			return nil, err
		}
	}
	return &control.RunLog{}, nil
}

// kept is the log of a run if it is at hand.
func kept(r *Runs, run string) *Log {
	l, _ := r.Peek(&control.Run{Run: run})
	return l
}

func TestLog(t *testing.T) {
	src := &source{runs: 3, steps: 4}
	r := New(t.Context(), src)
	if kept(r, "r0") != nil {
		t.Error("something is known of nothing")
	}
	l, err := r.Log(t.Context(), "r0")
	if err != nil || len(l.Steps) != 4 || fmt.Sprint(l.Names()) != "[acc loss]" {
		t.Fatalf("%+v, %v", l, err)
	}
	acc := l.Metrics["acc"]
	if fmt.Sprint(acc.Of, acc.Has) != "[0 1 0 3] [false true false true]" {
		t.Errorf("%v", acc)
	}
	if l.Best(acc, Greatest) != 1 || l.Best(l.Metrics["loss"], Least) != 2 { // the last step is torn
		t.Errorf("best %d, %d", l.Best(acc, Greatest), l.Best(l.Metrics["loss"], Least))
	}
	if l.Best(Values{[]float64{math.NaN(), 0, 0, 0}, []bool{true, false, false, false}}, Least) != -1 {
		t.Error("NaN is the best")
	}
	if again, _ := r.Log(t.Context(), "r0"); again != l || src.asked.Load() != 1 || kept(r, "r0") != l {
		t.Error("it was asked again at once")
	}
	r.Warm(t.Context())
	if n, done := r.Warmed(); n != 3 || !done || kept(r, "r2") == nil {
		t.Errorf("%d, %v", n, done)
	}
	src.gone = true
	if _, err := r.Log(t.Context(), "new"); err == nil {
		t.Error("a run that is not there has a log")
	}
}

// What is kept is bounded: the runs that were looked at last stay.
func TestBound(t *testing.T) {
	src := &source{runs: 4, steps: 1000}
	r := New(t.Context(), src)
	r.most = 500_000 // two logs
	for _, run := range []string{"r0", "r1", "r2"} {
		if _, err := r.Log(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	if kept(r, "r0") != nil || kept(r, "r2") == nil || r.bytes > r.most || r.bytes == 0 {
		t.Errorf("%d bytes are kept", r.bytes)
	}
}

// Metrics that count in their names take no more memory than others, and those that all steps have stay.
func TestManyMetrics(t *testing.T) {
	const steps = 20_000
	l, all := &Log{Steps: make([]Step, steps)}, map[string]*few{"loss": {}}
	for i := range int32(steps) {
		all["loss"].at, all["loss"].of = append(all["loss"].at, i), append(all["loss"].of, 1)
		all[fmt.Sprint("loss of ", i)] = &few{[]int32{i}, []float64{float64(i)}}
	}
	l.keep(all, mostCells)
	if n := len(l.Metrics); n*steps > mostCells || l.Left != steps+1-n || !l.Metrics["loss"].Has[steps-1] {
		t.Errorf("%d metrics, %d left out", len(l.Metrics), l.Left)
	}
}

// An answer that cannot be had any more is not given for ever.
func TestGone(t *testing.T) {
	gone := false
	k := Keep(t.Context(), func(context.Context) (*int, error) {
		if gone {
			return nil, errors.New("gone")
		}
		return new(int), nil
	})
	if _, err := k.Get(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	gone = true
	for t.Context().Err() == nil {
		if _, err := k.Get(t.Context(), 0); err != nil {
			return
		}
	}
	t.Error("it is still there")
}

// While one daemon takes over from another the logs stay, and Warm waits for it.
func TestAway(t *testing.T) {
	src := &source{runs: 2, steps: 3}
	src.away.Store(2)
	r := New(t.Context(), src)
	r.Warm(t.Context())
	if kept(r, "r0") == nil || kept(r, "r1") == nil {
		t.Fatal("a log is missing")
	}
	src.away.Store(1)
	if _, err := r.load("r0"); err == nil || kept(r, "r0") == nil {
		t.Errorf("the log is gone: %v", err)
	}
}

// The list and the log of a run say the same: what the one tells, the other has when it is asked then.
func TestAgree(t *testing.T) {
	src := &source{runs: 2, steps: 5}
	now := time.Unix(1, 0)
	r := New(t.Context(), src)
	r.now = func() time.Time { return now }
	r.Warm(t.Context())
	steps := func() (list, log int) {
		t.Helper()
		all, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l, err := r.Log(t.Context(), "r0")
		if err != nil {
			t.Fatal(err)
		}
		return all.Runs[0].Steps, len(l.Steps)
	}
	for range 3 {
		src.steps++
		now = now.Add(Fresh)
		if list, log := steps(); list != src.steps || log != src.steps {
			t.Errorf("%d steps: %d in the list, %d in the log", src.steps, list, log)
		}
	}
	// The page of all runs has the values of those that changed.
	src.steps++
	now = now.Add(Fresh)
	all, err := r.List(t.Context())
	for err == nil && r.Logs(t.Context(), all) > 0 {
		runtime.Gosched()
	}
	if l, old := r.Peek(&all.Runs[1]); err != nil || old || len(l.Steps) != src.steps {
		t.Errorf("%v: %d steps of %d in a log", err, len(l.Steps), src.steps)
	}
	// The log is asked for first: the list, which is younger than Fresh, is not given any more.
	src.steps++
	now = now.Add(Fresh / 2)
	delete(r.logs, "r0")
	if l, err := r.Log(t.Context(), "r0"); err != nil || len(l.Steps) != src.steps {
		t.Fatal(err)
	}
	if list, log := steps(); list != src.steps || log != src.steps {
		t.Errorf("%d steps: %d in the list, %d in the log", src.steps, list, log)
	}
	// A log that takes long is not waited for while the list says that the kept one is right.
	src.slow = make(chan struct{})
	now = now.Add(Fresh)
	asked := src.asked.Load()
	if list, log := steps(); list != src.steps || log != src.steps {
		t.Errorf("%d steps: %d in the list, %d in the log", src.steps, list, log)
	}
	for src.asked.Load() == asked { // it was asked for, behind that
		runtime.Gosched()
	}
	close(src.slow)
}
