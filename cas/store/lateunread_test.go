package store

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// After a kill the disk does not read, or not sync, a segment whose entries were late: what was committed
// there is back once the disk can, without the index being made again; until then no sweep takes what deltas
// there may need.
func TestLateUnread(t *testing.T) {
	ways := map[string]func(disk.Op) bool{"open": isOpen, "read": isRead, "sync": isSync}
	for what, which := range ways {
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{})
		b := s.Begin()
		evolve(t, b, 1, 0)
		commit(t, b)
		wantErr(t, s.Close(), nil)
		s = open(t, m, x, Options{})
		x.writeLocked()
		b = s.Begin()
		if _, delta := evolve(t, b, 1, 1); !delta {
			t.Fatal("no delta")
		}
		put(t, b, cas.Chunk, chunk(1))
		commit(t, b)

		x = x.clone() // killed
		m.Inject(failing(2, syscall.EIO, which))
		s = open(t, m, x, Options{})
		if has(t, s, 1) {
			t.Fatal("held")
		}
		mark := keeping(map[[2]int]bool{{1, 1}: true})
		for range 2 {
			_, err := s.Sweep(t.Context(), SweepOptions{}, mark)
			if what != "sync" && (err == nil || !strings.Contains(err.Error(), segment.Name(2))) {
				t.Errorf("%s: sweep: %v", what, err)
			}
			b = s.Begin()
			put(t, b, cas.Chunk, chunk(2))
			commit(t, b)
			wantErr(t, s.Close(), nil)
			x.writeLocked()
			x = x.clone()
			s = open(t, m, x, Options{})
		}
		wantErr(t, s.Close(), nil)
		m.Inject(nil)
		s = open(t, m, x.clone(), Options{})
		for _, raw := range [][]byte{version(1, 1), chunk(1), chunk(2)} {
			if _, err := s.Get(cas.Sum(raw), nil); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		s2 := open(t, m.CrashClone(nil), newIndex(), Options{})
		if _, err := s2.Get(cas.Sum(version(1, 1)), nil); err != nil {
			t.Errorf("%s: with a new index: %v", what, err)
		}
	}
}

// After a kill the disk does not read a block of a segment whose entries were late: what was committed there
// is back once it can.
func TestLateUnreadBlock(t *testing.T) {
	within := func(_ *Store, at cas.Location) int64 { return at.Off + disk.BlockSize }
	m, x, s := lateUnread(t, within)
	if hs, err := s.Has([]cas.Hash{cas.Sum(big(0)), cas.Sum(big(1))}); err != nil || !hs[0] || hs[1] {
		t.Fatal(hs, err)
	}
	for range 2 {
		wantErr(t, s.Close(), nil)
		x.writeLocked()
		x = x.clone()
		s = open(t, m, x, Options{})
	}
	wantErr(t, s.Close(), nil)
	m.Inject(nil)
	s = open(t, m, x.clone(), Options{})
	for i := range 3 {
		wantGet(t, s, big(i))
	}
}

// A segment whose footer the disk did not read then goes, once it does, as any other that nothing needs.
func TestLateUnreadFooter(t *testing.T) {
	footer := func(s *Store, _ cas.Location) int64 {
		if err := s.roll(); err != nil {
			t.Fatal(err)
		}
		return s.Stats().Bytes - 1
	}
	m, x, s := lateUnread(t, footer)
	m.Inject(nil)
	sweepNow(t, s, SweepOptions{}, marking())
	if lineOf(m.String(), 1) != "" {
		t.Error("the segment is there")
	}
	b := s.Begin()
	put(t, b, cas.Chunk, big(5))
	commit(t, b)
	wantErr(t, s.Close(), nil)
	x.writeLocked()
	s = open(t, m, x.clone(), Options{})
	wantGet(t, s, big(5))
}

// lateUnread is a store that was opened after a kill. The index had no more than a first chunk of segment 1,
// and the disk does not read the block at an offset of that, which bad tells of the store before the kill,
// and of where big(1) lies.
func lateUnread(t *testing.T, bad func(*Store, cas.Location) int64) (*disk.Mem, *memIndex, *Store) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(0))
	commit(t, b)
	x.writeLocked()
	b = s.Begin()
	const mib = 1 << 20 // as much as is read at once
	for p := range slices.Chunk(codectest.Random(2*mib), mib) {
		put(t, b, cas.Chunk, p)
	}
	for i := range 3 {
		put(t, b, cas.Chunk, big(i))
	}
	commit(t, b)
	off := bad(s, x.m[cas.Sum(big(1))])
	x = x.clone()
	m.Inject(failing(1, syscall.EIO, func(op disk.Op) bool {
		return isRead(op) && op.Off <= off && op.Off+op.Len > off
	}))
	return m, x, open(t, m, x, Options{ReplayBatch: 1})
}
