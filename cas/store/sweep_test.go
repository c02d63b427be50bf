package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
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
			if got := before - after; st.Freed-st.Copied > got+64<<10 || got < dry.Freed/2 {
				t.Errorf("freed %d, copied %d, dry run %d, the disk got %d", st.Freed, st.Copied, dry.Freed,
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
	if st := sweepNow(t, s, day, marking()); st.Young != st.Segments || st.Dead.Records > 0 ||
		len(x.m) != 100 {
		t.Errorf("%+v", st)
	}
	now = now.Add(2 * time.Hour)
	st := sweepNow(t, s, day, marking())
	if st.Young != 0 || len(x.m) == 0 || len(x.m) > 20 {
		t.Errorf("%+v, %d left", st, len(x.m)) // those in the segment that is being written
	}
	if st := sweepNow(t, s, SweepOptions{}, marking()); len(x.m) != 0 {
		t.Errorf("%+v", st)
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
		return nil
	})
	failed := errors.New("unreadable manifest")
	_, err := s.Sweep(t.Context(), SweepOptions{}, func(context.Context, *Marking) error { return failed })
	wantErr(t, err, failed)
}

// For every n: the machine crashes, or an operation fails, after operation n of a sweep.
func TestSweepCrash(t *testing.T) {
	for _, maxUnused := range []float64{0, 0.5, 1} {
		for _, fault := range []error{nil, syscall.EIO, syscall.ENOSPC} {
			for n := 0; ; n++ {
				what := fmt.Sprintf("max unused %v, fault %v at %d", maxUnused, fault, n)
				m, x := newMem(), newIndex()
				s := open(t, m, x, small)
				committed := workload(s)
				live := slices.DeleteFunc(slices.Clone(committed),
					func(raw []byte) bool { return cas.Sum(raw)[0]%2 == 0 })
				mark := func(_ context.Context, keep *Marking) error {
					for _, raw := range live {
						keep.Keep(cas.Sum(raw))
					}
					return nil
				}
				start := m.Ops()
				if fault == nil {
					m.Inject(disk.CrashAfter(start + n))
					x.fail = func() error {
						if m.Ops() > start+n {
							return disk.ErrCrashed
						}
						return nil
					}
				} else {
					m.Inject(disk.FailAt(start+n, fault))
				}
				_, err := s.Sweep(t.Context(), SweepOptions{MaxUnused: maxUnused}, mark)
				done := m.Ops() <= start+n
				if fault != nil {
					m.Inject(nil)
				}
				if done && err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if fault != nil {
					for _, raw := range live {
						if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
							t.Fatalf("%s: %v", what, err)
						}
					}
				}
				for seed := range uint64(3) {
					var rng *rand.Rand
					if seed > 0 {
						rng = rand.New(rand.NewPCG(uint64(n), seed))
					}
					c := m.CrashClone(rng)
					what := fmt.Sprintf("%s, seed %d", what, seed)
					verify(t, what+", index lost", c.CrashClone(nil), newIndex(), live)
					verify(t, what, c.CrashClone(nil), x.clone(), live)
					// A second sweep finishes the work.
					d, y := c.CrashClone(nil), x.clone()
					s := open(t, d, y, small)
					if st, err := s.Sweep(t.Context(), SweepOptions{MaxUnused: maxUnused}, mark); err != nil {
						t.Fatalf("%s: again: %+v, %v", what, st, err)
					}
					if st := s.Stats(); st.Chunks.Records+st.Manifests.Records != int64(distinct(live)) ||
						len(y.m) != distinct(live) {
						t.Fatalf("%s: again: %+v, %d in the index, want %d\n%s", what, st, len(y.m),
							distinct(live), d)
					}
					if err := s.Close(); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					z := newIndex()
					open(t, d.CrashClone(nil), z, small)
					if len(z.m) != distinct(live) {
						t.Fatalf("%s: again, then rebuilt: %d in the index, want %d", what, len(z.m),
							distinct(live))
					}
					verify(t, what+", swept again", d, y, live)
				}
				s.Close()
				if done {
					t.Logf("max unused %v, %v: %d operations", maxUnused, fault, n)
					break
				}
			}
		}
	}
}

func distinct(raw [][]byte) int {
	seen := map[cas.Hash]bool{}
	for _, p := range raw {
		seen[cas.Sum(p)] = true
	}
	return len(seen)
}

// Files come and go and are read, by many at once, while one sweep follows the other. A file is what has a
// name in a directory; it is read whole or, once it has lost its name, perhaps not.
func TestSweepUnderLoad(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 16 << 10})
	var mu sync.Mutex
	names := map[string][]int{}
	snapshot := func() map[string][]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(names)
	}
	var writers, others sync.WaitGroup
	stop := make(chan struct{})
	var sweeps atomic.Int64
	rounds := 120
	if testing.Short() {
		rounds = 40
	}
	for g := range 4 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for n := 0; n < rounds || sweeps.Load() < 6; n++ {
				b := s.Begin()
				var ids []int
				var raws [][]byte
				for range 1 + r.IntN(12) {
					ids = append(ids, r.IntN(300))
					raws = append(raws, chunk(ids[len(ids)-1]))
				}
				if n%2 == 0 {
					putThose(t, b, raws...)
				} else {
					for _, raw := range raws {
						if _, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
							t.Error(err)
							return
						}
					}
				}
				if err := b.Commit(); err != nil {
					t.Error(err)
					return
				}
				name := fmt.Sprint(g, "/", n%10)
				mu.Lock()
				if n%4 == 3 {
					delete(names, fmt.Sprint(g, "/", r.IntN(10)))
				} else {
					names[name] = ids
				}
				mu.Unlock()
				b.Release()
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for {
				for name, ids := range snapshot() {
					for _, i := range ids {
						got, err := s.Get(cas.Sum(chunk(i)), nil)
						if err == nil && bytes.Equal(got, chunk(i)) {
							continue
						}
						mu.Lock()
						gone := !slices.Equal(names[name], ids)
						mu.Unlock()
						if !gone {
							t.Errorf("%s, chunk %d: %v", name, i, err)
						}
					}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var total SweepStats
	others.Go(func() {
		for i := 0; ; i++ {
			st, err := s.Sweep(t.Context(), SweepOptions{MaxUnused: []float64{0, 0.3, 1}[i%3]},
				func(_ context.Context, keep *Marking) error {
					for _, ids := range snapshot() {
						for _, i := range ids {
							keep.Keep(cas.Sum(chunk(i)))
						}
					}
					return nil
				})
			if err != nil {
				t.Error(err)
				sweeps.Store(6)
				return
			}
			sweeps.Add(1)
			total.Removed += st.Removed
			total.Punched += st.Punched
			total.Rescued += st.Rescued
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	writers.Wait()
	close(stop)
	others.Wait()
	t.Logf("%d removed, %d punched, %d rescued", total.Removed, total.Punched, total.Rescued)
	sweepNow(t, s, SweepOptions{}, func(_ context.Context, keep *Marking) error {
		for _, ids := range names {
			for _, i := range ids {
				keep.Keep(cas.Sum(chunk(i)))
			}
		}
		return nil
	})
	want := map[int]bool{}
	for _, ids := range names {
		for _, i := range ids {
			want[i] = true
			wantGet(t, s, chunk(i))
		}
	}
	if len(x.m) != len(want) {
		t.Errorf("%d in the index, want %d", len(x.m), len(want))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	for i := range want {
		wantGet(t, s, chunk(i))
	}
}

// On a full disk a sweep begins with what needs no room, and goes on with what it got.
func TestSweepOnFullDisk(t *testing.T) {
	m, x := newMem(), newIndex()
	s := filled(t, m, x, 100, Options{SegmentSize: 16 << 10})
	numbers, err := s.numbers()
	if err != nil || len(numbers) < 3 {
		t.Fatal(numbers, err)
	}
	// All but the last segment keep some; of that one nothing is wanted.
	last := numbers[len(numbers)-1]
	var live []int
	for i := range 100 {
		if x.m[cas.Sum(chunk(i))].Segment != last && i%3 == 1 {
			live = append(live, i)
		}
	}
	freed := false
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	if err := s.appender.grow(); err != nil { // the next segment is there
		t.Fatal(err)
	}
	m.Inject(func(op disk.Op) *disk.Fault {
		switch {
		case op.Kind == disk.OpRemove:
			freed = true
		case op.Kind == disk.OpWrite && !freed:
			return &disk.Fault{Err: syscall.ENOSPC, Short: int(op.Len / 2)}
		}
		return nil
	})
	st := sweepNow(t, s, SweepOptions{MaxUnused: 1}, marking(live...))
	m.Inject(nil)
	if st.Failed > 0 || st.Punched != len(numbers)-1 || st.Removed != 1 {
		t.Errorf("%+v", st)
	}
	for i := range 100 {
		if slices.Contains(live, i) {
			wantGet(t, s, chunk(i))
		} else if has(t, s, i) {
			t.Errorf("chunk %d is there", i)
		}
	}
}

// rotting is an index that proves damaged when it is told to.
type rotting struct {
	*memIndex
	rotten atomic.Bool
}

func (x *rotting) ask() error {
	if x.rotten.Load() {
		return fmt.Errorf("index: %w", cas.ErrCorrupt)
	}
	return nil
}

func (x *rotting) Locate(hashes []cas.Hash, locs []cas.Location) error {
	return cmp.Or(x.ask(), x.memIndex.Locate(hashes, locs))
}

func (x *rotting) Commit(entries []cas.Entry, mark cas.Watermark) error {
	return cmp.Or(x.ask(), x.memIndex.Commit(entries, mark))
}

func (x *rotting) Remove(entries []cas.Entry) error {
	return cmp.Or(x.ask(), x.memIndex.Remove(entries))
}

func (x *rotting) Watermark() (cas.Watermark, error) {
	m, err := x.memIndex.Watermark()
	return m, cmp.Or(x.ask(), err)
}

func (x *rotting) ForEach(from, to uint16, f func(cas.Entry) error) error {
	return cmp.Or(x.ask(), x.memIndex.ForEach(from, to, f))
}

// The index proves damaged again and again while chunks are put, read, swept and checked: nobody but a sweep
// or a check notices.
func TestIndexRotsUnderLoad(t *testing.T) {
	m := newMem()
	var mu sync.Mutex
	index := &rotting{memIndex: newIndex()}
	renewed := 0
	s := open(t, m, index, Options{SegmentSize: 16 << 10, NewIndex: func(error) (Locator, error) {
		mu.Lock()
		defer mu.Unlock()
		renewed++
		index = &rotting{memIndex: newIndex()}
		return index, nil
	}})
	stop := make(chan struct{})
	var writers, others sync.WaitGroup
	committed := make([]map[int]bool, 3)
	for g := range committed {
		committed[g] = map[int]bool{}
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for n := range 60 {
				b := s.Begin()
				var ids []int
				for range 8 {
					i := r.IntN(250)
					raw := chunk(i)
					if _, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
						t.Error(err)
					}
					ids = append(ids, i)
				}
				if err := b.Commit(); err != nil {
					t.Error(err)
				}
				for _, i := range ids {
					if got, err := s.Get(cas.Sum(chunk(i)), nil); err != nil || !bytes.Equal(got, chunk(i)) {
						t.Errorf("chunk %d: %v", i, err)
					}
					if i%2 == 0 {
						committed[g][i] = true
					}
				}
				b.Release()
				if n%10 == g {
					mu.Lock()
					index.rotten.Store(true)
					mu.Unlock()
				}
			}
		})
	}
	others.Go(func() {
		for i := 0; ; i++ {
			_, err := s.Sweep(t.Context(), SweepOptions{MaxUnused: float64(i%3) / 2},
				func(_ context.Context, m *Marking) error {
					for i := 0; i < 250; i += 2 { // more than there are
						m.Keep(cas.Sum(chunk(i)))
					}
					return nil
				})
			if err != nil && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, errRenewed) {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	others.Go(func() {
		for {
			if _, err := s.Check(t.Context(), CheckOptions{ReadData: true}); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	writers.Wait()
	close(stop)
	others.Wait()
	mu.Lock()
	index.rotten.Store(false)
	mu.Unlock()
	t.Logf("renewed %d times", renewed)
	if renewed == 0 {
		t.Error("never renewed")
	}
	check := func(s *Store) {
		t.Helper()
		for _, ids := range committed {
			for i := range ids {
				wantGet(t, s, chunk(i))
			}
		}
		if _, fs := checkAll(t, s, CheckOptions{ReadData: true}); slices.ContainsFunc(fs,
			func(f Finding) bool { return !f.Problem.Harmless() }) {
			t.Errorf("%v", fs)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(open(t, m, index.memIndex, Options{}))
	check(open(t, m.CrashClone(nil), newIndex(), Options{}))
}
