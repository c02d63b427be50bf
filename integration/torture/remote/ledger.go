package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// version is one that a machine saved of a name.
type version struct {
	machine      int
	sum          string // SHA-256; "" is a removal
	size         int
	begun, ended time.Time
	acked        bool // sync --remote said that every other machine can see it
}

// name is what was saved by one path. Of one that a single machine changes each version replaces the one
// before.
type name struct {
	several  bool // machines change it
	versions []*version
	unsure   bool // its machine lost its disk: what was not acknowledged may be there or not
}

// span is when something went on; it does while end is zero.
type span struct{ begin, end time.Time }

// firstPoll is how long a daemon takes at most until it has asked what others published.
const firstPoll = 10 * time.Second

// ledger is what was saved and acknowledged.
type ledger struct {
	mu    sync.Mutex
	names map[string]*name
	pulls map[int][]*span   // of a machine, what it may have seen others' versions by
	since map[int]time.Time // when a machine got the disk that it has
	acked int
}

func newLedger() *ledger {
	return &ledger{names: map[string]*name{}, pulls: map[int][]*span{},
		since: map[int]time.Time{}}
}

func sumOf(p []byte) string {
	h := sha256.Sum256(p)
	return hex.EncodeToString(h[:])
}

// begin notes that a machine is about to save a version; ended is called once it did so.
func (l *ledger) begin(machine int, path string, data []byte, several bool) (ended func()) {
	v := &version{machine: machine, begun: time.Now(), size: len(data)}
	if data != nil {
		v.sum = sumOf(data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[path]
	if n == nil {
		n = &name{several: several}
		l.names[path] = n
	}
	n.versions = append(n.versions, v)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		v.ended = time.Now()
	}
}

// removedElsewhere reports whether another machine removed a name: a pull leaves what is here of it.
func (l *ledger) removedElsewhere(path string, machine int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[path]
	if n == nil || len(n.versions) == 0 {
		return n != nil
	}
	last := n.versions[len(n.versions)-1]
	return last.sum == "" && last.machine != machine
}

// below are the paths below a folder.
func (l *ledger) below(dir string) (paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.names {
		if strings.HasPrefix(p, dir+"/") {
			paths = append(paths, p)
		}
	}
	return paths
}

// pulling notes that a machine begins to look what others published; done is called at the end of that.
func (l *ledger) pulling(machine int) (done func()) {
	s := &span{begin: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulls[machine] = append(l.pulls[machine], s)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.end = time.Now()
	}
}

// mounting notes that a machine's daemon begins, and asks what others published.
func (l *ledger) mounting(machine int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.pulls[machine] = append(l.pulls[machine], &span{now, now.Add(firstPoll)})
}

// copied notes that a machine has what another one has.
func (l *ledger) copied(to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulls[to] = append(l.pulls[to], &span{end: time.Now()})
}

// saved are the newest versions that a machine has saved so far, by path.
func (l *ledger) saved(machine int) map[string]*version {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]*version{}
	for p, n := range l.names {
		for _, v := range n.versions {
			if v.machine == machine && !v.ended.IsZero() && v.begun.After(l.since[machine]) {
				out[p] = v
			}
		}
	}
	return out
}

// ack notes that versions were acknowledged.
func (l *ledger) ack(all map[string]*version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range all {
		if !v.acked {
			v.acked = true
			l.acked++
		}
	}
}

// lost notes that a machine has lost its disk.
func (l *ledger) lost(machine int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since[machine] = time.Now()
	for _, n := range l.names {
		n.unsure = n.unsure || slices.ContainsFunc(n.versions,
			func(v *version) bool { return v.machine == machine })
	}
}

// mayHaveSeen reports whether the machine that saved w may have seen v then.
func (l *ledger) mayHaveSeen(w, v *version) bool {
	return slices.ContainsFunc(l.pulls[w.machine], func(s *span) bool {
		return s.begin.Before(w.ended) && (s.end.IsZero() || s.end.After(v.begun))
	})
}

// check compares what is there with what has to be: by path the sum that all show, and the sizes of all
// versions that the remote has. What it found is where it begins the next time.
func (l *ledger) check(found map[string]string, sizes map[string][]int) (wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range found {
		if l.names[p] == nil {
			wrong = append(wrong, fmt.Sprintf("%s: nobody saved it", p))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(l.names)) {
		n := l.names[p]
		if why := l.wrong(n, found[p], sizes[p]); why != "" {
			wrong = append(wrong, p+": "+why)
		}
		n.unsure = false
		n.versions = slices.DeleteFunc(n.versions, func(v *version) bool {
			return v.sum != found[p] && !slices.Contains(sizes[p], v.size)
		})
		for _, v := range n.versions {
			v.acked = true
		}
	}
	return wrong
}

// wrong says what is wrong with a name.
func (l *ledger) wrong(n *name, sum string, sizes []int) string {
	if n.several {
		return l.wrongOfSeveral(n, sum, sizes)
	}
	if len(n.versions) == 0 {
		if sum != "" {
			return "it came back"
		}
		return ""
	}
	from := len(n.versions) - 1
	if n.unsure {
		for from > 0 && !n.versions[from].acked {
			from--
		}
		if !n.versions[from].acked && sum == "" {
			return ""
		}
	}
	for _, v := range n.versions[from:] {
		if v.sum == sum {
			return ""
		}
	}
	last := n.versions[len(n.versions)-1]
	return fmt.Sprintf("it is %.12s, and %.12s (acknowledged: %v) was saved last, of %d versions", sum,
		last.sum, last.acked, len(n.versions))
}

// wrongOfSeveral says which version of a name is missing.
func (l *ledger) wrongOfSeveral(n *name, sum string, sizes []int) string {
	there := func(v *version) bool { return v.sum == sum || slices.Contains(sizes, v.size) }
	for i, v := range n.versions {
		replaced := slices.ContainsFunc(n.versions, func(w *version) bool {
			if n.unsure && !w.acked && !there(w) { // it was lost with its disk
				return false
			}
			return w.machine == v.machine && w.begun.After(v.begun) ||
				w.machine != v.machine && l.mayHaveSeen(w, v)
		})
		if v.acked && !there(v) && !replaced {
			return fmt.Sprintf("version %d of %d, of machine %d, of %d bytes, was acknowledged and is gone; "+
				"there are %v", i+1, len(n.versions), v.machine, v.size, sizes)
		}
	}
	if len(n.versions) > 0 && sum == "" {
		return "it is gone"
	}
	return ""
}
