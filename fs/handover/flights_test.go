package handover

import (
	"maps"
	"slices"
	"sync"
	"testing"
)

func TestFlights(t *testing.T) {
	m := fresh(t, tiny)
	m.BeginLife(false)
	f := m.Flights()
	var all []*Flight
	for i := range tiny.flights {
		x := f.Take()
		x.Begin(100 - i)
		all = append(all, x)
	}
	if x := f.Take(); x != nil {
		t.Error("not full")
	} else {
		x.Begin(1)
		x.End()
		x.Release()
	}
	all[0].End()
	all[1].Release()
	all[2].Begin(200)
	f.Take().Begin(98) // as all[3]: a request is named once
	f.Take().Begin(97)

	m = next(t, m)
	want := []uint64{93, 94, 95, 96, 97, 98, 200}
	if got := m.Flights().Left(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	m.BeginLife(false)
	m.Flights().Take().Begin(7)
	if got := m.Flights().Left(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for range tiny.flights - 1 {
		if m.Flights().Take() == nil {
			t.Error("the flights of the former life are still taken")
		}
	}
	if got := next(t, m).Flights().Left(); !slices.Equal(got, []uint64{7}) {
		t.Errorf("%v", got)
	}
}

// crash is a life in which the requests are under way at its end.
func crash(t *testing.T, m *Memory, crashed bool, uniques ...uint64) *Memory {
	t.Helper()
	m = next(t, m)
	m.BeginLife(crashed)
	for _, u := range uniques {
		m.Flights().Take().Begin(u)
	}
	return m
}

// A request that is under way at every crash is counted at each; one that was not at the last one is none
// that is to blame. A kill counts for nothing.
func TestCrashes(t *testing.T) {
	m := crash(t, fresh(t, tiny), false, 2, 4, 6)
	m = crash(t, m, true, 4, 6)  // 2, 4 and 6 once
	m = crash(t, m, false, 6)    // killed with 4 and 6
	m = crash(t, m, true, 6, 8)  // 6 twice
	m = crash(t, m, false)       // killed
	m = crash(t, m, false, 6, 8) // killed
	if got := m.suspects.crashes; !maps.Equal(got, map[uint64]uint32{6: 2}) {
		t.Errorf("%v", got)
	}
	m = crash(t, m, true)
	if a, b, c := m.Crashes(6), m.Crashes(8), m.Crashes(4); a != 3 || b != 1 || c != 0 {
		t.Errorf("%d %d %d", a, b, c)
	}
	if got := next(t, m).Crashes(6); got != 3 {
		t.Errorf("%d", got)
	}
	m = crash(t, m, true)
	if got := m.suspects.crashes; len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// If there are more than the table takes, those that were there before stay.
func TestCrashesMany(t *testing.T) {
	g := tiny
	g.flights = 1000
	m := crash(t, fresh(t, g), false, 999)
	var many []uint64
	for u := range uint64(1000) {
		many = append(many, u+1)
	}
	m = crash(t, m, true, many...)
	m = next(t, crash(t, m, true))
	if len(m.suspects.crashes) != maxSuspects || m.Crashes(999) != 2 || m.Crashes(1) != 1 {
		t.Errorf("%v", m.suspects.crashes)
	}
}

func TestFlightsConcurrent(t *testing.T) {
	m := fresh(t, tiny)
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(1000) {
				f := m.Flights().Take()
				if f == nil {
					t.Error("full")
				}
				f.Begin(i*8 + g + 1)
				f.End()
				f.Release()
			}
		})
	}
	wg.Wait()
	if left := next(t, m).Flights().Left(); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

func BenchmarkFlight(b *testing.B) {
	f := fresh(b, standard).Flights().Take()
	b.ReportAllocs()
	for b.Loop() {
		f.Begin(2)
		f.End()
	}
}
