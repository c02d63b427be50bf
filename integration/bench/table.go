package main

import (
	"fmt"
	"slices"

	"ckptfs/integration/bench/columns"
)

// sample is one figure, taken several times.
type sample []float64

func (s *sample) add(v float64) { *s = append(*s, v) }

func (s sample) median() float64 {
	if len(s) == 0 {
		return 0
	}
	v := slices.Clone(s)
	slices.Sort(v)
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// text is the median with the lowest and the highest, three digits each.
func (s sample) text() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", digits(s.median()), digits(slices.Min(s)), digits(slices.Max(s)))
}

func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// pair is one figure of both sides, in rates: more is better. The ratio is the median of the pairs' own
// ratios.
type pair struct{ plain, ours sample }

func (p *pair) ratio() string {
	var r sample
	for i := range min(len(p.plain), len(p.ours)) {
		r.add(p.ours[i] / p.plain[i])
	}
	if len(r) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2fx", r.median())
}

var table = columns.Print

func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return digits(float64(n)/(1<<30)) + " GiB"
	case n >= 1<<20:
		return digits(float64(n)/(1<<20)) + " MiB"
	}
	return digits(float64(n)/(1<<10)) + " KiB"
}
