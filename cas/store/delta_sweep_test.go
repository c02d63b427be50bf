package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/cas"
)

// keeping is a Mark of versions.
func keeping(ids map[[2]int]bool) Mark {
	return func(_ context.Context, m *Marking) error {
		for id, on := range ids {
			if on {
				m.Keep(cas.Sum(version(id[0], id[1])))
			}
		}
		return nil
	}
}

// Whatever is wanted of a chain is there after a sweep, and what is not can be put again.
func TestDeltaSweep(t *testing.T) {
	const n = 8
	for set := range 1 << n {
		if testing.Short() && set%5 != 0 {
			continue
		}
		maxUnused := []float64{0, 0.5, 1}[set%3]
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{SegmentSize: 2 << 10})
		want := map[[2]int]bool{}
		for v := range n {
			b := s.Begin()
			evolve(t, b, 1, v)
			commit(t, b)
			want[[2]int{1, v}] = set>>v&1 != 0
		}
		for range 2 {
			sweepNow(t, s, SweepOptions{MaxUnused: maxUnused}, keeping(want))
		}
		needed := map[cas.Hash]bool{}
		for v := range n {
			if want[[2]int{1, v}] {
				for i := v; ; i &= i - 1 {
					needed[cas.Sum(version(1, i))] = true
					if i == 0 {
						break
					}
				}
			}
		}
		check := func(s *Store) {
			t.Helper()
			for v := range n {
				raw := version(1, v)
				has, err := s.Has([]cas.Hash{cas.Sum(raw)})
				if err != nil || has[0] != needed[cas.Sum(raw)] {
					t.Fatalf("set %08b: version %d: held %v, %v", set, v, has, err)
				}
				if has[0] {
					wantGet(t, s, raw)
				}
			}
		}
		check(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, m, newIndex(), Options{})
		check(s)
		b := s.Begin()
		for v := range n {
			evolve(t, b, 1, v)
		}
		commit(t, b)
		for v := range n {
			wantGet(t, s, version(1, v))
		}
	}
}

// A delta too young to go keeps its base, though nothing names either.
func TestDeltaSweepGrace(t *testing.T) {
	m, x := newMem(), newIndex()
	now := time.Unix(1_700_000_000, 0)
	s := open(t, m, x, Options{Now: func() time.Time { return now }})
	for v := range 2 {
		b := s.Begin()
		evolve(t, b, 1, v)
		commit(t, b)
		if err := s.roll(); err != nil {
			t.Fatal(err)
		}
		now = now.Add(20 * time.Hour)
	}
	sweepNow(t, s, SweepOptions{Grace: 24 * time.Hour}, marking())
	wantGet(t, s, version(1, 1))
	now = now.Add(20 * time.Hour)
	sweepNow(t, s, SweepOptions{Grace: 24 * time.Hour}, marking())
	if len(x.m) > 1 { // the base, once its delta went
		t.Errorf("%d left", len(x.m))
	}
}

// What waits is what a sweep without grace takes: with the bases that only deltas keep which are too young,
// in old segments, too.
func TestDeltaSweepTellsWhatWaits(t *testing.T) {
	const n = 8
	for old := range n {
		for _, last := range []bool{false, true} { // a version that is wanted
			now := time.Unix(1_700_000_000, 0)
			clock := func() time.Time { return now }
			s := open(t, newMem(), newIndex(), Options{SegmentSize: 2 << 10, Now: clock})
			for v := range n {
				if v == old {
					if err := s.roll(); err != nil {
						t.Fatal(err)
					}
					now = now.Add(48 * time.Hour)
				}
				b := s.Begin()
				evolve(t, b, 1, v)
				commit(t, b)
			}
			want := keeping(map[[2]int]bool{{1, n - 1}: last})
			day := SweepOptions{Grace: 24 * time.Hour, DryRun: true}
			dry := sweepNow(t, s, day, want)
			day.DryRun = false
			did := sweepNow(t, s, day, want)
			if dry.Waits != did.Waits || dry.Room != did.Room {
				t.Errorf("%d are old: %+v, dry %+v", old, did, dry)
			}
			all := sweepNow(t, s, SweepOptions{MaxUnused: 1}, want)
			if did.Waits != all.Room || old == 0 && all.Room == 0 {
				t.Errorf("%d are old: %d wait, %d go", old, did.Waits, all.Room)
			}
		}
	}
}

// A dead delta that is put again while a sweep takes its base, at whatever point, is there afterwards.
func TestDeltaRevivedDuringSweep(t *testing.T) {
	for at := 0; ; at++ {
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{SegmentSize: 2 << 10})
		for v := range 4 {
			b := s.Begin()
			evolve(t, b, 1, v)
			commit(t, b)
		}
		var sofar atomic.Int64
		var begun atomic.Bool
		done := make(chan struct{})
		x.before = func(op string) {
			if begun.Load() || sofar.Add(1)-1 != int64(at) {
				return
			}
			begun.Store(true)
			b := s.Begin()
			go func() {
				defer close(done)
				evolve(t, b, 1, 3) // number 3, which leads to 2 and 0
				commit(t, b)
			}()
			if op != "Commit" { // under which no other commit goes on
				<-done
			}
		}
		sweepNow(t, s, SweepOptions{MaxUnused: 0.3}, marking())
		if !begun.Load() {
			return
		}
		<-done
		x.before = nil
		wantGet(t, s, version(1, 3))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantGet(t, open(t, m, newIndex(), Options{}), version(1, 3))
	}
}
