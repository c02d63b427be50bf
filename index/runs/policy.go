package runs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy says which steps of a run to keep. A step is kept when any rule keeps it.
type Policy struct {
	KeepLast   int           // the last steps
	KeepBest   []KeepBest    // the best by a metric
	KeepWithin time.Duration // those complete no longer ago than this

	// ForgetTorn forgets steps that are not complete, and not being written, where a later one is complete:
	// the writer has gone on without them.
	ForgetTorn bool
}

// KeepBest keeps the N best by Metric.
type KeepBest struct {
	Metric string
	Mode   Mode
	N      int
}

// Decision is what becomes of one step, and why.
type Decision struct {
	Step    Step
	Keep    bool
	Reasons []string // why it is kept; why it is not: one
}

// Decide applies the policy to the steps of one run, at a time. Decisions come in the order of steps (Sort).
// Deciding again over what was kept, at the same time, keeps it all. It is an error when no rule keeps
// anything, when a count or a duration is negative, or when no complete step has a metric that is to choose
// the best: a misspelt name must not forget a run.
func (p Policy) Decide(steps []Step, now time.Time) ([]Decision, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	all := make([]Decision, len(steps))
	sorted := append([]Step(nil), steps...)
	Sort(sorted)
	newest, complete := -1, 0
	for i, s := range sorted {
		all[i].Step = s
		if s.Complete {
			newest = i
			complete++
		}
	}
	keep := func(i int, format string, args ...any) {
		all[i].Keep = true
		all[i].Reasons = append(all[i].Reasons, fmt.Sprintf(format, args...))
	}
	for i, n := newest, 0; i >= 0 && n < p.KeepLast; i-- {
		if sorted[i].Complete {
			n++
			keep(i, "one of the last %d", p.KeepLast)
		}
	}
	// What is kept behind it for what it lacks is no step to go on from.
	lacking := slices.ContainsFunc(sorted, func(s Step) bool { return s.Lacks })
	for i, s := range sorted {
		if s.Last && (lacking || p.KeepLast > 0) && !all[i].Keep {
			keep(i, "the run can be gone on from it")
		}
	}
	for _, b := range p.KeepBest {
		best := ranked(sorted, b.Metric, b.Mode)
		if len(best) == 0 && complete > 0 {
			return nil, invalid("no complete step has metric %q with a number; %s", b.Metric,
				Known(sorted))
		}
		for n, i := range best[:min(b.N, len(best))] {
			keep(i, "%s %s, %d of %d", b.Mode, b.Metric, n+1, b.N)
		}
	}
	for i := range all {
		d := &all[i]
		switch t := d.Step.Time; {
		case d.Step.Writing:
			keep(i, "being written, or written to just now")
		case d.Step.Lacks:
			keep(i, "lacks files that the steps before it have")
		case !d.Step.Complete && (!p.ForgetTorn || i > newest):
			keep(i, "not complete")
		case !d.Step.Complete:
			d.Reasons = []string{"never completed"}
		case p.KeepWithin > 0 && !timed(t, now):
			keep(i, "time not known")
		case p.KeepWithin > 0 && now.Sub(t) <= p.KeepWithin:
			keep(i, "within %s", FormatAge(p.KeepWithin))
		}
		if !d.Keep && d.Reasons == nil {
			d.Reasons = []string{"no rule keeps it"}
		}
	}
	return all, nil
}

// timed reports whether a time can be right: some programs date files 1970 or 1980 so that archives are the
// same, and clocks are set wrong.
func timed(t, now time.Time) bool {
	return t.Year() >= 2000 && !t.After(now.Add(time.Hour))
}

// Untimed is how many complete steps KeepWithin keeps for want of a time.
func (p Policy) Untimed(steps []Step, now time.Time) (n int) {
	for _, s := range steps {
		if p.KeepWithin > 0 && s.Complete && !timed(s.Time, now) {
			n++
		}
	}
	return n
}

func (p Policy) check() error {
	some := p.KeepLast > 0 || p.KeepWithin > 0
	if p.KeepLast < 0 || p.KeepWithin < 0 {
		return invalid("keep last %d, keep within %s: neither may be negative", p.KeepLast, p.KeepWithin)
	}
	for _, b := range p.KeepBest {
		if b.N < 0 || b.Mode != Min && b.Mode != Max {
			return invalid("keep best %d by %s %q", b.N, b.Mode, b.Metric)
		}
		if err := CheckName(b.Metric); err != nil {
			return err
		}
		some = some || b.N > 0
	}
	if !some {
		return invalid("nothing would be kept: at least one rule has to say what is, such as --keep-last 3")
	}
	return nil
}

var ages = []struct {
	unit string
	d    time.Duration
}{{"y", 365 * 24 * time.Hour}, {"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour},
	{"m", time.Minute}, {"s", time.Second}}

// ParseAge reads a duration such as 7d, 36h or 1w2d: whole numbers of y (365 days), w, d, h, m, s, each at
// most once, in that order.
func ParseAge(s string) (time.Duration, error) {
	bad := func() (time.Duration, error) {
		return 0, invalid("%.40q is no duration such as 7d, 36h or 1w2d", s)
	}
	var sum time.Duration
	rest, from := s, 0
	for rest != "" {
		n := digits(rest)
		v, err := strconv.ParseInt(rest[:n], 10, 64)
		if n == 0 || err != nil || n == len(rest) {
			return bad()
		}
		for from < len(ages) && ages[from].unit != rest[n:n+1] {
			from++
		}
		if from == len(ages) || v > int64((1<<63-1-sum)/ages[from].d) {
			return bad()
		}
		sum += time.Duration(v) * ages[from].d
		rest = rest[n+1:]
		from++
	}
	if s == "" {
		return bad()
	}
	return sum, nil
}

// FormatAge writes a duration as ParseAge reads it, to the second.
func FormatAge(d time.Duration) string {
	var b strings.Builder
	for _, a := range ages[1:] {
		if n := d / a.d; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, a.unit)
			d -= n * a.d
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}
