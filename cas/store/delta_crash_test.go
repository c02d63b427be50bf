package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/disk"
)

// For every n: the machine crashes after operation n of saves and sweeps. What has a name can be read, and
// all of it put again.
func TestDeltaCrash(t *testing.T) {
	small := Options{SegmentSize: 2 << 10, ReplayBatch: 4}
	run := func(s *Store) (named map[[2]int]bool) {
		named = map[[2]int]bool{}
		save := func(ids ...[2]int) {
			b := s.Begin()
			defer b.Release()
			for _, id := range ids {
				raw := version(id[0], id[1])
				if _, _, err := b.PutAgainst(cas.Chunk, cas.Sum(raw), raw, fp32,
					cas.Sum(version(id[0], max(id[1]-1, 0)))); err != nil {
					return
				}
			}
			if b.Commit() == nil {
				for _, id := range ids {
					named[id] = true
				}
			}
		}
		sweep := func() {
			_, _ = s.Sweep(context.Background(), SweepOptions{MaxUnused: 0.4}, keeping(named))
		}
		save([2]int{0, 0}, [2]int{1, 0}, [2]int{2, 0})
		save([2]int{0, 1}, [2]int{1, 1}, [2]int{0, 2}, [2]int{0, 3})
		delete(named, [2]int{0, 0})
		delete(named, [2]int{1, 0})
		delete(named, [2]int{0, 2})
		sweep()
		save([2]int{1, 2}, [2]int{2, 1})
		delete(named, [2]int{0, 3})
		delete(named, [2]int{2, 0})
		sweep()
		save([2]int{0, 3}, [2]int{0, 4})
		delete(named, [2]int{0, 1})
		sweep()
		return named
	}
	whole := map[[2]int]bool{{1, 1}: true, {1, 2}: true, {2, 1}: true, {0, 3}: true, {0, 4}: true}
	crashAnywhere(t, small, 1, run, whole)
}

// An index that lost a record says nothing of the versions that were stored against it: it is not stored
// against one of them, and no pin goes in a circle.
func TestDeltaCircle(t *testing.T) {
	x := newIndex()
	s := open(t, newMem(), x, Options{})
	b := s.Begin()
	for v := range 3 {
		evolve(t, b, 0, v)
	}
	commit(t, b)
	x.mu.Lock()
	delete(x.m, cas.Sum(version(0, 0)))
	x.mu.Unlock()
	b = s.Begin()
	fresh, id, err := putVersion(b, 0, 0, 2)
	if !fresh || codec.NeedsBase(id) || err != nil {
		t.Fatal(fresh, id, err)
	}
	commit(t, b)
	for v := range 3 {
		wantGet(t, s, version(0, v))
	}
	if len(s.pins.count)+len(s.pins.needs) > 0 {
		t.Errorf("still pinned: %v %v", s.pins.count, s.pins.needs)
	}
}

// Of a chunk that was stored twice, the first time against what a sweep took that was cut short, a new index
// names the second.
func TestDeltaTwins(t *testing.T) {
	m, x := newMem(), newIndex()
	opt := Options{SegmentSize: 1, NewIndex: func(error) (Locator, error) { return newIndex(), nil }}
	s := open(t, m, x, opt)
	save := func(v, prev int, want uint8) {
		t.Helper()
		b := s.Begin()
		if _, _, err := putVersion(b, 0, v, prev); err != nil {
			t.Fatal(err)
		}
		commit(t, b)
		if n := numberOf(t, s, cas.Sum(version(0, v))).Number; n != want {
			t.Fatalf("version %d has number %d, want %d", v, n, want)
		}
	}
	save(0, -1, 0)
	save(1, 0, 1)
	x.mu.Lock()
	delete(x.m, cas.Sum(version(0, 1)))
	x.mu.Unlock()
	save(2, -1, 0)
	save(3, 2, 1)
	save(1, 3, 2)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Sweep(ctx, SweepOptions{Progress: func(SweepStats) { cancel() }},
		keeping(map[[2]int]bool{{0, 2}: true}))
	wantErr(t, err, context.Canceled)
	_, err = s.Get(cas.Sum(version(0, 0)), nil)
	wantErr(t, err, cas.ErrNotFound)
	save(1, 3, 2)
	wantGet(t, s, version(0, 1))
	s.Close()
	s = open(t, m, newIndex(), opt)
	wantGet(t, s, version(0, 1))
	if err := s.renew(s.indexer.generation(), cas.ErrCorrupt); err != nil {
		t.Fatal(err)
	}
	wantGet(t, s, version(0, 1))
}

// crashAnywhere crashes the disk after each operation of run, which returns what versions are named, and
// mounts what that left, with the index and without: what was named reads back, and run makes the whole of it
// again.
func crashAnywhere(t *testing.T, opt Options, every int,
	run func(*Store) map[[2]int]bool, whole map[[2]int]bool) {
	t.Helper()
	if !testing.Short() {
		every = 1
	}
	for n := 0; ; n += every {
		m, x := newMem(), newIndex()
		m.Inject(disk.CrashAfter(n))
		x.fail = func() error {
			if m.Ops() > n {
				return disk.ErrCrashed
			}
			return nil
		}
		var named map[[2]int]bool
		s, err := Open(m, dir, storeID, x, opt)
		if err == nil {
			named = run(s)
			err = s.Close()
		}
		over := m.Ops() <= n
		if over && (err != nil || !maps.Equal(named, whole)) {
			t.Fatalf("without a crash: %v, %v", named, err)
		}
		for seed := range uint64(3) {
			if testing.Short() && !over && (n+int(seed))%3 != 0 {
				continue
			}
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(uint64(n), seed))
			}
			c := m.CrashClone(rng)
			for i, y := range []*memIndex{x.clone(), newIndex()} {
				d := c.CrashClone(nil)
				what := fmt.Sprintf("crash after %d, seed %d, index lost %v", n, seed, i == 1)
				s, err := Open(d, dir, storeID, y, opt)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				read := func(ids map[[2]int]bool) {
					t.Helper()
					for id := range ids {
						raw := version(id[0], id[1])
						if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
							t.Fatalf("%s: %v: %v\n%s", what, id, err, d)
						}
					}
				}
				read(named)
				if _, err := s.Check(t.Context(), CheckOptions{ReadData: true, Found: func(f damage.Finding) {
					if !f.Problem.Harmless() {
						t.Errorf("%s: %s", what, f)
					}
				}}); err != nil {
					t.Fatal(err)
				}
				if again := run(s); !maps.Equal(again, whole) {
					t.Fatalf("%s: then %v", what, again)
				}
				read(whole)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = Open(d, dir, storeID, newIndex(), opt); err != nil {
					t.Fatal(err)
				}
				read(whole)
				s.Close()
			}
		}
		if over {
			t.Logf("%d operations", n)
			return
		}
	}
}

// Many writers of chains that have much in common, beside sweeps and compactions.
func TestDeltaConcurrent(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 8 << 10})
	stop := make(chan struct{})
	swept := make(chan struct{})
	live := make(chan map[[2]int]bool, 1)
	live <- map[[2]int]bool{}
	go func() {
		defer close(swept)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := s.Sweep(context.Background(), SweepOptions{MaxUnused: 0.3},
				func(ctx context.Context, k *Marking) error {
					l := <-live
					ids := maps.Clone(l)
					live <- l
					return keeping(ids)(ctx, k)
				})
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	compacted := make(chan struct{})
	go func() {
		defer close(compacted)
		r := rand.New(rand.NewPCG(9, 9))
		for {
			select {
			case <-stop:
				return
			default:
			}
			ids := slices.Concat(line(0, 12), line(1, 12), line(halves, 12), line(adapted, 12),
				line(columned, 3), line(computed, 12))
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			back := 1 + r.IntN(3)
			if _, err := recode(context.Background(), s, ids,
				func(v int) int { return v - back },
				func(h cas.Hash) bool { return h[0]&1 != 0 }); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	done := make(chan struct{})
	const writers = 4
	for g := range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			r := rand.New(rand.NewPCG(uint64(g), 8))
			for range 60 {
				b := s.Begin()
				id := [2]int{[]int{0, 1, halves, adapted, columned, computed}[r.IntN(6)], r.IntN(12)}
				if id[0] == computed && r.IntN(2) == 0 {
					putBases(t, b, id[1])
				}
				if r.IntN(2) == 0 || !heldOf(t, b, cas.Chunk, version(id[0], id[1]))[0] {
					if _, _, err := putVersion(b, id[0], id[1], max(0, id[1]-1+r.IntN(3))); err != nil {
						t.Error(err)
					}
				}
				if err := b.Commit(); err != nil {
					t.Error(err)
				}
				l := <-live
				l[id] = true
				live <- l
				b.Release()
				l = <-live
				for _, old := range slices.Collect(maps.Keys(l)) {
					if r.IntN(4) == 0 {
						delete(l, old)
					}
				}
				live <- l
			}
		}()
	}
	for range writers {
		<-done
	}
	close(stop)
	<-swept
	<-compacted
	named := <-live
	for id := range named {
		wantGet(t, s, version(id[0], id[1]))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	for id := range named {
		wantGet(t, s, version(id[0], id[1]))
	}
}
