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
	src := &source{runs: 4, steps: mostSteps / 2}
	r := New(t.Context(), src)
	for _, run := range []string{"r0", "r1", "r2"} {
		if _, err := r.Log(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	if r.Peek("r0") != nil || r.Peek("r2") == nil || r.steps > mostSteps {
		t.Errorf("%d steps are kept", r.steps)
	}
}
