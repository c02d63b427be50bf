package inspect

import (
	"slices"
	"sync"
)

// logs are what is kept of runs whose logs were asked for, the last one at the end.
type logs struct {
	most int64 // bytes of memory that they may take together

	mu   sync.Mutex
	kept []*runLog
}

// take gives away what is kept of a run; nil: nothing is, or another caller has it.
func (l *logs) take(run string) *runLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, k := range l.kept {
		if k.run == run {
			l.kept = slices.Delete(l.kept, i, i+1)
			return k
		}
	}
	return nil
}

// drop drops all that is kept.
func (l *logs) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = nil
}

// keep keeps what was found out about a run, in place of what else is known of it and of the runs that were
// not asked for the longest.
func (l *logs) keep(k *runLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = slices.DeleteFunc(l.kept, func(other *runLog) bool { return other.run == k.run })
	room := l.most - k.takes()
	if room < 0 {
		return
	}
	n := len(l.kept)
	for n > 0 && l.kept[n-1].takes() <= room {
		n--
		room -= l.kept[n].takes()
	}
	l.kept = append(slices.Delete(l.kept, 0, n), k)
}
