package store

import (
	"errors"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// storedIn is the record of h in s as it is stored.
func storedIn(t testing.TB, s *Store, h cas.Hash) (rec segment.Record, payload []byte) {
	t.Helper()
	loc, err := s.locateNow(false, h)
	if err != nil || loc.Segment == 0 {
		t.Fatal(loc, err)
	}
	err = s.With(h, loc, func(f *segment.Reader, at cas.Location) (err error) {
		payload, err = f.ReadRecord(at, h, &rec, make([]byte, segment.RecordHeaderSize+int(at.Stored)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec, slices.Clone(payload)
}

// copyTo puts a version as s has it stored into a batch of another store.
func copyTo(t testing.TB, b *Batch, s *Store, line, v int) (fresh bool) {
	t.Helper()
	raw := version(line, v)
	rec, payload := storedIn(t, s, cas.Sum(raw))
	fresh, err := b.PutStored(rec, payload, raw)
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

// all puts versions of all lines, each as what it can be.
func all(t testing.TB, s *Store) (ids [][2]int) {
	t.Helper()
	b := s.Begin()
	for v := range 6 {
		for _, l := range []int{0, 1} {
			evolve(t, b, l, v)
			ids = append(ids, [2]int{l, v})
		}
		if v > 0 {
			lowRank(t, b, v)
			ids = append(ids, [2]int{columned, v}, [2]int{adapted, v})
		}
		if _, id, err := putVersion(b, halves, v, v-1); id != codec.Rounded || err != nil {
			t.Fatal(id, err)
		}
		ids = append(ids, [2]int{halves, v})
	}
	commit(t, b)
	return ids
}

// A record is put as another store has it, whatever it is encoded against, and is as good as one of this
// store's own.
func TestPutStored(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{SegmentSize: 8 << 10})
	ids := all(t, s)
	to := open(t, newMem(), newIndex(), Options{SegmentSize: 8 << 10})
	b := to.Begin()
	for _, id := range ids {
		copyTo(t, b, s, id[0], id[1])
	}
	for _, id := range ids {
		if copyTo(t, b, s, id[0], id[1]) {
			t.Errorf("%v twice", id)
		}
	}
	commit(t, b)
	for _, id := range ids {
		want, wantPayload := storedIn(t, s, cas.Sum(version(id[0], id[1])))
		got, payload := storedIn(t, to, want.Hash)
		if want.Off = got.Off; got != want || !slices.Equal(payload, wantPayload) {
			t.Errorf("%v: %+v, want %+v", id, got, want)
		}
		wantGet(t, to, version(id[0], id[1]))
	}
	last := map[[2]int]bool{{0, 5}: true, {halves, 5}: true, {adapted, 5}: true}
	sweepNow(t, to, SweepOptions{}, keeping(last))
	for id := range last {
		wantGet(t, to, version(id[0], id[1]))
	}
}

// What cannot be as it was is stored alone: its base has too high a number here, or is not there.
func TestPutStoredOtherwise(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	for v := range 3 {
		evolve(t, b, 0, v) // 1 and 2 are written against 0
	}
	commit(t, b)
	to := open(t, newMem(), newIndex(), Options{})
	b = to.Begin()
	for _, v := range [][2]int{{4, 5}, {3, 4}, {2, 3}, {0, 2}} { // 0 is written against others
		if _, _, err := putVersion(b, 0, v[0], v[1]); err != nil {
			t.Fatal(err)
		}
	}
	if !copyTo(t, b, s, 0, 1) {
		t.Error("it was not there")
	}
	commit(t, b)
	base, n := numberOf(t, to, cas.Sum(version(0, 0))), numberOf(t, to, cas.Sum(version(0, 1)))
	if base.Number < 2 || n.Number != 0 {
		t.Error(base, n)
	}
	wantGet(t, to, version(0, 1))
	empty := open(t, newMem(), newIndex(), Options{})
	b = empty.Begin()
	if !copyTo(t, b, s, 0, 1) {
		t.Error("it was not there")
	}
	commit(t, b)
	if n := numberOf(t, empty, cas.Sum(version(0, 1))); n.Number != 0 {
		t.Error(n)
	}
	wantGet(t, empty, version(0, 1))
}

// What is put depends on bases that another batch is putting.
func TestPutStoredPending(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	evolve(t, b, 0, 0)
	evolve(t, b, 0, 1)
	commit(t, b)
	to := open(t, newMem(), newIndex(), Options{})
	other, b := to.Begin(), to.Begin()
	defer other.Release()
	copyTo(t, other, s, 0, 0)
	copyTo(t, b, s, 0, 1)
	if r := to.appender.pending[cas.Sum(version(0, 1))]; r == nil || len(r.on) != 1 ||
		r.on[0].hash != cas.Sum(version(0, 0)) {
		t.Errorf("%+v", r)
	}
	other.TakeBack()
	commit(t, b)
	wantGet(t, to, version(0, 1))
}

// A payload that names no base is refused.
func TestPutStoredNothing(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	defer b.Release()
	_, err := b.PutStored(segment.Record{Kind: cas.Chunk, Codec: codec.Delta}, []byte("short"), nil)
	if !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
}

// What is held stays as it is stored, until it is let go.
func TestHold(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{SegmentSize: 4 << 10})
	ids := line(1, 5)
	alone(t, s, ids...)
	b := s.Begin()
	for _, id := range ids[1:4] {
		b.Hold([]cas.Hash{cas.Sum(version(id[0], id[1]))})
	}
	b.Hold([]cas.Hash{cas.Sum(version(1, 2))})
	st, err := recode(t.Context(), s, ids, stepBefore, nil)
	if err != nil || st.Records != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	b.Release()
	if st, err = recode(t.Context(), s, ids, stepBefore, nil); err != nil || st.Records == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if len(s.pins.steady) > 0 {
		t.Error("something is held for ever")
	}
}

// What would be read with more memory than a record with a base may take is stored alone: its base, or the
// record, is too long.
func TestPutStoredTooLong(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	evolve(t, b, 0, 0)
	evolve(t, b, 0, 1)
	commit(t, b)
	rec, payload := storedIn(t, s, cas.Sum(version(0, 1)))
	base, err := segment.ParseBase(rec.Codec, payload)
	if err != nil || base.Number == 0 {
		t.Fatal(base, err)
	}
	long := make([]byte, segment.MaxBased+1)
	onLong := base
	onLong.Hash = cas.Sum(long)
	of := slices.Clone(payload)
	onLong.Put(of)
	tooLong := slices.Concat(version(0, 1), long)
	for what, c := range map[string]struct {
		rec     segment.Record
		payload []byte
		raw     []byte
	}{
		"base": {rec, of, version(0, 1)},
		"record": {segment.Record{Kind: rec.Kind, Codec: rec.Codec, Hash: cas.Sum(tooLong)}, payload,
			tooLong},
	} {
		to := open(t, newMem(), newIndex(), Options{})
		b := to.Begin()
		for _, p := range [][]byte{long, version(0, 0)} {
			if _, err := b.Put(cas.Chunk, cas.Sum(p), p, codec.Hint{}); err != nil {
				t.Fatal(err)
			}
		}
		c.rec.Raw = uint32(len(c.raw))
		c.rec.XXH3 = cas.SumXXH3(c.raw)
		if fresh, err := b.PutStored(c.rec, c.payload, c.raw); !fresh || err != nil {
			t.Fatal(what, fresh, err)
		}
		commit(t, b)
		if n := numberOf(t, to, cas.Sum(c.raw)); n.Number != 0 {
			t.Errorf("%s: %+v", what, n)
		}
		wantGet(t, to, c.raw)
	}
}
