package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
)

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
	if err := s.appender.tails.Grow(s.appender.tails.Last()); err != nil { // the next segment is there
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
