// Package runs is what the store knows of a training run besides bytes: its steps, their metrics, which step
// is best, and which a policy keeps.
//
// A run is a directory below runs/, its steps are the directories in that. A step takes part in anything only
// when it is complete. Steps are ordered by name as people count: checkpoint-90 before checkpoint-1000
// (Compare).
//
// # Metrics
//
// A metric is a float64 by name. Of the sources, the later one here wins where two give one name:
//
//	_CHECKPOINT_METADATA   Orbax: the object in member "metrics"
//	trainer_state.json     Transformers: those entries of "log_history" whose "step" is "global_step"
//	metrics.json           an object, as json.dump writes it: NaN, Infinity and -Infinity are numbers
//	user.metric.NAME       extended attribute of the step's directory: one number as text
//
// Objects in objects are flattened: {"val": {"loss": 1}} is val/loss. Members that are no numbers are passed
// over. A name that comes twice in one file is an error: it cannot be told which was meant.
//
// NaN is kept and shown, and never wins. Of equal values the earlier step wins.
package runs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what is read.
const (
	MaxMetricsFile = 1 << 20  // bytes of a metrics.json
	MaxStateFile   = 64 << 20 // bytes of a trainer_state.json or a _CHECKPOINT_METADATA
	MaxMetrics     = 4096     // of one step
	MaxName        = 255      // bytes of a metric's name
	maxDepth       = 16
)

// ErrInvalid says that something is no source of metrics, or a name or a policy that makes no sense. The
// error's text says why.
var ErrInvalid = errors.New("not valid")

// invalidError is an ErrInvalid whose text is a whole sentence.
type invalidError string

func (e invalidError) Error() string { return string(e) }
func (e invalidError) Unwrap() error { return ErrInvalid }

func invalid(format string, args ...any) error { return invalidError(fmt.Sprintf(format, args...)) }

// Step is one checkpoint of a run.
type Step struct {
	Name     string    // of its directory
	Time     time.Time // when it was complete; zero when not known
	Complete bool      // all its files are closed and safe; a torn one is not
	Writing  bool      // it is not complete, and may become so
	Last     bool      // the run can be gone on from it
	Lacks    bool      // it is not complete: its files are, and the steps before it have others, too
	Metrics  Metrics
}

// Sort puts steps in their order.
func Sort(steps []Step) {
	slices.SortStableFunc(steps, func(a, b Step) int { return Compare(a.Name, b.Name) })
}

// Compare orders names as people count: runs of decimal digits by their value, everything else by bytes.
// Where that makes two names equal (07 and 7) the bytes decide, so that only equal names are equal.
func Compare(a, b string) int {
	for i, j := 0, 0; ; {
		if i == len(a) || j == len(b) {
			if c := (len(a) - i) - (len(b) - j); c != 0 {
				return sign(c)
			}
			return strings.Compare(a, b)
		}
		m, n := digits(a[i:]), digits(b[j:])
		if m == 0 || n == 0 {
			if a[i] != b[j] {
				return sign(int(a[i]) - int(b[j]))
			}
			i, j = i+1, j+1
			continue
		}
		x, y := strings.TrimLeft(a[i:i+m], "0"), strings.TrimLeft(b[j:j+n], "0")
		if len(x) != len(y) {
			return sign(len(x) - len(y))
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
		i, j = i+m, j+n
	}
}

func sign(n int) int { return min(max(n, -1), 1) }

// digits is how many of s's first bytes are decimal digits.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// Mode says which end of a metric is good.
type Mode int

// The modes.
const (
	Min Mode = iota
	Max
)

// ParseMode reads "min" or "max".
func ParseMode(s string) (Mode, error) {
	switch s {
	case "min":
		return Min, nil
	case "max":
		return Max, nil
	}
	return 0, invalid("mode %q is neither min nor max", s)
}

func (m Mode) String() string {
	if m == Max {
		return "max"
	}
	return "min"
}

// Best is the index of the complete step with the least (greatest) value of a metric. False when no complete
// step has one that is a number.
func Best(steps []Step, metric string, mode Mode) (int, bool) {
	r := ranked(steps, metric, mode)
	if len(r) == 0 {
		return 0, false
	}
	return r[0], true
}

// ranked lists the complete steps that have a metric, best first.
func ranked(steps []Step, metric string, mode Mode) []int {
	var out []int
	values := make([]float64, len(steps))
	for i := range steps {
		v, ok := steps[i].Metrics.Get(metric)
		if values[i] = v; ok && steps[i].Complete && !math.IsNaN(v) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(i, j int) int {
		a, b := values[i], values[j]
		if mode == Max {
			a, b = b, a
		}
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return Compare(steps[i].Name, steps[j].Name)
	})
	return out
}

// Names lists the metrics that any complete step has, ascending.
func Names(steps []Step) []string {
	seen := map[string]bool{}
	var out []string
	for i := range steps {
		if !steps[i].Complete {
			continue
		}
		for _, m := range steps[i].Metrics {
			if !seen[m.Name] {
				seen[m.Name] = true
				out = append(out, m.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Known says for people which metrics there are: Names.
func Known(steps []Step) string {
	if names := Names(steps); len(names) > 0 {
		return "its complete steps have " + strings.Join(names, ", ")
	}
	return "no complete step has any"
}

// CheckName returns an error unless name may be a metric's: 1 to MaxName bytes of UTF-8 without control
// characters.
func CheckName(name string) error {
	switch {
	case name == "":
		return invalid("a metric without name")
	case len(name) > MaxName:
		return invalid("metric %.40q…: name of %d bytes, at most %d", name, len(name), MaxName)
	case !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return invalid("metric %q: control characters, or not UTF-8", name)
	}
	return nil
}

// FileName is a metric's name as a file's: slashes, per cents and a dot in front are written %2F, %25 and
// %2E.
func FileName(metric string) string {
	s := strings.NewReplacer("%", "%25", "/", "%2F").Replace(metric)
	if strings.HasPrefix(s, ".") {
		s = "%2E" + s[1:]
	}
	return s
}

// MetricOf undoes FileName. False for what is not its result.
func MetricOf(file string) (string, bool) {
	metric := strings.NewReplacer("%25", "%", "%2F", "/", "%2E", ".").Replace(file)
	return metric, FileName(metric) == file && CheckName(metric) == nil
}
