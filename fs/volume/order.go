package volume

import (
	"path"
	"strings"
)

// position is where a file's path stands among those of a series, such as the steps of a run, at each of the levels at which versions
// looks for the step before.
type position []rung

// rung is one level: what all paths of the series have in common, and the numbers of this one.
type rung struct {
	series  string
	numbers []string
}

// positionOf takes a path apart.
func positionOf(p string) (at position) {
	names := strings.Split(p, "/")
	below := ""
	for k := len(names) - 1; k >= 0 && len(at) < maxLevels; k-- {
		pattern, numbers := numbersIn(names[k])
		if len(numbers) > 0 && !isRun(names, k) {
			at = append(at, rung{path.Join(path.Join(names[:k]...), "\x00", pattern, below), numbers})
		}
		below = path.Join(pattern, below)
	}
	return at
}

// upcoming are the positions of files that are not packed yet.
type upcoming map[string][][]string

func (u upcoming) add(at position) {
	for _, r := range at {
		u[r.series] = append(u[r.series], r.numbers)
	}
}

// hasBefore reports whether one of them may be the version before what is at a position.
func (u upcoming) hasBefore(at position) bool {
	for _, r := range at {
		for _, numbers := range u[r.series] {
			if compareNumbers(numbers, r.numbers) < 0 {
				return true
			}
		}
	}
	return false
}
