package store

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// recode stores versions of a line again, each against the one before it.
func recode(ctx context.Context, s *Store, ids [][2]int, prev func(v int) int, wanted func(cas.Hash) bool) (
	CompactStats, error) {
	return recodeAs(ctx, s, ids, 0, prev, wanted)
}

// recodeAs is recode as putAs puts.
func recodeAs(ctx context.Context, s *Store, ids [][2]int, as int, prev func(v int) int,
	wanted func(cas.Hash) bool) (CompactStats, error) {
	c, err := s.Compact(ctx, false)
	if err != nil {
		return CompactStats{}, err
	}
	defer c.End()
	b := s.Begin()
	defer b.Release()
	apart := func(was *segment.Base) bool {
		return wanted != nil && !slices.ContainsFunc(was.Hashes(), wanted)
	}
	for _, id := range ids {
		hint, rel := relatedTo(id[0], id[1], prev(id[1]))
		rel.Alike, rel.Leads = as > 1, as > 2
		if _, err := c.Recode(b, cas.Sum(version(id[0], id[1])), hint, rel, apart); err != nil {
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
	if ok, err := dry.Recode(b, cas.Sum(version(1, 1)), fp32, cas.Related{Prev: cas.Sum(version(1, 0))},
		nil); !ok || err != nil {
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
	st, err := recode(t.Context(), s, ids, stepBefore, nil)
	if err != nil || st.Records != 9 || st.Looked != 11 {
		t.Fatalf("%+v, %v", st, err)
	}
	after := s.Stats()
	if got := before.Chunks.Stored - after.Chunks.Stored; after.Chunks.Records != before.Chunks.Records ||
		got < st.Before-st.After-int64(9*8) || st.Freed-st.Copied <= 0 {
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
	if st, err := recode(t.Context(), s, ids, stepBefore, nil); err != nil || st.Records != 0 {
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

// from puts a version against another one.
func from(t testing.TB, b *Batch, line, v, prev int) {
	t.Helper()
	if _, id, err := putVersion(b, line, v, prev); !codec.NeedsBase(id) || err != nil {
		t.Fatal(id, err)
	}
}

// A record against which others are written, and which is to be a delta of one against which none are, has
// that one become a delta of it: now, and when there is no index any more.
func TestCompactTheOtherWayRound(t *testing.T) {
	m := newMem()
	s := open(t, m, newIndex(), Options{SegmentSize: 4 << 10})
	alone(t, s, [2]int{1, 0}, [2]int{1, 1})
	b := s.Begin()
	evolve(t, b, 1, 2)
	commit(t, b)
	for want := int64(1); want >= 0; want-- {
		for _, dry := range []bool{true, false} {
			c, err := s.Compact(t.Context(), dry)
			if err != nil {
				t.Fatal(err)
			}
			b := s.Begin()
			hint, rel := relatedTo(1, 1, 0)
			saved, err := c.Recode(b, cas.Sum(version(1, 1)), hint, rel, nil)
			if saved != (want > 0) || err != nil {
				t.Error(saved, err)
			}
			commit(t, b)
			if err := c.Retire(t.Context()); err != nil {
				t.Error(err)
			}
			c.End()
			if st := c.Stats(); st.Records != want || want > 0 && st.After > st.Before*9/10 {
				t.Errorf("dry %v: %+v", dry, st)
			}
		}
	}
	check := func(s *Store) {
		t.Helper()
		for v, want := range []uint8{1, 0, 1} {
			if got := numberOf(t, s, cas.Sum(version(1, v))); got.Number != want {
				t.Errorf("version %d has number %d", v, got.Number)
			}
			wantGet(t, s, version(1, v))
		}
	}
	check(s)
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{1, 0}: true}))
	wantGet(t, s, version(1, 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	wantGet(t, s, version(1, 0))
}

// A record against which others are written gets no number that these do not allow, now or when they are
// stored while the compaction goes on.
func TestCompactKeepsNumbers(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{SegmentSize: 4 << 10})
	alone(t, s, [2]int{1, 0}, [2]int{1, 1})
	b := s.Begin()
	evolve(t, b, 1, 2) // number 1, against version 1
	from(t, b, 1, 3, 0)
	commit(t, b)
	if st, err := recode(t.Context(), s, [][2]int{{1, 1}}, stepBefore, nil); err != nil || st.Records != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	wantGet(t, s, version(1, 2))

	alone(t, s, [2]int{2, 0}, [2]int{2, 1})
	b = s.Begin()
	from(t, b, 2, 4, 0)
	commit(t, b)
	c, err := s.Compact(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	b = s.Begin()
	other := s.Begin()
	if _, delta := evolve(t, other, 2, 2); !delta {
		t.Fatal("no delta")
	}
	commit(t, other)
	if ok, err := c.Recode(b, cas.Sum(version(2, 1)), fp32, cas.Related{Prev: cas.Sum(version(2, 0))},
		nil); ok || err != nil {
		t.Error(ok, err)
	}
	// Nothing is written against what is about to rise.
	r := &record{hash: cas.Sum(version(2, 0)), kind: cas.Chunk, done: make(chan struct{}), rising: true}
	s.appender.mu.Lock()
	s.appender.pending[r.hash] = r
	s.appender.mu.Unlock()
	other = s.Begin()
	raw := version(2, 3)
	if _, delta, err := other.PutAgainst(cas.Chunk, cas.Sum(raw), raw, fp32, r.hash); delta || err != nil {
		t.Error(delta, err)
	}
	s.appender.mu.Lock()
	s.appender.settleLocked(r, indexed, nil)
	s.appender.mu.Unlock()
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
	r, err := b.claim(cas.Chunk, h, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.appender.append(r, &segment.Record{Kind: cas.Chunk, Codec: id, Raw: uint32(len(raw)),
		Hash: h, XXH3: cas.SumXXH3(raw)}, buf); err != nil {
		t.Fatal(err)
	}
	commit(t, b)
	wantGet(t, s, raw)
	if st, err := recode(t.Context(), s, [][2]int{{2, 0}},
		func(int) int { return -1 }, nil); err != nil || st.Records != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if got := numberOf(t, s, h); got.Number != 0 {
		t.Error(got)
	}
	wantGet(t, s, raw)
}

// For every n: the machine crashes after operation n of saves, compactions and sweeps. What has a name can be
// read, and all goes on.
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
				hint, rel := relatedTo(id[0], id[1], id[1]-1)
				if !against {
					rel = cas.Related{}
				}
				if _, _, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, hint, rel); err != nil {
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
		save(true, [2]int{1, 2}, [2]int{1, 3}, [2]int{halves, 0})
		save(false, [2]int{halves, 1}, [2]int{halves, 2})
		_, _ = recode(ctx, s, slices.Concat(line(0, 3), line(1, 4), line(halves, 3)), stepBefore, nil)
		delete(named, [2]int{0, 0})
		delete(named, [2]int{1, 2})
		delete(named, [2]int{halves, 1})
		save(true, [2]int{0, 3})
		_, _ = s.Sweep(ctx, SweepOptions{MaxUnused: 0.4}, keeping(named))
		save(false, [2]int{1, 4}, [2]int{1, 5})
		_, _ = recode(ctx, s, slices.Concat(line(0, 4), line(1, 6), line(halves, 3)), stepBefore,
			func(h cas.Hash) bool { return h == cas.Sum(version(0, 2)) })
		return named
	}
	whole := map[[2]int]bool{{0, 1}: true, {0, 2}: true, {0, 3}: true, {1, 0}: true, {1, 1}: true,
		{1, 3}: true, {1, 4}: true, {1, 5}: true, {halves, 0}: true, {halves, 2}: true}
	crashAnywhere(t, small, 1, run, whole)
}

// What is the rounding of others takes next to nothing, also when it was there first; when those are not
// wanted for themselves it is stored without them.
func TestRounded(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 8 << 10})
	alone(t, s, [2]int{0, 0}, [2]int{1, 0})
	b := s.Begin()
	for v := 1; v < 8; v++ {
		evolve(t, b, 0, v)
		evolve(t, b, 1, v)
	}
	if fresh, id, err := putVersion(b, halves, 7, 6); !fresh || id != codec.Rounded || err != nil {
		t.Fatal(fresh, id, err)
	}
	commit(t, b)
	h := cas.Sum(version(halves, 7))
	check := func(s *Store) {
		t.Helper()
		if b := numberOf(t, s, h); b.Number != segment.RoundedNumber || b.Hash != cas.Sum(version(0, 7)) ||
			b.Second != cas.Sum(version(1, 7)) {
			t.Error(b)
		}
		wantGet(t, s, version(halves, 7))
	}
	check(s)
	if links, err := s.Bases(h, x.m[h]); err != nil || len(links) != 8 { // of each half 7, 6, 4 and 0
		t.Error(links, err)
	}
	if x.m[h].Stored != 66+1 {
		t.Error(x.m[h])
	}
	// It is a version of nothing.
	b = s.Begin()
	raw := version(halves, 8)
	if _, delta, err := b.PutAgainst(cas.Chunk, cas.Sum(raw), raw, bf16, h); delta || err != nil {
		t.Error(delta, err)
	}
	// One that was there before its masters, one of a single master, one that is another's.
	if _, err := b.Put(cas.Chunk, cas.Sum(version(halves, 3)), version(halves, 3), bf16); err != nil {
		t.Fatal(err)
	}
	one, _ := codec.DecodeAgainst(nil, codec.Rounded, []byte{1}, version(0, 2), 512)
	if _, id, err := b.PutRelated(cas.Chunk, cas.Sum(one), one, bf16,
		cas.Related{Masters: [2]cas.Hash{cas.Sum(version(0, 2))}}); id != codec.Rounded || err != nil {
		t.Error(id, err)
	}
	other, _ := codec.DecodeAgainst(nil, codec.Rounded, []byte{1}, version(0, 4), 512)
	if _, id, err := b.PutRelated(cas.Chunk, cas.Sum(other), other, bf16,
		cas.Related{Masters: [2]cas.Hash{cas.Sum(version(0, 5))}}); id == codec.Rounded || err != nil {
		t.Error(id, err)
	}
	// One that has a NaN as PyTorch makes it.
	nan := version(0, 9)
	binary.LittleEndian.PutUint32(nan[40:], 0x7fc00000)
	if _, err := b.Put(cas.Chunk, cas.Sum(nan), nan, fp32); err != nil {
		t.Fatal(err)
	}
	torch, _ := codec.DecodeAgainst(nil, codec.Rounded, []byte{1, 0xff, 0xff}, nan, len(nan)/2)
	if _, id, err := b.PutRelated(cas.Chunk, cas.Sum(torch), torch, bf16,
		cas.Related{Masters: [2]cas.Hash{cas.Sum(nan)}}); id != codec.Rounded || err != nil {
		t.Error(id, err)
	}
	commit(t, b)
	wantGet(t, s, torch)
	wantGet(t, s, one)
	wantGet(t, s, other)
	if st, err := recode(t.Context(), s, [][2]int{{halves, 3}, {halves, 7}}, stepBefore,
		func(cas.Hash) bool { return true }); err != nil || st.Records != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if b := numberOf(t, s, cas.Sum(version(halves, 3))); b.Number != segment.RoundedNumber {
		t.Error(b)
	}
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{halves, 3}: true, {halves, 7}: true}))
	check(s)
	wantGet(t, s, version(halves, 3))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	check(s)
	if st, err := recode(t.Context(), s, [][2]int{{halves, 3}, {halves, 7}}, stepBefore,
		func(cas.Hash) bool { return false }); err != nil || st.Records != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{halves, 3}: true, {halves, 7}: true}))
	wantGet(t, s, version(halves, 3))
	wantGet(t, s, version(halves, 7))
	if st := s.Stats(); st.Chunks.Records != 2 {
		t.Errorf("%+v", st.Chunks)
	}
}
