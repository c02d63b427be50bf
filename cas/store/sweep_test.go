package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// marking is a Mark of the chunks with these numbers.
func marking(ids ...int) Mark {
	return func(_ context.Context, keep *Marking) error {
		for _, i := range ids {
			keep.Keep(cas.Sum(chunk(i)))
		}
		return nil
	}
}

func sweepNow(t testing.TB, s *Store, opt SweepOptions, mark Mark) SweepStats {
	t.Helper()
	st, err := s.Sweep(t.Context(), opt, mark)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func upTo(n int) (ids []int) {
	for i := range n {
		ids = append(ids, i)
	}
	return ids
}

func has(t testing.TB, s *Store, i int) bool {
	t.Helper()
	h, err := s.Has([]cas.Hash{cas.Sum(chunk(i))})
	if err != nil {
		t.Fatal(err)
	}
	return h[0]
}

// taking is what all segments take on the disk.
func taking(t testing.TB, m *disk.Mem) (n int64) {
	t.Helper()
	names, err := m.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := m.OpenFile(dir+"/"+name, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		a, err := f.Allocated()
		if err != nil {
			t.Fatal(err)
		}
		n += a
		f.Close()
	}
	return n
}

// filled is a store with chunks 0 to n-1 in several segments.
func filled(t testing.TB, m *disk.Mem, x *memIndex, n int, opt Options) *Store {
	t.Helper()
	s := open(t, m, x, opt)
	b := s.Begin()
	for i := range n {
		kind := cas.Chunk
		if i%5 == 0 {
			kind = cas.Manifest
		}
		put(t, b, kind, chunk(i))
	}
	commit(t, b)
	return s
}

func TestSweep(t *testing.T) {
	const n = 400
	for name, c := range map[string]struct {
		wanted    func(i int) bool
		maxUnused float64
		punched   bool
		removed   bool
	}{
		"few dead":          {func(i int) bool { return i%100 >= 40 }, 0.6, true, false},
		"many dead":         {func(i int) bool { return i%20 == 5 }, 0.5, false, true},
		"many dead, punch":  {func(i int) bool { return i%40 == 5 }, 1, true, false},
		"few dead, no rest": {func(i int) bool { return i%20 != 5 }, 0, false, true},
		"all dead":          {func(i int) bool { return false }, 0.5, false, true},
		"half":              {func(i int) bool { return i < n/2 }, 0.5, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, x := newMem(), newIndex()
			s := filled(t, m, x, n, Options{SegmentSize: 64 << 10})
			live := slices.DeleteFunc(upTo(n), func(i int) bool { return !c.wanted(i) })
			before := taking(t, m)
			dry := sweepNow(t, s, SweepOptions{DryRun: true, MaxUnused: c.maxUnused}, marking(live...))
			if dry.Dead.Records != int64(n-len(live)) || dry.Live.Records != int64(len(live)) ||
				taking(t, m) != before || len(x.m) != n {
				t.Errorf("dry run: %+v", dry)
			}
			st := sweepNow(t, s, SweepOptions{MaxUnused: c.maxUnused}, marking(live...))
			if st.Punched > 0 != c.punched || st.Removed > 0 != c.removed ||
				st.Skipped+st.Young+st.Failed+st.Reindexed > 0 {
				t.Errorf("%+v", st)
			}
			after := taking(t, m)
			if got := before - after; st.Freed-st.Copied > got+64<<10 || got < dry.Room/2 {
				t.Errorf("freed %d, copied %d, dry run %d, the disk got %d", st.Freed, st.Copied, dry.Room,
					got)
			}
			check := func(s *Store) {
				t.Helper()
				for i := range n {
					if c.wanted(i) {
						wantGet(t, s, chunk(i))
					} else if has(t, s, i) {
						t.Errorf("chunk %d is still there", i)
					}
				}
				if st := s.Stats(); st.Chunks.Records+st.Manifests.Records != int64(len(live)) {
					t.Errorf("%+v, want %d records", st, len(live))
				}
			}
			check(s)
			if again := sweepNow(t, s, SweepOptions{MaxUnused: c.maxUnused},
				marking(live...)); again.Dead.Records+again.Copied+int64(again.Punched) > 0 {
				t.Errorf("again: %+v", again)
			}
			check(s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			check(open(t, m, x, Options{}))
			check(open(t, m.CrashClone(nil), newIndex(), Options{})) // nothing comes back by a rebuild
			s = open(t, m, x, Options{})
			b := s.Begin()
			for i := range n {
				if fresh := put(t, b, cas.Chunk, chunk(i)); fresh == c.wanted(i) {
					t.Errorf("chunk %d: fresh %v", i, fresh)
				}
			}
			commit(t, b)
			for i := range n {
				wantGet(t, s, chunk(i))
			}
		})
	}
}

func TestSweepGrace(t *testing.T) {
	m, x := newMem(), newIndex()
	now := time.Unix(1_700_000_000, 0)
	s := filled(t, m, x, 100, Options{SegmentSize: 8 << 10, Now: func() time.Time { return now }})
	day := SweepOptions{Grace: 24 * time.Hour, MaxUnused: 0.5}
	now = now.Add(23 * time.Hour)
	dry := day
	dry.DryRun = true
	for _, opt := range []SweepOptions{day, dry} {
		st := sweepNow(t, s, opt, marking())
		if st.Young != st.Segments || st.Dead.Records > 0 || len(x.m) != 100 {
			t.Errorf("%+v", st)
		}
		if all := s.Stats().Chunks.Stored; st.Waits < all || st.Waits > 2*all {
			t.Errorf("%d bytes wait, of %d", st.Waits, all)
		}
	}
	now = now.Add(2 * time.Hour)
	st := sweepNow(t, s, day, marking())
	if st.Young != 1 || len(x.m) == 0 || len(x.m) > 20 {
		t.Errorf("%+v, %d left", st, len(x.m)) // those in the segment that is being written
	}
	if st := sweepNow(t, s, SweepOptions{}, marking()); len(x.m) != 0 {
		t.Errorf("%+v", st)
	}
}

// What the one segment that is being written could give back is told, and a dry run looks at it as a sweep
// does.
func TestSweepOfTheFirstSegment(t *testing.T) {
	s := filled(t, newMem(), newIndex(), 10, Options{})
	wanted := cas.Sum(chunk(3))
	mark := func(_ context.Context, m *Marking) error { m.Keep(wanted); return nil }
	st := sweepNow(t, s, SweepOptions{Grace: time.Hour}, mark)
	if st.Segments != 1 || st.Young != 1 || st.Waits == 0 || st.Waits > 10*segment.Size(len(chunk(0))) {
		t.Errorf("%+v", st)
	}
	dry := sweepNow(t, s, SweepOptions{DryRun: true}, mark)
	done := sweepNow(t, s, SweepOptions{}, mark)
	if dry.Segments != 1 || done.Segments != 1 || dry.Dead != done.Dead || dry.Room != st.Waits {
		t.Errorf("%+v, dry %+v, in the grace period %+v", done, dry, st)
	}
}

// What is put while the mark is under way is wanted, wherever the mark has been, also if it was held already
// and dead.
func TestSweepSparesWhatIsPut(t *testing.T) {
	m, x := newMem(), newIndex()
	s := filled(t, m, x, 60, Options{SegmentSize: 4 << 10})
	held := s.Begin() // from before the sweep, released after it
	put(t, held, cas.Chunk, chunk(1))
	put(t, held, cas.Manifest, chunk(0))
	early := s.Begin() // released while the mark is under way
	put(t, early, cas.Chunk, chunk(2))
	sweepNow(t, s, SweepOptions{MaxUnused: 0.5}, func(_ context.Context, keep *Marking) error {
		b := s.Begin()
		put(t, b, cas.Chunk, chunk(3))
		put(t, b, cas.Manifest, chunk(5))
		commit(t, b)
		early.Release()
		got := keep.Named()
		slices.SortFunc(got, func(a, b cas.Hash) int { return bytes.Compare(a[:], b[:]) })
		want := []cas.Hash{cas.Sum(chunk(0)), cas.Sum(chunk(5))}
		slices.SortFunc(want, func(a, b cas.Hash) int { return bytes.Compare(a[:], b[:]) })
		if !slices.Equal(got, want) {
			t.Errorf("named %v, want %v", got, want)
		}
		return nil
	})
	for i := range 60 {
		if got := has(t, s, i); got != (i <= 3 || i == 5) {
			t.Errorf("chunk %d: %v", i, got)
		}
	}
	commit(t, held)
	sweepNow(t, s, SweepOptions{}, marking(3))
	for i := range 60 {
		if got := has(t, s, i); got != (i == 3) {
			t.Errorf("chunk %d: %v", i, got)
		}
	}
}

// A chunk is put at any moment of a sweep that wants to take it.
func TestSweepRescue(t *testing.T) {
	for _, maxUnused := range []float64{0, 1} {
		for at := 0; ; at++ {
			m, x := newMem(), newIndex()
			s := filled(t, m, x, 40, Options{SegmentSize: 64 << 10})
			var live []int
			for i := 0; i < 40; i += 2 {
				live = append(live, i)
			}
			n, done := 0, false
			var b *Batch
			x.before = func(string) {
				if n++; n <= at || done {
					return
				}
				done = true
				b = s.Begin()
				for i := range 40 {
					if i%4 < 2 {
						putThose(t, b, chunk(i), chunk((i+1)%40))
					} else {
						put(t, b, cas.Chunk, chunk(i))
					}
				}
			}
			sweepNow(t, s, SweepOptions{MaxUnused: maxUnused}, marking(live...))
			x.before = nil
			if !done {
				if at < 2 {
					t.Fatalf("%d operations of the index", at)
				}
				break
			}
			commit(t, b)
			for i := range 40 {
				wantGet(t, s, chunk(i))
			}
			s.Close()
			for _, y := range []*memIndex{x, newIndex()} {
				s := open(t, m.CrashClone(nil), y, Options{})
				for i := range 40 {
					wantGet(t, s, chunk(i))
				}
			}
		}
	}
}

// The index has lost what is wanted, or believes in a worse copy: a sweep does not take that for a reason to
// destroy it.
func TestSweepDistrustsTheIndex(t *testing.T) {
	m, x := newMem(), newIndex()
	s := filled(t, m, x, 40, Options{SegmentSize: 4 << 10})
	x.mu.Lock()
	delete(x.m, cas.Sum(chunk(3)))
	wrong := x.m[cas.Sum(chunk(4))]
	wrong.Off += 8
	x.m[cas.Sum(chunk(4))] = wrong
	x.mu.Unlock()
	st := sweepNow(t, s, SweepOptions{}, marking(3, 4, 5))
	if st.Reindexed != 2 {
		t.Errorf("%+v", st)
	}
	for i := range 40 {
		if i >= 3 && i <= 5 {
			wantGet(t, s, chunk(i))
		} else if has(t, s, i) {
			t.Errorf("chunk %d is there", i)
		}
	}
}

// What cannot be read is neither moved nor destroyed.
func TestSweepLeavesDamage(t *testing.T) {
	m, x := newMem(), newIndex()
	s := filled(t, m, x, 40, Options{SegmentSize: 64 << 10})
	loc := x.m[cas.Sum(chunk(7))]
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	f, err := m.OpenFile(segment.Path(dir, loc.Segment), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xfe, 0xfd}, loc.Off+segment.RecordHeaderSize+9); err != nil {
		t.Fatal(err)
	}
	before := make([]byte, segment.Size(int(loc.Stored)))
	if _, err := f.ReadAt(before, loc.Off); err != nil {
		t.Fatal(err)
	}
	st := sweepNow(t, s, SweepOptions{MaxUnused: 0}, marking(7, 8, 9))
	if st.Removed != 0 || st.Punched != 1 || st.Copied == 0 {
		t.Errorf("%+v", st)
	}
	wantGet(t, s, chunk(8))
	wantGet(t, s, chunk(9))
	_, err = s.Get(cas.Sum(chunk(7)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	after := make([]byte, len(before))
	if _, err := f.ReadAt(after, loc.Off); err != nil || !bytes.Equal(before, after) {
		t.Error("the damaged record was changed", err)
	}
}

func TestSweepsExclude(t *testing.T) {
	s := filled(t, newMem(), newIndex(), 10, Options{})
	sweepNow(t, s, SweepOptions{}, func(ctx context.Context, _ *Marking) error {
		_, err := s.Sweep(ctx, SweepOptions{}, marking())
		wantErr(t, err, ErrSweeping)
		wantErr(t, err, syscall.EBUSY) // which commands exit with 4 for
		return nil
	})
	failed := errors.New("unreadable manifest")
	_, err := s.Sweep(t.Context(), SweepOptions{}, func(context.Context, *Marking) error { return failed })
	wantErr(t, err, failed)
}
