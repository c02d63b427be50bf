package usage

import (
	"fmt"
	"testing"
)

// The numbers of runs that are gone are given to new runs: neither the mirror nor the counts grow by runs that
// are made and removed.
func TestRunsLeave(t *testing.T) {
	m := newMirror(1, nil)
	runs := m.add(2)
	m.put(runs, m.root, "runs")
	stays := m.add(3)
	m.put(stays, runs, "stays")
	for i := range uint64(100) {
		d := m.add(10 + i)
		m.put(d, runs, fmt.Sprint("run", i))
		m.list(d, []uint64{1000 + i})
		m.set(m.files[1000+i], state{known: true, size: 5})
		if m.runs[d.run].files != 1 || d.run == stays.run {
			t.Fatalf("run %d has %+v", d.run, m.runs[d.run])
		}
		if i%2 == 0 { // it gets another name first
			m.put(d, runs, "renamed")
		}
		m.detach(d)
		m.moved = append(m.moved, d, d)
		m.forget()
		m.release()
	}
	if len(m.names) > 4 || len(m.numbers) != 1 || len(m.runs) != len(m.names) || len(m.held) != len(m.names) {
		t.Errorf("%d names, %d numbers, %d runs are left", len(m.names), len(m.numbers), len(m.runs))
	}
	for n, z := range m.runs {
		if z != (sizes{}) {
			t.Errorf("run %d has %+v", n, z)
		}
	}
	if m.names[stays.run] != "stays" {
		t.Errorf("%q is left", m.names[stays.run])
	}
}

// A path that lies in another one is not taken twice; one that only begins like it is.
func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		p    string
		some []string
		want bool
	}{
		{"a/b", []string{"a"}, true}, {"a/b/c", []string{"x", "a/b"}, true}, {"a", []string{"a"}, true},
		{"a-b", []string{"a"}, false}, {"a/b", []string{"a/b/c"}, false}, {"a", []string{""}, true},
		{"", []string{""}, true}, {"", []string{"a"}, false},
	} {
		some := map[string]bool{}
		for _, p := range tc.some {
			some[p] = true
		}
		if within(tc.p, some) != tc.want {
			t.Errorf("%q within %q is %v", tc.p, tc.some, !tc.want)
		}
	}
}
