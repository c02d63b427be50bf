package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/disk"
	"ckptfs/cas/salvage"
	"ckptfs/cas/segment"
)

// A base that an fsync lost takes with it what was encoded against it, whichever batch put that, and wherever
// it lies.
func TestDeltaFailsWithItsBase(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 1 << 10}) // a record each
	a := s.Begin()
	evolve(t, a, 1, 0)
	if err := s.appender.tails.Retire(); err != nil { // the next goes elsewhere, without a flush
		t.Fatal(err)
	}
	b, c := s.Begin(), s.Begin()
	if _, delta := evolve(t, b, 1, 1); !delta {
		t.Fatal("no delta")
	}
	evolve(t, c, 1, 1)
	first := segment.Path(dir, 1)
	m.Inject(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpSync && op.Name == first {
			return &disk.Fault{Err: errors.New("lost")}
		}
		return nil
	})
	if err := c.Commit(); err == nil {
		t.Error("committed without its base")
	}
	m.Inject(nil)
	if err := b.Commit(); err == nil {
		t.Error("committed without its base")
	}
	if err := a.Commit(); err == nil {
		t.Error("committed and lost")
	}
	d := s.Begin()
	evolve(t, d, 1, 1)
	commit(t, d)
	wantGet(t, s, version(1, 1))
	s.Close()
	s = open(t, m, newIndex(), Options{}) // in which the first one is found again
	d = s.Begin()
	evolve(t, d, 1, 1)
	commit(t, d)
	wantGet(t, s, version(1, 1))
}

// forge writes records as they come into a new segment.
func forge(t testing.TB, m *disk.Mem, n uint32, id byte, recs map[cas.Hash][]byte, raw int) {
	t.Helper()
	w, err := segment.Create(m, dir, segment.ID{Store: storeID, Number: n}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for h, payload := range recs {
		buf := append(make([]byte, segment.RecordHeaderSize), payload...)
		slot, err := w.Reserve(len(payload))
		if err != nil {
			t.Fatal(err)
		}
		rec := &segment.Record{Kind: cas.Chunk, Codec: id, Raw: uint32(raw), Hash: h}
		err = w.Write(slot, rec, buf)
		w.Finish(slot, rec, err)
	}
	if _, err := w.Seal(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	w.Close()
}

// Circles, chains that are too long, numbers out of order: nothing of that is followed, and all of it may be
// swept.
func TestDeltaHostile(t *testing.T) {
	name := func(i int) cas.Hash { return cas.Sum(fmt.Append(nil, i)) }
	payload := func(base, number int) []byte {
		p := make([]byte, 100)
		segment.Base{Hash: name(base), Number: uint8(number)}.Put(p)
		return append(p[:segment.BaseSize], 1, 4, 0)
	}
	low := func(base, number, columns int) []byte {
		p := make([]byte, 100)
		segment.Base{Hash: name(base), Number: uint8(number), Second: name(columns)}.Put(p)
		return append(p[:segment.LowRankSize], 3, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 1, 4, 1)
	}
	for what, recs := range map[string]map[cas.Hash][]byte{
		"itself":      {name(1): payload(1, 3)},
		"circle":      {name(1): payload(2, 3), name(2): payload(1, 3)},
		"upwards":     {name(1): payload(2, 2), name(2): payload(3, 4), name(3): payload(4, 5)},
		"lost":        {name(1): payload(9, 1)},
		"number 0":    {name(1): payload(2, 0)},
		"number 8":    {name(1): payload(2, 8)},
		"number 255":  {name(1): payload(2, 255)},
		"short":       {name(1): payload(2, 1)[:20]},
		"only a base": {name(1): payload(2, 1)[:33], name(2): payload(3, 1)},
		"long chain": {name(1): payload(2, 7), name(2): payload(3, 6), name(3): payload(4, 5),
			name(4): payload(5, 4), name(5): payload(6, 3), name(6): payload(7, 2), name(7): payload(8, 1)},
		"nothing left": {name(1): payload(1, 1)},
		"rounded":      {name(1): append(payload(2, 8)[:segment.BaseSize], 1, 1)},
		"of itself":    {name(1): append(payload(1, 8)[:segment.BaseSize], 1, 1)},
		"no second":    {name(1): append(payload(2, 8)[:segment.BaseSize], 2, 1)},
		"zero second": {name(1): append(payload(2, 8)[:segment.BaseSize],
			append([]byte{2}, make([]byte, 33)...)...)},
		"three bases": {name(1): append(payload(2, 8)[:segment.BaseSize],
			append([]byte{3}, make([]byte, 65)...)...)},
		"no columns":   {name(1): low(2, 1, 3)[:60]},
		"zero columns": {name(1): append(payload(2, 1), make([]byte, 60)...)},
		"lost columns": {name(1): low(2, 1, 3), name(2): low(4, 1, 5)},
		"its columns":  {name(1): low(2, 1, 1)},
		"high columns": {name(1): low(2, 3, 3), name(2): low(4, 1, 5), name(3): low(4, 3, 5)},
		"both circle":  {name(1): low(2, 7, 3), name(2): low(1, 6, 3), name(3): low(2, 5, 1)},
		"many": {name(1): low(2, 7, 2), name(2): low(3, 6, 3), name(3): low(4, 5, 4),
			name(4): low(5, 4, 5), name(5): low(6, 3, 6), name(6): low(7, 2, 7), name(7): low(8, 1, 8)},
	} {
		for i, raw := range []int{1024, cas.MaxChunk, 1024, cas.MaxChunk, 1024, cas.MaxChunk} {
			m := newMem()
			open(t, m, newIndex(), Options{}).Close()
			forge(t, m, 1, []byte{codec.Delta, codec.Rounded, codec.LowRank}[i/2], recs, raw)
			s := open(t, m, newIndex(), Options{})
			_, err := s.Get(name(1), nil)
			if !errors.Is(err, cas.ErrCorrupt) && !(raw == cas.MaxChunk && errors.Is(err, cas.ErrTooLarge)) {
				t.Errorf("%s: %v", what, err)
			}
			b := s.Begin()
			if _, _, err := b.PutAgainst(cas.Chunk, cas.Sum(version(1, 0)), version(1, 0), fp32,
				name(1)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			commit(t, b)
			wantGet(t, s, version(1, 0))
			var found []damage.Finding
			if _, err := s.Check(t.Context(),
				CheckOptions{ReadData: true,
					Found: func(f damage.Finding) { found = append(found, f) },
				}); err != nil || len(found) == 0 {
				t.Errorf("%s: %v, %v", what, err, found)
			}
			sweepNow(t, s, SweepOptions{},
				func(_ context.Context, m *Marking) error { m.Keep(name(1)); return nil })
			sweepNow(t, s, SweepOptions{}, marking())
			s.Close()
		}
	}
}

// A base that is damaged damages what is written against it, until it is put again.
func TestDeltaBaseDamaged(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for v := range 4 {
		evolve(t, b, 1, v)
	}
	commit(t, b)
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	bad := cas.Sum(version(1, 2)) // the base of 3
	f, err := m.OpenFile(segment.Path(dir, 1), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("XXXX"), x.m[bad].Off+segment.RecordHeaderSize+40); err != nil {
		t.Fatal(err)
	}
	found := map[cas.Hash]damage.Problem{}
	if _, err := s.Check(t.Context(), CheckOptions{ReadData: true,
		Found: func(f damage.Finding) { found[f.Hash] = f.Problem }}); err != nil {
		t.Fatal(err)
	}
	want := map[cas.Hash]damage.Problem{bad: damage.BadChunk, cas.Sum(version(1, 3)): damage.BadBase}
	if !maps.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
	_, err = s.Get(cas.Sum(version(1, 3)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	wantGet(t, s, version(1, 1))
	b = s.Begin()
	if fresh, delta := evolve(t, b, 1, 2); !fresh || delta {
		t.Error("not stored afresh, whole:", fresh, delta)
	}
	commit(t, b)
	for v := range 4 {
		wantGet(t, s, version(1, v))
	}
}

// Salvage keeps a delta whose base is lost, and its base may come back.
func TestDeltaSalvage(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 1 << 10})
	for v := range 2 {
		b := s.Begin()
		evolve(t, b, 1, v)
		commit(t, b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	base := x.m[cas.Sum(version(1, 0))]
	f, err := m.OpenFile(segment.Path(dir, base.Segment), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("XXXX"), base.Off+segment.RecordHeaderSize+40); err != nil {
		t.Fatal(err)
	}
	st, err := salvage.Segments(m, dir, storeID, salvage.Options{Aside: "/store/lost", Now: time.Now})
	if err != nil || len(st.Moved) != 1 || st.Moved[0].Lost != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	s = open(t, m, newIndex(), Options{})
	_, err = s.Get(cas.Sum(version(1, 1)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	b := s.Begin()
	evolve(t, b, 1, 0)
	commit(t, b)
	wantGet(t, s, version(1, 1))
}

// What was stored afresh since a base of it was damaged, and became a base itself, stays one when the segment
// of the old copy, which is whole, is salvaged into a newer one.
func TestDeltaSalvageOfOldCopies(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for v := range 3 {
		evolve(t, b, 1, v)
	}
	commit(t, b)
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	patch(t, m, segment.Path(dir, 1), x.m[cas.Sum(version(1, 0))].Off+segment.RecordHeaderSize+40, 'X', 'X',
		'X', 'X')
	_, err := s.Get(cas.Sum(version(1, 2)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	b = s.Begin()
	for _, v := range []int{0, 2} {
		if fresh, delta := evolve(t, b, 1, v); !fresh || delta {
			t.Fatal("not stored afresh, whole:", fresh, delta)
		}
	}
	if _, delta := evolve(t, b, 1, 3); !delta {
		t.Fatal("no delta")
	}
	commit(t, b)
	for v := range 4 {
		wantGet(t, s, version(1, v))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := salvage.Segments(m, dir, storeID, salvage.Options{Aside: "/store/lost", Now: time.Now})
	if err != nil || len(st.Moved) != 1 || st.Moved[0].Records != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	for _, batch := range []int{1, 100} {
		s = open(t, m, newIndex(), Options{ReplayBatch: batch})
		for v := range 4 {
			wantGet(t, s, version(1, v))
		}
		if batch == 100 {
			sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{1, 3}: true}))
			wantGet(t, s, version(1, 3))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A base that was lost comes back alone when it is put again as a version of something else: what was written
// against it can be read then.
func TestDeltaLostBaseComesBack(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for v := range 6 {
		evolve(t, b, 1, v)
	}
	commit(t, b)
	lost := cas.Sum(version(1, 2)) // the base of 3
	delete(x.m, lost)
	_, err := s.Get(cas.Sum(version(1, 3)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	b = s.Begin()
	if _, delta, err := b.PutAgainst(cas.Chunk, lost, version(1, 2), fp32, cas.Sum(version(1, 5))); delta ||
		err != nil {
		t.Error("stored as a delta", err)
	}
	commit(t, b)
	for v := range 6 {
		wantGet(t, s, version(1, v))
	}
}
