//go:build lockrank

package store

import (
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/locks"
)

// takes is how often f takes each lock for one of n chunks.
func takes(n int, f func()) map[string]float64 {
	before := locks.Takes()
	f()
	a := map[string]float64{}
	for name, after := range locks.Takes() {
		a[name] = float64(after-before[name]) / float64(n)
	}
	return a
}

// A chunk takes the locks that all writers share a few times, and for a commit none.
func TestTakes(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	const n = 1024
	b := s.Begin()
	within := func(what string, got, most map[string]float64) {
		t.Helper()
		for name, n := range got {
			if n > most[name]+0.05 {
				t.Errorf("%s: %s is taken %.2f times a chunk, want %v", what, name, n, most[name])
			}
		}
	}
	putAll := func() {
		for i := range n {
			put(t, b, cas.Chunk, chunk(i))
		}
	}
	within("fresh", takes(n, putAll),
		map[string]float64{"appender.mu": 2, "pins.mu": 1, "indexer.mu": 1, "segment.Tails.mu": 1,
			"segment.Writer.mu": 2})
	within("commit", takes(n, func() { commit(t, b) }), nil)
	b = s.Begin()
	within("held", takes(n, putAll), map[string]float64{"appender.mu": 2, "pins.mu": 1, "indexer.mu": 1})
	hashes := make([]cas.Hash, n)
	for i := range hashes {
		hashes[i] = cas.Sum(chunk(i))
	}
	within("held, at once", takes(n, func() {
		if err := b.PutHeld(cas.Chunk, hashes, make([]bool, n)); err != nil {
			t.Error(err)
		}
	}), nil)
	within("no delta of the version before", takes(n, func() {
		for i := range n {
			raw := chunk(n + i)
			rel := cas.Related{Prev: hashes[i]}
			_, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}, rel)
			if err != nil || codec.NeedsBase(id) {
				t.Fatal(id, err)
			}
		}
	}), map[string]float64{"appender.mu": 3, "pins.mu": 1, "indexer.mu": 2, "segment.Tails.mu": 1,
		"segment.Writer.mu": 2, "segment.Files.mu": 2, "a leaf of cas/expected": 1})
	b.Release()
}
