package store

import (
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
)

// What is gone when a record was encoded against it is not pinned for it.
func TestBaseGoneMeanwhile(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, version(1, 2))
	commit(t, b)
	b = s.Begin()
	h := cas.Sum(version(1, 3))
	if ok, err := b.pin(h); !ok || err != nil {
		t.Fatal(err)
	}
	_, rel := relatedTo(1, 3, 2)
	a := s.choose(h, rel)
	if a == nil {
		t.Fatal("no base")
	}
	sweepNow(t, s, SweepOptions{}, marking())
	if s.lean(h, a) {
		t.Error("what is gone was pinned")
	}
	b.Release()
}

// A record that is written against others pins these, one that is none does not.
func TestPinsOfBases(t *testing.T) {
	for line, want := range map[int]int{1: 1, halves: 2, 5: 0} { // line 5 has nothing in common with line 1
		s := open(t, newMem(), newIndex(), Options{})
		b := s.Begin()
		for _, l := range []int{0, 1} {
			put(t, b, cas.Chunk, version(l, 2))
			put(t, b, cas.Chunk, version(l, 3))
		}
		commit(t, b)
		b = s.Begin()
		raw := version(line, 4)
		if line == halves {
			raw = version(line, 3)
		}
		hint, rel := relatedTo(line, 3, 2)
		if line != halves {
			rel.Prev = cas.Sum(version(1, 3))
		}
		fresh, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, hint, rel)
		if err != nil || !fresh || codec.NeedsBase(id) != (want > 0) {
			t.Fatal(line, fresh, id, err)
		}
		if n := len(s.pins.needs[keyOf(cas.Sum(raw))]); n != want {
			t.Errorf("line %d pins %d bases, want %d", line, n, want)
		}
		sweepNow(t, s, SweepOptions{}, marking())
		wantGet(t, s, raw)
		if n := len(s.pins.count); n != 1+want {
			t.Errorf("line %d: %d chunks are pinned", line, n)
		}
		if err := b.Commit(); err != nil {
			t.Error(err)
		}
		b.Release()
	}
}
