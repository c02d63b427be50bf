package store

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"ckptfs/cas"
)

// Records of a kind are found again in their order, by an index that was made again too; sweeps take those
// that nothing wants.
func TestEach(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	var want []string
	for i := range 5 {
		b := s.Begin()
		put(t, b, cas.Chunk, chunk(i))
		e := fmt.Sprintf("event %d", i)
		put(t, b, cas.Event, []byte(e))
		want = append(want, e)
		commit(t, b)
		b.Release()
	}
	check := func(s *Store, want []string) {
		t.Helper()
		var got []string
		bad, err := s.Each(cas.Event, func(h cas.Hash, raw []byte) error {
			if cas.Sum(raw) != h {
				t.Error("another record's hash")
			}
			got = append(got, string(raw))
			return nil
		})
		if err != nil || bad != 0 || !slices.Equal(got, want) {
			t.Errorf("%q, %d bad, %v", got, bad, err)
		}
	}
	check(s, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	check(s, want)
	sweepNow(t, s, SweepOptions{MaxUnused: 0.1}, func(_ context.Context, keep *Marking) error {
		keep.Keep(cas.Sum([]byte(want[1])))
		keep.Keep(cas.Sum([]byte(want[4])))
		return nil
	})
	check(s, []string{want[1], want[4]})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
