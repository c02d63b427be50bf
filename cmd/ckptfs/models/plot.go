package models

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/text/plot"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// plotRows is how many lines a curve has, and wide how many columns at most, so that it can be followed.
const (
	plotRows = 10
	wide     = 160
)

// plotLog draws metrics of a run: those that are named, or all.
func plotLog(ctx context.Context, s Shell, run string, metrics []string) error {
	return s.Look(ctx, run, func(c *control.Client, at *place.Place) error {
		done := s.Waiting("reading")
		l, err := c.Steps(ctx, at.Path)
		done()
		if err != nil {
			return err
		}
		known := runs.Names(stepsOf(l))
		if len(metrics) == 0 {
			metrics = known
		}
		for _, m := range metrics {
			if !slices.Contains(known, m) {
				return fmt.Errorf("%s has no metric %q; %s", run, m, runs.Known(stepsOf(l)))
			}
		}
		if len(metrics) == 0 {
			s.Say("%s has no metrics: see `ckptfs log --help` for where they are read", run)
			return nil
		}
		columns, _ := text.Size(s.Out())
		return plotAll(s.Out(), l, metrics, min(columns, wide))
	})
}

// stepsOf are a log's steps as the rules of metrics take them.
func stepsOf(l *control.RunLog) []runs.Step {
	out := make([]runs.Step, len(l.Steps))
	for i := range l.Steps {
		s := &l.Steps[i]
		out[i] = runs.Step{Name: s.Step, Complete: s.State == control.StepComplete,
			Metrics: runs.MetricsOf(s.Metrics)}
	}
	return out
}

// plotAll draws one curve below the other.
func plotAll(w io.Writer, l *control.RunLog, metrics []string, columns int) error {
	paint := text.Paints(w)
	at := positions(l.Steps)
	for i, m := range metrics {
		if i > 0 {
			fmt.Fprintln(w)
		}
		x := series(l.Steps, at, m)
		fmt.Fprintln(w, paint.Head(text.Printable(m))+x.told())
		for _, line := range plot.Draw(x.Curve, columns, plotRows) {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// positions is where steps stand on the axis: at the last number of their names that ascends from each to the
// next, or else at their places in the list.
func positions(steps []control.Step) []float64 {
	at := make([]float64, len(steps))
	for i := range at {
		at[i] = float64(i)
	}
	if len(steps) < 2 {
		return at
	}
	names := make([][]string, len(steps))
	pattern := ""
	for i := range steps {
		p, numbers := runs.Numbers(steps[i].Step)
		if i > 0 && p != pattern {
			return at
		}
		pattern, names[i] = p, numbers
	}
	for k := len(names[0]) - 1; k >= 0; k-- {
		xs := make([]float64, len(steps))
		ascends := true
		for i := range names {
			xs[i], _ = strconv.ParseFloat("0"+names[i][k], 64) // zeros in front were cut off
			ascends = ascends && xs[i] < math.MaxInt64 && (i == 0 || xs[i] > xs[i-1])
		}
		if ascends {
			return xs
		}
	}
	return at
}

// measured is a metric over the steps that have it.
type measured struct {
	plot.Curve
	steps   []string // by their names
	strange int      // values that are no finite numbers
	torn    int      // steps that have it and are torn: not among steps
}

func series(steps []control.Step, at []float64, metric string) (x measured) {
	for i := range steps {
		v, ok := steps[i].Metrics[metric]
		if !ok {
			continue
		}
		if steps[i].State == control.StepTorn {
			x.torn++
			continue
		}
		x.X, x.Y, x.steps = append(x.X, at[i]), append(x.Y, float64(v)), append(x.steps, steps[i].Step)
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			x.strange++
		}
	}
	if n := len(x.steps); n > 0 {
		x.First, x.Last = short(x.steps[0]), short(x.steps[n-1])
	}
	return x
}

// short is a step's name that leaves room for another.
func short(step string) string { return cutTo(step, 24) }

// cutTo is a name of at most so many characters.
func cutTo(name string, most int) string {
	if r := []rune(text.Printable(name)); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text.Printable(name)
}

// told says what the curve does not tell exactly: the last value, and the ends of its range.
func (x *measured) told() string {
	var parts []string
	if n := len(x.Y); n > 0 {
		parts = append(parts, "last "+plot.Number(x.Y[n-1])+" at "+x.Last)
	}
	lo, hi := -1, -1
	for i, y := range x.Y {
		if math.IsNaN(y) || math.IsInf(y, 0) {
			continue
		}
		if lo < 0 || y < x.Y[lo] {
			lo = i
		}
		if hi < 0 || y > x.Y[hi] {
			hi = i
		}
	}
	if lo >= 0 && x.Y[lo] < x.Y[hi] {
		parts = append(parts, "least "+plot.Number(x.Y[lo])+" at "+short(x.steps[lo]),
			"greatest "+plot.Number(x.Y[hi])+" at "+short(x.steps[hi]))
	}
	if x.strange > 0 {
		parts = append(parts, text.Plural(int64(x.strange), "value")+" not finite")
	}
	if x.torn > 0 {
		parts = append(parts, text.Plural(int64(x.torn), "torn step")+" left out")
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
