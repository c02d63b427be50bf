package segment

import (
	"errors"
	"testing"
)

// numbers of the segments that are written to.
func numbersOf(all []*Tail) (ns []uint32) {
	for _, w := range all {
		ns = append(ns, w.Number())
	}
	return ns
}

// A segment takes records alone until several goroutines write to it; what may not lie in any goes to the
// newest.
func TestTails(t *testing.T) {
	m := newMem(t)
	var tails Tails
	tails.Init(m, dir, testID.Store, 1000, 2)
	reserve := func(stored int, first bool, want uint32) (*Tail, func()) {
		t.Helper()
		w, s, _, err := tails.Reserve(stored, first)
		if err != nil {
			t.Fatal(err)
		}
		if w.Number() != want {
			t.Errorf("segment %d, want %d", w.Number(), want)
		}
		return w, func() {
			if _, err := w.Finish(s, &Record{Off: s.Off, Stored: uint32(stored)}, nil); err != nil {
				t.Error(err)
			}
		}
	}
	_, end1 := reserve(10, true, 1)
	_, end2 := reserve(10, true, 1)
	_, end3 := reserve(10, true, 2)
	_, end4 := reserve(10, true, 2)
	_, end5 := reserve(10, true, 1) // no more than two segments
	end1()
	end2()
	_, end6 := reserve(10, true, 1)
	_, end7 := reserve(10, false, 2)
	for _, end := range []func(){end3, end4, end5, end6, end7} {
		end()
	}
	full, end := reserve(450, true, 1)
	end()
	_, end = reserve(450, true, 2) // the first is full
	end()
	_, end = reserve(450, false, 3)
	end()
	if got := tails.Drain(); len(got) != 2 || got[0] != full || len(tails.Drain()) > 0 {
		t.Errorf("to be drained: %v", numbersOf(got))
	}
	if all, last := tails.All(); len(all) != 3 || last != 3 || tails.Takes(full) {
		t.Errorf("%v, last %d", numbersOf(all), last)
	}
	if sealed, err := tails.Sealed(); err != nil || len(sealed) > 0 {
		t.Error(sealed, err)
	}
	tails.Drained(full)
	tails.AwaitDrained(1)
	if !tails.Remove(full) || tails.Remove(full) {
		t.Error("removed twice")
	}
	if sealed, err := tails.Sealed(); err != nil || len(sealed) != 1 {
		t.Error(sealed, err)
	}
	if err := tails.Retire(); err != nil {
		t.Fatal(err)
	}
	if err := tails.Grow(2); err != nil || tails.Last() != 3 {
		t.Error(err, tails.Last())
	}
	if err := tails.Grow(3); err != nil || tails.Last() != 4 {
		t.Error(err, tails.Last())
	}
	tails.Close()
	if _, _, _, err := tails.Reserve(1, true); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := tails.Retire(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := tails.Grow(4); err != nil || tails.Last() != 4 {
		t.Error(err, tails.Last())
	}
}

// What may not lie in any segment does not go to a lower one when the newest is full.
func TestNewestIsFull(t *testing.T) {
	var tails Tails
	tails.Init(newMem(t), dir, testID.Store, 1000, 2)
	var slots []func()
	reserve := func(stored int, first bool) uint32 {
		w, s, _, err := tails.Reserve(stored, first)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, func() { _, _ = w.Finish(s, &Record{Off: s.Off, Stored: uint32(stored)}, nil) })
		return w.Number()
	}
	for i, want := range []uint32{1, 1, 2} { // two write to the first
		if n := reserve([]int{10, 10, 700}[i], true); n != want {
			t.Fatalf("record %d in segment %d", i, n)
		}
	}
	if n := reserve(400, false); n != 3 {
		t.Errorf("in segment %d, before what the second one has", n)
	}
	for _, finish := range slots {
		finish()
	}
}
