package store

import (
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
)

// heldOf asks for chunks at once, and says which of them PutHeld has put.
func heldOf(t testing.TB, b *Batch, kind cas.Kind, raws ...[]byte) []bool {
	t.Helper()
	hashes, held := make([]cas.Hash, len(raws)), make([]bool, len(raws))
	for i, raw := range raws {
		hashes[i] = cas.Sum(raw)
	}
	if err := b.PutHeld(kind, hashes, held); err != nil {
		t.Error(err)
	}
	return held
}

// putThose puts chunks as package pack does: those that are held at once, the others one by one.
func putThose(t testing.TB, b *Batch, raws ...[]byte) {
	t.Helper()
	for i, held := range heldOf(t, b, cas.Chunk, raws...) {
		if !held {
			if _, err := b.Put(cas.Chunk, cas.Sum(raws[i]), raws[i], codec.Hint{}); err != nil {
				t.Error(err)
			}
		}
	}
}

func wantHeld(t testing.TB, what string, got []bool, want ...bool) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: held %v, want %v", what, got, want)
			return
		}
	}
}

func TestPutHeld(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	put(t, b, cas.List, chunk(2))
	other := s.Begin()
	wantHeld(t, "on its way", heldOf(t, other, cas.Chunk, chunk(1), chunk(2), chunk(3)), false, false, false)
	commit(t, b)
	wantHeld(t, "there", heldOf(t, other, cas.Chunk, chunk(1), chunk(2), chunk(3), chunk(1)), true, true,
		false, true)
	wantHeld(t, "as lists", heldOf(t, other, cas.List, chunk(1), chunk(2)), false, true)
	put(t, other, cas.Chunk, chunk(3))
	wantHeld(t, "its own", heldOf(t, other, cas.Chunk, chunk(3)), false)
	s.suspects(cas.Sum(chunk(1)))
	wantHeld(t, "in doubt", heldOf(t, other, cas.Chunk, chunk(1), chunk(2)), false, true)
	if !put(t, other, cas.Chunk, chunk(1)) {
		t.Error("what is in doubt was not stored afresh")
	}
	commit(t, other)
	wantErr(t, other.PutHeld(cas.Chunk, nil, nil), ErrBatchDone)
	if len(s.pins.count)+len(s.pins.naming) > 0 {
		t.Errorf("still pinned: %v %v", s.pins.count, s.pins.naming)
	}
	b = s.Begin()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, b.PutHeld(cas.Chunk, nil, nil), ErrClosed)
}

// What PutHeld has put no sweep takes before the batch is released, and nothing that it is a delta of.
func TestPutHeldPins(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 2 << 10})
	b := s.Begin()
	var raws [][]byte
	for v := range 8 {
		evolve(t, b, 1, v)
		raws = append(raws, version(1, v))
	}
	commit(t, b)
	b = s.Begin()
	wantHeld(t, "a delta", heldOf(t, b, cas.Chunk, raws[7]), true)
	for range 2 {
		sweepNow(t, s, SweepOptions{}, marking())
		wantGet(t, s, raws[7])
	}
	wantHeld(t, "after sweeps", heldOf(t, b, cas.Chunk, raws[1], raws[7]), false, true)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.Release()
	if len(s.pins.count)+len(s.pins.needs) > 0 {
		t.Errorf("still pinned: %v %v", s.pins.count, s.pins.needs)
	}
	sweepNow(t, s, SweepOptions{}, marking())
	if len(x.m) > 0 {
		t.Errorf("%d left", len(x.m))
	}
}

// A delta whose base is gone is not held, and Put stores it alone.
func TestPutHeldLostBase(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	evolve(t, b, 1, 0)
	evolve(t, b, 1, 1)
	commit(t, b)
	delete(x.m, cas.Sum(version(1, 0)))
	b = s.Begin()
	wantHeld(t, "without its base", heldOf(t, b, cas.Chunk, version(1, 1)), false)
	other := s.Begin()
	put(t, other, cas.Chunk, version(1, 0))
	wantHeld(t, "its base on its way", heldOf(t, b, cas.Chunk, version(1, 1)), false)
	commit(t, other)
	wantHeld(t, "its base back", heldOf(t, b, cas.Chunk, version(1, 1)), true)
	delete(x.m, cas.Sum(version(1, 0)))
	if fresh, delta := evolve(t, b, 1, 1); !fresh || delta {
		t.Errorf("fresh %v, a delta %v", fresh, delta)
	}
	commit(t, b)
	wantGet(t, s, version(1, 1))
}

// While a commit is under way its entries may be seen in the index before they are durable there.
func TestPutHeldDuringCommit(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	other := s.Begin()
	var asked bool
	x.before = func(op string) {
		if op != "Locate" || asked {
			return
		}
		asked = true
		b := s.Begin()
		put(t, b, cas.Chunk, chunk(1))
		x.mu.Lock()
		x.m[cas.Sum(chunk(1))] = cas.Location{Segment: 1, Kind: cas.Chunk} // as if its commit were half done
		x.mu.Unlock()
	}
	wantHeld(t, "in a commit", heldOf(t, other, cas.Chunk, chunk(1)), false)
	if !asked {
		t.Error("the index was not asked")
	}
}

func BenchmarkPutHeld(b *testing.B) {
	s := benchStore(b, b.TempDir())
	chunks, hashes := dataset(1024, true)
	putAll(b, s, chunks, codec.Hint{})
	held := make([]bool, len(hashes))
	for b.Loop() {
		batch := s.Begin()
		if err := batch.PutHeld(cas.Chunk, hashes, held); err != nil || !held[0] {
			b.Fatal(held[0], err)
		}
		batch.Release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(hashes)), "ns/chunk")
}
