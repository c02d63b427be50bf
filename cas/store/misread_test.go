package store

import (
	"os"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// TestBasesMisread: a disk that once gives a wrong bit of what a record says of its bases costs no base: a
// sweep keeps those that the record names, whoever looked at it before.
func TestBasesMisread(t *testing.T) {
	for _, off := range []int64{5, cas.HashSize + 2 + 7} { // of the first base and of the second
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{SegmentSize: 4 << 10})
		b := s.Begin()
		putBases(t, b, 6)
		commit(t, b)
		b = s.Begin()
		aRecipe(t, b, 6)
		commit(t, b)
		if err := s.roll(); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = open(t, m, x, Options{SegmentSize: 4 << 10})
		h := cas.Sum(version(computed, 6))
		loc := x.m[h]
		name, at := segment.Path(dir, loc.Segment), loc.Off+segment.RecordHeaderSize+off
		f, err := m.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var was [1]byte
		if _, err := f.ReadAt(was[:], at); err != nil {
			t.Fatal(err)
		}
		f.Close()
		patch(t, m, name, at, was[0]^4)
		if _, err := s.Bases(h, loc); err == nil {
			t.Error("what is named is not there, and no error")
		}
		patch(t, m, name, at, was[0])
		if _, err := s.Bases(h, loc); err != nil {
			t.Error(err)
		}
		sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{computed, 6}: true}))
		wantGet(t, s, version(computed, 6))
	}
}
