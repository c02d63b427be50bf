package store

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

const (
	// adapted is the line of tensors into which an adapter was merged: those of line 0 and a product of two
	// factors.
	adapted = 4
	// columned is the line of what the chunks of adapted have their columns' factors from, as tensors of
	// their own.
	columned = 5

	adaptedRows, adaptedCols, adaptedRank = 8, 32, 2
)

// numbers24 are n numbers of 24 bits that change a little with v.
func numbers24(n, size, v int) (p []byte) {
	r, change := rand.New(rand.NewPCG(uint64(n), 5)), rand.New(rand.NewPCG(uint64(n), uint64(v)))
	for range n {
		p = binary.LittleEndian.AppendUint32(p, uint32(r.IntN(2*size)-size+change.IntN(8)+v)&0xffffff)
	}
	return p
}

// columnsOf are the columns of adapted's version v: every third has the same.
func columnsOf(v int) []byte { return numbers24(adaptedCols*adaptedRank, 1<<15, v%3) }

func adaptedVersion(v int) []byte {
	base := version(0, v)
	u := numbers24(adaptedRows*adaptedRank, 1<<12, 50+v)
	e := int8(-30)
	stored := append([]byte{3, adaptedRank, byte(e), adaptedCols, 0, 0, 0, 0, 0, 0, 0}, byte(len(u)), 0, 0, 0,
		codec.Raw)
	stored, ok := codec.EncodeDelta(append(stored, u...), base, base, fp32, len(base))
	if !ok {
		panic("no difference is none")
	}
	p, err := codec.DecodeLowRank(nil, stored, base, columnsOf(v), len(base))
	if err != nil {
		panic(err)
	}
	return p
}

// lowRank puts a version of adapted, and fails unless it is stored with its columns.
func lowRank(t testing.TB, b *Batch, v int) {
	t.Helper()
	if fresh, id, err := putVersion(b, adapted, v, v-1); !fresh || id != codec.LowRank || err != nil {
		t.Fatalf("version %d: fresh %v, codec %d, %v", v, fresh, id, err)
	}
}

// What is of low rank is put with its columns, which stay as long as it does, and as long as anything does
// that shares them.
func TestLowRank(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 2 << 10})
	b := s.Begin()
	for v := range 6 {
		evolve(t, b, 0, v)
	}
	commit(t, b)
	for v := range 6 {
		b = s.Begin()
		lowRank(t, b, v)
		commit(t, b)
	}
	check := func(s *Store, versions ...int) {
		t.Helper()
		for _, v := range versions {
			h := cas.Sum(version(adapted, v))
			got, cols := numberOf(t, s, h), cas.Sum(columnsOf(v))
			if got.Second != cols || got.Number != uint8(v%8)+1 || numberOf(t, s, cols).Number != 0 {
				t.Errorf("version %d: %+v", v, got)
			}
			loc, _ := s.locateNow(false, h)
			links, err := s.Bases(h, loc)
			if err != nil || links[len(links)-1].Hash != cols {
				t.Errorf("version %d: %v, %v", v, links, err)
			}
			wantGet(t, s, version(adapted, v))
		}
	}
	check(s, 0, 1, 2, 3, 4, 5)
	if len(s.pins.count)+len(s.pins.needs) > 0 {
		t.Errorf("still pinned: %v %v", s.pins.count, s.pins.needs)
	}
	if len(x.m) != 15 {
		t.Errorf("%d records", len(x.m))
	}
	// Those of 0 and 3 go with 3; what 4 is stored against stays.
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{adapted, 3}: true, {adapted, 4}: true}))
	check(s, 3, 4)
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{adapted, 4}: true}))
	check(s, 4)
	if has, _ := s.Has([]cas.Hash{cas.Sum(columnsOf(3)), cas.Sum(columnsOf(4))}); has[0] || !has[1] {
		t.Error(has)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	check(s, 4)
	b = s.Begin() // of which the columns went
	if fresh, id, err := putVersion(b, adapted, 3, 2); !fresh || id == codec.LowRank || err != nil {
		t.Error(fresh, id, err) // against what is gone
	}
	commit(t, b)
	wantGet(t, s, version(adapted, 3))
	sweepNow(t, s, SweepOptions{}, marking())
	if st := s.Stats(); st.Chunks.Records != 0 {
		t.Errorf("%+v", st.Chunks)
	}
}

// A batch pins the columns of what it puts, and of what was held already; one that nothing needed may have
// lost them, and is stored afresh then.
func TestLowRankPins(t *testing.T) {
	for _, twice := range []bool{false, true} {
		x := newIndex()
		s := open(t, newMem(), x, Options{SegmentSize: 1 << 10})
		b := s.Begin()
		evolve(t, b, 0, 0)
		lowRank(t, b, 0)
		if twice {
			commit(t, b)
			b = s.Begin()
			if fresh, _, err := putVersion(b, adapted, 0, -1); fresh || err != nil {
				t.Error("not held", err)
			}
		}
		for range 2 {
			sweepNow(t, s, SweepOptions{}, marking())
			wantGet(t, s, version(adapted, 0))
		}
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{adapted, 0}: true}))
		b.Release()
		wantGet(t, s, version(adapted, 0))
		// The columns go alone.
		x.mu.Lock()
		delete(x.m, cas.Sum(columnsOf(0)))
		x.mu.Unlock()
		b = s.Begin()
		if fresh, id, err := putVersion(b, adapted, 0, -1); !fresh || codec.NeedsBase(id) || err != nil {
			t.Error(fresh, id, err)
		}
		commit(t, b)
		wantGet(t, s, version(adapted, 0))
		sweepNow(t, s, SweepOptions{}, marking())
		if len(x.m) > 0 {
			t.Errorf("%d left", len(x.m))
		}
	}
}

// Columns that are some file's chunk too are shared, also as a delta of a lower number; of a higher one they
// are of no use, and stay what they are.
func TestLowRankColumnsOfAFile(t *testing.T) {
	for _, c := range []struct {
		v    int // whose number is one more
		want bool
	}{{0, false}, {1, true}} {
		s := open(t, newMem(), newIndex(), Options{})
		b := s.Begin()
		evolve(t, b, 0, 0)
		evolve(t, b, 0, 1)
		if _, err := b.Put(cas.Chunk, cas.Sum(columnsOf(2)), columnsOf(2), fp32); err != nil {
			t.Fatal(err)
		}
		raw := columnsOf(c.v)
		if _, delta, err := b.PutAgainst(cas.Chunk, cas.Sum(raw), raw, fp32, cas.Sum(columnsOf(2))); !delta ||
			err != nil {
			t.Fatal(delta, err)
		}
		_, id, err := putVersion(b, adapted, c.v, -1)
		if (id == codec.LowRank) != c.want || err != nil {
			t.Errorf("version %d: codec %d, %v", c.v, id, err)
		}
		commit(t, b)
		if n := numberOf(t, s, cas.Sum(raw)).Number; n != 1 {
			t.Errorf("the columns have number %d", n)
		}
		wantGet(t, s, version(adapted, c.v))
		// A compaction gives them no number that is too high, and may give them a lower one.
		alone(t, s, [2]int{columned, 1})
		for range 2 {
			if _, err := recode(t.Context(), s, [][2]int{{columned, c.v}, {adapted, c.v}, {columned, 1}},
				stepBefore, nil); err != nil {
				t.Fatal(err)
			}
		}
		sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{adapted, c.v}: true}))
		wantGet(t, s, version(adapted, c.v))
	}
}

// What is a file's chunk too gets no number by a compaction that what has its columns there does not allow,
// now or since it began.
func TestCompactKeepsColumns(t *testing.T) {
	for _, number := range []uint8{1, 2} {
		s := open(t, newMem(), newIndex(), Options{SegmentSize: 4 << 10})
		v := int(number) - 1 // of line 0 its number too
		b := s.Begin()
		for i := range v + 1 {
			evolve(t, b, 0, i)
		}
		lowRank(t, b, v)
		commit(t, b)
		if n := numberOf(t, s, cas.Sum(version(adapted, v))).Number; n != number {
			t.Fatal(n)
		}
		other := [2]int{columned, v + 1}
		alone(t, s, other)
		if _, err := recode(t.Context(), s, [][2]int{{columned, v}},
			func(int) int { return v + 1 }, nil); err != nil {
			t.Fatal(err)
		}
		if n := numberOf(t, s, cas.Sum(columnsOf(v))).Number; n != number-1 {
			t.Errorf("of number %d, with columns of number %d", number, n)
		}
		wantGet(t, s, version(adapted, v))
	}
	s := open(t, newMem(), newIndex(), Options{})
	alone(t, s, [2]int{columned, 0}, [2]int{columned, 1}, [2]int{0, 1})
	c, err := s.Compact(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	b := s.Begin()
	lowRank(t, b, 1)
	commit(t, b)
	b = s.Begin()
	if _, err := c.Recode(b, cas.Sum(columnsOf(1)), fp32, cas.Related{Prev: cas.Sum(columnsOf(0))},
		nil); err != nil {
		t.Error(err)
	}
	commit(t, b)
	if n := numberOf(t, s, cas.Sum(columnsOf(1))).Number; n != 0 {
		t.Error(n)
	}
	wantGet(t, s, version(adapted, 1))
	wantGet(t, s, columnsOf(0))
}

// Of a chunk that was stored twice, the first time with columns that a sweep took that was cut short, a new
// index names the second.
func TestLowRankTwins(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 1}) // a record each
	raw, cols := version(adapted, 1), columnsOf(1)
	swapped := slices.Clone(cols) // the same, in another order
	for i := 0; i < len(cols); i += 128 {
		copy(swapped[i:], cols[i+64:i+128])
		copy(swapped[i+64:], cols[i:i+64])
	}
	save := func(prev int, cols []byte, want uint8) (fresh bool) {
		t.Helper()
		b := s.Begin()
		rel := cas.Related{Prev: cas.Sum(version(0, prev)),
			Columns: &cas.Columns{Hash: cas.Sum(cols), Raw: cols, Cols: adaptedCols}}
		fresh, _, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, fp32, rel)
		if err != nil {
			t.Fatal(err)
		}
		commit(t, b)
		if got := numberOf(t, s, cas.Sum(raw)); got.Number != want || got.Second != cas.Sum(cols) {
			t.Fatalf("%+v, want number %d", got, want)
		}
		return fresh
	}
	alone(t, s, [2]int{0, 1})
	save(1, cols, 1)
	x.mu.Lock()
	delete(x.m, cas.Sum(raw))
	x.mu.Unlock()
	alone(t, s, [2]int{0, 0})
	b := s.Begin()
	if _, _, err := putVersion(b, 0, 2, 0); err != nil {
		t.Fatal(err)
	}
	commit(t, b)
	save(2, swapped, 2)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Sweep(ctx, SweepOptions{Progress: func(st SweepStats) {
		if st.Looked == 2 {
			cancel()
		}
	}}, keeping(map[[2]int]bool{{0, 0}: true, {0, 1}: true, {0, 2}: true}))
	wantErr(t, err, context.Canceled)
	if has, _ := s.Has([]cas.Hash{cas.Sum(cols), cas.Sum(swapped), cas.Sum(raw)}); has[0] || !has[1] ||
		!has[2] {
		t.Fatal(has)
	}
	if save(2, swapped, 2) {
		t.Error("not held")
	}
	s.Close()
	s = open(t, m, newIndex(), Options{})
	wantGet(t, s, raw)
}

// Many put chunks of the same columns at once, in batches of which some are released without a commit: none
// is stored without them.
func TestLowRankTogether(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{SegmentSize: 4 << 10})
	b := s.Begin()
	alone(t, s, line(0, 12)...)
	done := make(chan int)
	for v := range 12 {
		go func() {
			c := s.Begin()
			_, id, err := putVersion(c, adapted, v, -1)
			if id != codec.LowRank || err != nil {
				t.Errorf("version %d: codec %d, %v", v, id, err)
			}
			if v%4 == 0 {
				c.Release()
			} else if err := c.Commit(); err != nil {
				t.Error(err)
			}
			done <- v
			c.Release()
		}()
	}
	keep := map[[2]int]bool{}
	for range 12 {
		if v := <-done; v%4 != 0 {
			keep[[2]int{adapted, v}] = true
		}
	}
	sweepNow(t, s, SweepOptions{}, keeping(keep))
	for id := range keep {
		wantGet(t, s, version(id[0], id[1]))
	}
	b.Release()
}

// What a new version is stored against, and what it all leads back to.
func TestAgainst(t *testing.T) {
	x := newIndex()
	s := open(t, newMem(), x, Options{})
	b := s.Begin()
	for v := range 8 {
		evolve(t, b, 0, v)
		evolve(t, b, 1, v)
	}
	evolve(t, b, halves, 2)
	lowRank(t, b, 4)
	commit(t, b)
	for v := range 8 {
		base, ok := s.Against(cas.Related{Prev: cas.Sum(version(0, v))})
		if next := segment.BaseNumber(uint8(v) + 1); ok != (v < 7) ||
			ok && base != cas.Sum(version(0, int(next))) {
			t.Errorf("version %d: %s, %v", v, base.Short(), ok)
		}
		if key, ok := s.Key(cas.Sum(version(0, v))); !ok || key != cas.Sum(version(0, 0)) {
			t.Errorf("version %d: %s, %v", v, key.Short(), ok)
		}
	}
	if key, ok := s.Key(cas.Sum(version(adapted, 4))); !ok || key != cas.Sum(version(0, 0)) {
		t.Error(key.Short(), ok)
	}
	delete(x.m, cas.Sum(version(1, 0)))
	for _, h := range []cas.Hash{cas.Sum(version(halves, 2)), cas.Sum(version(0, 99)), cas.Sum(version(1, 4)),
		{}} {
		if _, ok := s.Against(cas.Related{Prev: h}); ok && h != cas.Sum(version(1, 4)) {
			t.Errorf("%s has a version after it", h.Short())
		}
		if key, ok := s.Key(h); ok || !key.IsZero() {
			t.Errorf("%s leads back to %s", h.Short(), key.Short())
		}
	}
}
