package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// recode stores versions of a line anew, each against the one before it.
func recode(ctx context.Context, s *Store, ids [][2]int, prev func(v int) int) (CompactStats, error) {
	c, err := s.Compact(ctx, false)
	if err != nil {
		return CompactStats{}, err
	}
	defer c.End()
	b := s.Begin()
	defer b.Release()
	for _, id := range ids {
		var before cas.Hash
		if p := prev(id[1]); p >= 0 {
			before = cas.Sum(version(id[0], p))
		}
		if _, err := c.Recode(b, cas.Sum(version(id[0], id[1])), fp32, before); err != nil {
			return c.Stats(), err
		}
	}
	if err := b.Commit(); err != nil {
		return c.Stats(), err
	}
	b.Release()
	err = c.Retire(ctx)
	return c.Stats(), err
}

func stepBefore(v int) int { return v - 1 }

// line lists versions of one tensor.
func line(l, n int) (ids [][2]int) {
	for v := range n {
		ids = append(ids, [2]int{l, v})
	}
	return ids
}

// alone puts a version without a base.
func alone(t testing.TB, s *Store, ids ...[2]int) {
	t.Helper()
	b := s.Begin()
	for _, id := range ids {
		raw := version(id[0], id[1])
		if _, err := b.Put(cas.Chunk, cas.Sum(raw), raw, fp32); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, b)
}

func TestCompact(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 4 << 10})
	ids := line(1, 11)
	alone(t, s, ids...)
	before := s.Stats()
	dry, err := s.Compact(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Begin()
	if ok, err := dry.Recode(b, cas.Sum(version(1, 1)), fp32, cas.Sum(version(1, 0))); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := s.Compact(t.Context(), false); !errors.Is(err, ErrCompacting) {
		t.Error(err)
	}
	b.Release()
	dry.End()
	if st := dry.Stats(); st.Records != 1 || st.After >= st.Before || s.Stats() != before {
		t.Errorf("dry run: %+v", st)
	}
	st, err := recode(t.Context(), s, ids, stepBefore)
	if err != nil || st.Records != 9 || st.Looked != 11 {
		t.Fatalf("%+v, %v", st, err)
	}
	after := s.Stats()
	if got := before.Chunks.Stored - after.Chunks.Stored; after.Chunks.Records != before.Chunks.Records || got < st.Before-st.After-int64(9*8) || st.Freed-st.Copied <= 0 {
		t.Errorf("%+v, before %+v, after %+v", st, before, after)
	}
	check := func(s *Store) {
		t.Helper()
		for v := range 11 {
			i := uint8(v % 8)
			if got := numberOf(t, s, cas.Sum(version(1, v))); got.Number != i {
				t.Errorf("version %d has number %d", v, got.Number)
			}
			wantGet(t, s, version(1, v))
		}
	}
	check(s)
	if st, err := recode(t.Context(), s, ids, stepBefore); err != nil || st.Records != 0 {
		t.Errorf("again: %+v, %v", st, err)
	}
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{1, 7}: true, {1, 10}: true}))
	wantGet(t, s, version(1, 7))
	wantGet(t, s, version(1, 10))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	wantGet(t, s, version(1, 7))
	wantGet(t, s, version(1, 10))
}

// A record against which others are written gets no number that these do not allow, now or when they are stored while the
// compaction goes on.
func TestCompactKeepsNumbers(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{SegmentSize: 4 << 10})
	alone(t, s, [2]int{1, 0}, [2]int{1, 1})
	b := s.Begin()
	evolve(t, b, 1, 2) // number 1, against version 1
	commit(t, b)
	if st, err := recode(t.Context(), s, [][2]int{{1, 1}}, stepBefore); err != nil || st.Records != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	wantGet(t, s, version(1, 2))

	alone(t, s, [2]int{2, 0}, [2]int{2, 1})
	c, err := s.Compact(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	b, other := s.Begin(), s.Begin()
	if _, delta := evolve(t, other, 2, 2); !delta {
		t.Fatal("no delta")
	}
	commit(t, other)
	if ok, err := c.Recode(b, cas.Sum(version(2, 1)), fp32, cas.Sum(version(2, 0))); ok || err != nil {
		t.Error(ok, err)
	}
	// Nothing is written against what is about to rise.
	r := &record{hash: cas.Sum(version(2, 0)), kind: cas.Chunk, done: make(chan struct{}), rising: true}
	s.mu.Lock()
	s.pending[r.hash] = r
	s.mu.Unlock()
	other = s.Begin()
	raw := version(2, 3)
	if _, delta, err := other.PutAgainst(cas.Chunk, cas.Sum(raw), raw, fp32, r.hash); delta || err != nil {
		t.Error(delta, err)
	}
	s.mu.Lock()
	s.settle(r, indexed, nil)
	s.mu.Unlock()
	commit(t, other)
	commit(t, b)
	for v := range 4 {
		wantGet(t, s, version(2, v))
	}
}

// A delta that is not worth its readers' time becomes a key.
func TestCompactMakesKeys(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{SegmentSize: 4 << 10})
	alone(t, s, [2]int{1, 0})
	raw := version(2, 0) // has nothing to do with it
	base := version(1, 0)
	h := cas.Sum(raw)
	buf := make([]byte, segment.RecordHeaderSize+segment.BaseSize)
	segment.Base{Hash: cas.Sum(base), Number: 1}.Put(buf[segment.RecordHeaderSize:])
	id, buf, ok := codec.EncodeAgainst(buf, raw, base, fp32, 2*len(raw))
	if !ok {
		t.Fatal("not encoded")
	}
	b := s.Begin()
	r, err := b.claim(cas.Chunk, h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.append(r, &segment.Record{Kind: cas.Chunk, Codec: id, Raw: uint32(len(raw)), Hash: h}, buf); err != nil {
		t.Fatal(err)
	}
	commit(t, b)
	wantGet(t, s, raw)
	if st, err := recode(t.Context(), s, [][2]int{{2, 0}}, func(int) int { return -1 }); err != nil || st.Records != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if got := numberOf(t, s, h); got.Number != 0 {
		t.Error(got)
	}
	wantGet(t, s, raw)
}

// For every n: the machine crashes after operation n of saves, compactions and sweeps. What has a name can be read, and all
// goes on.
func TestCompactCrash(t *testing.T) {
	small := Options{SegmentSize: 4 << 10, ReplayBatch: 4}
	ctx := context.Background()
	run := func(s *Store) (named map[[2]int]bool) {
		named = map[[2]int]bool{}
		save := func(against bool, ids ...[2]int) {
			b := s.Begin()
			defer b.Release()
			for _, id := range ids {
				raw := version(id[0], id[1])
				var prev cas.Hash
				if against {
					prev = cas.Sum(version(id[0], id[1]-1))
				}
				if _, _, err := b.PutAgainst(cas.Chunk, cas.Sum(raw), raw, fp32, prev); err != nil {
					return
				}
			}
			if b.Commit() == nil {
				for _, id := range ids {
					named[id] = true
				}
			}
		}
		save(false, [2]int{0, 0}, [2]int{0, 1}, [2]int{0, 2}, [2]int{1, 0}, [2]int{1, 1})
		save(true, [2]int{1, 2}, [2]int{1, 3})
		_, _ = recode(ctx, s, append(line(0, 3), line(1, 4)...), stepBefore)
		delete(named, [2]int{0, 0})
		delete(named, [2]int{1, 2})
		save(true, [2]int{0, 3})
		_, _ = s.Sweep(ctx, SweepOptions{MaxUnused: 0.4}, keeping(named))
		save(false, [2]int{1, 4}, [2]int{1, 5})
		_, _ = recode(ctx, s, append(line(0, 4), line(1, 6)...), stepBefore)
		return named
	}
	whole := map[[2]int]bool{{0, 1}: true, {0, 2}: true, {0, 3}: true, {1, 0}: true, {1, 1}: true, {1, 3}: true, {1, 4}: true, {1, 5}: true}
	for n := 0; ; n++ {
		m, x := newMem(), newIndex()
		m.Inject(disk.CrashAfter(n))
		x.fail = func() error {
			if m.Ops() > n {
				return disk.ErrCrashed
			}
			return nil
		}
		var named map[[2]int]bool
		s, err := Open(m, dir, storeID, x, small)
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
				s, err := Open(d, dir, storeID, y, small)
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
				if _, err := s.Check(t.Context(), CheckOptions{ReadData: true, Found: func(f Finding) {
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
				if s, err = Open(d, dir, storeID, newIndex(), small); err != nil {
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
