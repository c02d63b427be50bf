package moves

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
)

// trained answers as for a model of which layer 0 is frozen and layer 1 moves by a tenth in each step.
type trained struct{ asked atomic.Int64 }

func (s *trained) Diff(_ context.Context, o control.DiffOptions, parts control.Differences,
	_ func(control.Progress)) (*control.Diff, error) {
	s.asked.Add(1)
	if strings.HasSuffix(o.B, "/3") {
		return nil, errors.New("gone")
	}
	n := func(x float64) *control.Number { return (*control.Number)(&x) }
	return &control.Diff{}, parts(control.TensorLists{Changed: []control.TensorChange{
		{Name: "l.1.w", RelNorm: n(0.1), Norm: n(3)}, {Name: "l.1.b", RelNorm: n(0), Norm: n(4)},
		{Name: "odd", RelNorm: n(math.NaN()), Norm: n(1)}, {Name: "text"},
	}})
}

func run(steps int) *known.Log {
	l := &known.Log{Run: "a"}
	for i := range steps {
		l.Steps = append(l.Steps, known.Step{Name: fmt.Sprint(i), State: control.StepComplete,
			Time: time.Unix(int64(i), 0)})
	}
	return l
}

// whole asks until all is known.
func whole(t *testing.T, m *Moves, l *known.Log) *Map {
	t.Helper()
	for t.Context().Err() == nil {
		if got := m.Of(l); got.Done == len(got.Steps) {
			return got
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("not all was compared")
	return nil
}

func TestMoves(t *testing.T) {
	src := &trained{}
	m := New(t.Context(), src)
	l := run(5)
	l.Steps[1].State = control.StepTorn
	got := whole(t, m, l)
	if got.Before != "0" || fmt.Sprint(got.Steps) != "[2 3 4]" || fmt.Sprint(got.Layers) != "[l.1]" ||
		got.Problem != "gone" || !got.Every || len(got.Cells) != 2 {
		t.Fatalf("%+v", got)
	}
	// |Δ| is 0.3, |A| of both tensors 5
	if c := got.Cells[1]; c[0] != 2 || c[1] != 0 || math.Abs(c[2]-0.06) > 1e-9 {
		t.Errorf("%v", c)
	}
	whole(t, m, l)
	if n := src.asked.Load(); n != 3 {
		t.Errorf("%d comparisons", n)
	}
	l.Steps[4].Time = time.Unix(99, 0) // written again
	whole(t, m, l)
	if n := src.asked.Load(); n != 4 {
		t.Errorf("%d comparisons", n)
	}
	long := whole(t, m, run(1000))
	if len(long.Steps) != MostSteps || long.Every || long.Steps[MostSteps-1] != "999" || long.Before != "0" {
		t.Errorf("%+v", long.Steps)
	}
	if none := m.Of(run(1)); none.Before != "" || len(none.Steps) != 0 {
		t.Errorf("%+v", none)
	}
}

// away answers only the second time that it is asked; what it says is of more layers than are shown, and of
// numbers whose squares are none.
type away struct{ asked atomic.Int64 }

func (s *away) Diff(_ context.Context, _ control.DiffOptions, parts control.Differences,
	_ func(control.Progress)) (*control.Diff, error) {
	if s.asked.Add(1) == 1 {
		return nil, fmt.Errorf("store: %w", control.ErrNoDaemon)
	}
	n := func(x float64) *control.Number { return (*control.Number)(&x) }
	var l control.TensorLists
	for i := range 2 * MostLayers {
		l.Changed = append(l.Changed,
			control.TensorChange{Name: fmt.Sprintf("l.%d.w", i), RelNorm: n(0.5), Norm: n(2)})
	}
	l.Changed = append(l.Changed, control.TensorChange{Name: "huge.w", RelNorm: n(1), Norm: n(1e200)},
		control.TensorChange{Name: "new.w", RelNorm: n(math.Inf(1)), Norm: n(0)})
	return &control.Diff{}, parts(l)
}

// A daemon that another takes over from is asked again, and not remembered; what is kept is bounded, and is
// JSON.
func TestBounds(t *testing.T) {
	m := New(t.Context(), &away{})
	got := whole(t, m, run(2))
	if got.Problem != "" || len(got.Layers) != MostLayers+1 || got.Layers[MostLayers] != Others ||
		len(got.Cells) != MostLayers+1 || math.Abs(got.Cells[MostLayers][2]-0.5) > 1e-9 {
		t.Fatalf("%d layers, %d cells, %s", len(got.Layers), len(got.Cells), got.Problem)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}
