package runs

import (
	"cmp"
	"strings"
)

// Dir is where runs are, below the mount's root.
const Dir = "runs"

// Levels is how many names of a path are looked at for its place in a series, from its end.
const Levels = 3

// IsRun reports whether names[k] is that of a run: one of a higher number is no later step, for it may have
// begun anywhere.
func IsRun(names []string, k int) bool { return k == 1 && names[0] == Dir }

const decimals = "0123456789"

// Numbers takes a name apart: what is the same for all steps, and the numbers, without leading zeros.
func Numbers(name string) (pattern string, numbers []string) {
	if !strings.ContainsAny(name, decimals) {
		return name, nil
	}
	var p strings.Builder
	p.Grow(len(name))
	for name != "" {
		i := strings.IndexAny(name, decimals)
		if i < 0 {
			break
		}
		p.WriteString(name[:i])
		p.WriteByte('0')
		name = name[i:]
		rest := strings.TrimLeft(name, decimals)
		numbers = append(numbers, strings.TrimLeft(name[:len(name)-len(rest)], "0"))
		name = rest
	}
	return p.String() + name, numbers
}

// CompareNumbers compares two lists of as many decimal numbers, the first of them first.
func CompareNumbers(a, b []string) int {
	for i := range a {
		if c := cmp.Or(cmp.Compare(len(a[i]), len(b[i])), cmp.Compare(a[i], b[i])); c != 0 {
			return c
		}
	}
	return 0
}

// Series is what the path of a file has in common with those of the same file in all steps: all of it but the
// numbers, and the name of its run with its numbers.
func Series(p string) string {
	names := strings.Split(p, "/")
	for k := range names {
		if !IsRun(names, k) {
			names[k], _ = Numbers(names[k])
		}
	}
	return strings.Join(names, "/")
}

// Position is where a file's path stands among those of a series, such as the steps of a run, at each of the
// levels at which the step before is looked for.
type Position []rung

// rung is one level: what all paths of the series have in common, and the numbers of this one.
type rung struct {
	series  string
	numbers []string
}

// PositionOf takes a path apart.
func PositionOf(p string) (at Position) {
	names := strings.Split(p, "/")
	end, below := len(p), ""
	for k := len(names) - 1; k >= 0 && len(at) < Levels; k-- {
		from := end - len(names[k])
		pattern, numbers := Numbers(names[k])
		if len(numbers) > 0 && !IsRun(names, k) {
			at = append(at, rung{p[:from] + "\x00" + pattern + below, numbers})
		}
		end, below = from-1, "/"+pattern+below
	}
	return at
}

// Upcoming are the least positions of files that are not packed yet, by series.
type Upcoming map[string][]string

// Add notes one.
func (u Upcoming) Add(at Position) {
	for _, r := range at {
		if least, ok := u[r.series]; !ok || CompareNumbers(r.numbers, least) < 0 {
			u[r.series] = r.numbers
		}
	}
}

// HasBefore reports whether one of them may be the version before what is at a position.
func (u Upcoming) HasBefore(at Position) bool {
	for _, r := range at {
		if least, ok := u[r.series]; ok && CompareNumbers(least, r.numbers) < 0 {
			return true
		}
	}
	return false
}
