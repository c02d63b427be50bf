package spilled

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

func random(r *rand.Rand) (h [16]byte) {
	binary.BigEndian.PutUint64(h[:], r.Uint64())
	binary.BigEndian.PutUint64(h[8:], r.Uint64())
	return h
}

// A set of very many takes no memory of its own, and each is found, and no other one.
func TestSet(t *testing.T) {
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, half := NewSet(dir), NewSet(nil)
	r := rand.New(rand.NewPCG(1, 2))
	const n = 200000
	for i := range n {
		h := random(r)
		if s.Has(h) || s.MayHave(h) || !s.Add(h) || s.Add(h) || !s.Has(h) || !s.MayHave(h) {
			t.Fatalf("%x is not added once", h)
		}
		if i%2 == 0 {
			half.Add(h)
		}
	}
	if s.Memory() != 0 || half.Memory() < n/2*slotBytes {
		t.Errorf("%d and %d bytes in memory", s.Memory(), half.Memory())
	}
	if !half.Within(s) || s.Within(half) || !s.Within(half, s.without(half)) {
		t.Error("what is within what is not known")
	}
	r = rand.New(rand.NewPCG(1, 2))
	for range n {
		h := random(r)
		if s.Remove(h); s.Has(h) || s.MayHave(h) {
			t.Fatalf("%x is not removed", h)
		}
	}
}

// without is a set of what s has and o has not.
func (s *Set) without(o *Set) *Set {
	rest := NewSet(nil)
	s.table.Each(func(is Slot) {
		if h := is.beginning(); !o.Has(h) {
			rest.Add(h)
		}
	})
	return rest
}

// Of two that begin alike, each may be there, and only the later one is.
func TestSetAlike(t *testing.T) {
	s := NewSet(nil)
	a, b := [16]byte{1, 15: 2}, [16]byte{1, 15: 4}
	if !s.Add(a) || !s.Add(b) || s.Has(a) || !s.MayHave(a) || !s.Has(b) {
		t.Error("two that begin alike are taken for one")
	}
	if s.Remove(a); !s.Has(b) {
		t.Error("another one is removed")
	}
}

// What is lost is told, and nothing is said to be over it.
func TestSetLost(t *testing.T) {
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, least, r := NewSet(dir), NewLeast(dir), rand.New(rand.NewPCG(1, 2))
	for range 200000 {
		h := random(r)
		s.Add(h)
		least.Note(h, 3)
	}
	for _, table := range []*Table{s.table, least.table} {
		if err := unix.Mprotect(table.file.bytes, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	h := random(rand.New(rand.NewPCG(1, 2)))
	if s.Err() != nil || s.MayHave(h) || s.Err() == nil || !s.Add(h) || s.Has(h) {
		t.Errorf("a set that is lost: %v", s.Err())
	}
	if least.Over(h, 2) {
		t.Error("numbers that are lost are taken for none")
	}
}

func TestLeast(t *testing.T) {
	l, h := NewLeast(nil), [16]byte{7}
	if !l.Over(h, 255) {
		t.Error("a number that nobody noted")
	}
	l.Note(h, 5)
	l.Note(h, 3)
	l.Note(h, 4)
	if !l.Over(h, 2) || l.Over(h, 3) || l.Over(h, 4) {
		t.Error("3 is not the least of 5, 3 and 4")
	}
	if l.Note(h, 0); l.Over(h, 0) {
		t.Error("0 is not noted")
	}
}

// The values of a slab come in their order.
func TestSlabEach(t *testing.T) {
	s, next := NewSlab[[8]uint64](nil), uint64(0)
	for i := range uint64(100000) {
		s.New()[7] = i
	}
	if err := s.Each(func(v *[8]uint64) error {
		if v[7] != next {
			t.Fatalf("value %d is %d", next, v[7])
		}
		next++
		return nil
	}); err != nil || next != 100000 {
		t.Errorf("%d values, %v", next, err)
	}
	for _, i := range []int{0, 63, 64, 65, 127, 128, 70_000, 99_999} {
		if n := s.At(i)[7]; n != uint64(i) {
			t.Errorf("value %d is %d", i, n)
		}
	}
	if err := s.Each(func(*[8]uint64) error { return ErrLost }); err != ErrLost {
		t.Errorf("%v", err)
	}
}
