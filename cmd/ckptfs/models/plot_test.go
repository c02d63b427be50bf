package models

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"ckptfs/cas/golden"
	"ckptfs/fs/control"
)

func steps(names ...string) (all []control.Step) {
	for i, n := range names {
		all = append(all, control.Step{Step: n, State: control.StepComplete,
			Metrics: map[string]control.Number{"loss": control.Number(1 / float64(i+1))}})
	}
	return all
}

func TestPositions(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  []float64
	}{
		{nil, []float64{}},
		{[]string{"7"}, []float64{0}},
		{[]string{"1", "2", "10"}, []float64{1, 2, 10}},
		{[]string{"checkpoint-0", "checkpoint-500", "checkpoint-1000"}, []float64{0, 500, 1000}},
		{[]string{"epoch=0-step=100", "epoch=0-step=200", "epoch=1-step=300"}, []float64{100, 200, 300}},
		{[]string{"step=1-of-9", "step=2-of-9"}, []float64{1, 2}},
		{[]string{"1", "tmp-2", "3"}, []float64{0, 1, 2}},
		{[]string{"a", "b"}, []float64{0, 1}},
		{[]string{"1", "1" + strings.Repeat("0", 400)}, []float64{0, 1}},
	} {
		if got := positions(steps(tc.names...)); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %v, want %v", tc.names, got, tc.want)
		}
	}
}

func TestPlot(t *testing.T) {
	l := &control.RunLog{}
	for i := range 40 {
		m := map[string]control.Number{"loss": control.Number(2 / float64(i+1)), "lr": 1e-3}
		switch {
		case i >= 10 && i < 15:
			m["loss"] = control.Number(math.NaN())
		case i == 20:
			m["loss"] = control.Number(math.Inf(1))
		case i == 30:
			delete(m, "lr")
		}
		if i == 39 {
			m["only\x1b[31m"] = control.Number(math.NaN())
		}
		l.Steps = append(l.Steps, control.Step{Step: fmt.Sprint("checkpoint-", 500*i), Metrics: m})
	}
	var b bytes.Buffer
	if err := plotAll(&b, l, []string{"loss", "lr", "only\x1b[31m"}, 72); err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "plot.golden", b.String())
	for _, line := range strings.Split(b.String(), "\n") {
		if n := utf8.RuneCountInString(line); n > 72 && strings.Contains(line, "│") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// A run of many steps is drawn in one pass.
func BenchmarkPlot(b *testing.B) {
	l := &control.RunLog{}
	for i := range 50_000 {
		l.Steps = append(l.Steps, control.Step{Step: fmt.Sprint(i),
			Metrics: map[string]control.Number{"loss": control.Number(math.Sin(float64(i)))}})
	}
	for b.Loop() {
		if err := plotAll(&bytes.Buffer{}, l, []string{"loss"}, 80); err != nil {
			b.Fatal(err)
		}
	}
}
