package store

import (
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas"
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
