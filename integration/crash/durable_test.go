package crash

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// durable is a file: its last durable version, and what was written since, which may be there or not.
type durable struct {
	base    []byte // nil: may be missing
	since   [][]byte
	torn    bool // bytes may be missing as well: the file was made, emptied or replaced since
	mayGo   bool // it was removed since
	mustGo  bool // and that is durable
	mtime   int64
	inUse   bool
	version int      // counts changes
	past    []string // what was done to it, for the log of a failure
}

// clock is the time of day, as the daemon's log has it.
func clock() string { return time.Now().UTC().Format("15:04:05.000000") }

// did notes what was done to the file.
func (f *durable) did(format string, args ...any) {
	f.past = append(f.past, clock()+" "+fmt.Sprintf(format, args...))
}

// wrong fails the test for what is left of the file.
func (f *durable) wrong(t *testing.T, round int, name, format string, args ...any) {
	t.Helper()
	t.Errorf("round %d: %s: %s; what was done to it:\n\t%s", round, name, fmt.Sprintf(format, args...),
		strings.Join(f.past, "\n\t"))
}

// change notes bytes that are about to be written.
func (f *durable) change(p []byte, torn bool) {
	f.version++
	f.since = append(f.since, p)
	f.torn = f.torn || torn
}

// now is what a reader must see while nothing is cut.
func (f *durable) now() []byte {
	if len(f.since) > 0 {
		return f.since[len(f.since)-1]
	}
	return f.base
}

// settle notes that p is durable.
func (f *durable) settle(p []byte) {
	f.base, f.since, f.torn, f.mtime = p, nil, false, 0
	if p == nil {
		f.base = []byte{}
	}
}

// allows reports whether got may be what is left.
func (f *durable) allows(got []byte) bool {
	versions := f.since
	if f.base != nil {
		versions = append([][]byte{f.base}, versions...)
	}
	shortest, longest := 1<<62, 0
	for _, v := range versions {
		shortest, longest = min(shortest, len(v)), max(longest, len(v))
	}
	if f.torn {
		shortest = 0
	}
	if len(got) < shortest || len(got) > longest {
		return false
	}
	for i, b := range got {
		ok := f.torn && b == 0
		for _, v := range versions {
			// A hole that a write beyond the end left, too.
			ok = ok || i < len(v) && v[i] == b || i >= len(v) && b == 0
		}
		if !ok {
			return false
		}
	}
	return true
}
