package known

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"ckptfs/fs/control"
)

type source struct {
	runs, steps int
	asked       atomic.Int64
	gone        bool
	away        atomic.Int64 // how often the daemon is not there
}

func (s *source) Runs(context.Context) (*control.RunList, error) {
	l := &control.RunList{}
	for i := range s.runs {
		l.Runs = append(l.Runs, control.Run{Run: fmt.Sprint("r", i)})
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
	for i := range s.steps {
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

func TestLog(t *testing.T) {
	src := &source{runs: 3, steps: 4}
	r := New(t.Context(), src)
	if r.Peek("r0") != nil {
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
	if l.Best(acc, true) != 1 || l.Best(l.Metrics["loss"], false) != 2 { // the last step is torn
		t.Errorf("best %d, %d", l.Best(acc, true), l.Best(l.Metrics["loss"], false))
	}
	if l.Best(Values{[]float64{math.NaN(), 0, 0, 0}, []bool{true, false, false, false}}, false) != -1 {
		t.Error("NaN is the best")
	}
	if again, _ := r.Log(t.Context(), "r0"); again != l || src.asked.Load() != 1 || r.Peek("r0") != l {
		t.Error("it was asked again at once")
	}
	r.Warm(t.Context())
	if n, done := r.Warmed(); n != 3 || !done || r.Peek("r2") == nil {
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
	if r.Peek("r0") != nil || r.Peek("r2") == nil || r.bytes > r.most || r.bytes == 0 {
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
	if r.Peek("r0") == nil || r.Peek("r1") == nil {
		t.Fatal("a log is missing")
	}
	src.away.Store(1)
	if _, err := r.load("r0"); err == nil || r.Peek("r0") == nil {
		t.Errorf("the log is gone: %v", err)
	}
}
