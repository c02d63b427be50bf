package store

import (
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/salvage"
	"ckptfs/cas/segment"
)

// versions is a store of which segment 1 has a chunk, 2 one that is stored against it, 3 one that nothing
// needs.
func versions(t *testing.T) (*disk.Mem, *memIndex, *Store) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	for v := range 2 {
		b := s.Begin()
		evolve(t, b, 1, v)
		commit(t, b)
		if err := s.roll(); err != nil {
			t.Fatal(err)
		}
	}
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(7))
	put(t, b, cas.List, chunk(8))
	commit(t, b)
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	return m, x, s
}

// What is stored against what cannot be told: a sweep takes no chunk, says so, and takes the rest. When no
// chunk that is wanted lies there it takes all. Either way the segment stays, and its base does.
func TestSweepUnreadable(t *testing.T) {
	for name, which := range map[string]func(disk.Op) bool{"open": isOpen, "read": isRead} {
		for _, restarted := range []bool{false, true} {
			for _, wanted := range []bool{false, true} {
				m, x, s := versions(t)
				if restarted {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				m.Inject(failing(2, syscall.EIO, which))
				s.reader.files.Close()
				if restarted {
					s = open(t, m, x, Options{})
				} else {
					s.reader.init(s, s.folder, &s.opt) // nothing is open or known
				}
				mark := marking()
				if wanted {
					mark = keeping(map[[2]int]bool{{1, 1}: true})
				}
				st, err := s.Sweep(t.Context(), SweepOptions{}, mark)
				if (err != nil) != wanted || err != nil && !strings.Contains(err.Error(), segment.Name(2)) {
					t.Errorf("%s restarted %v wanted %v: %v", name, restarted, wanted, err)
				}
				if st.Skipped != 1 || has(t, s, 8) || has(t, s, 7) != wanted {
					t.Errorf("%s restarted %v wanted %v: %+v", name, restarted, wanted, st)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				m.Inject(nil)
				s = open(t, m, x, Options{})
				if wanted {
					wantGet(t, s, version(1, 1))
				}
				if st := sweepNow(t, s, SweepOptions{}, mark); wanted && (st.Skipped != 0 || has(t, s, 7)) {
					t.Errorf("%s restarted %v: afterwards %+v", name, restarted, st)
				}
				if wanted {
					wantGet(t, s, version(1, 1))
				}
			}
		}
	}
}

// A salvage moves aside what the disk does not open or read, keeps what it reads, and passes over what it
// cannot move, whose records the index goes on naming.
func TestSalvageUnreadable(t *testing.T) {
	ways := map[string]func(disk.Op) bool{"open": isOpen, "read": isRead, "block": func(op disk.Op) bool {
		return op.Kind == disk.OpRead && op.Off < 8192 && op.Off+op.Len > 4096
	}}
	for n := 1; n <= 3; n++ {
		for name, which := range ways {
			for _, stuck := range []bool{false, true} {
				m, x := inSegments(t, 3)
				fault := failing(n, syscall.EIO, func(op disk.Op) bool {
					return which(op) || stuck && op.Kind == disk.OpRename
				})
				m.Inject(fault)
				dropped := false
				st, err := salvage.Segments(m, dir, storeID, salvage.Options{Aside: "/store/lost",
					DropIndex: func() error { dropped = true; return nil }})
				if err != nil {
					t.Fatal(err)
				}
				if dropped == stuck || len(st.Stuck) > 0 != stuck || len(st.Moved)+len(st.Stuck) != 1 {
					t.Errorf("%d %s stuck %v: %+v", n, name, stuck, st)
				}
				if !stuck {
					x = newIndex()
				}
				s := open(t, m, x, Options{})
				found := 0
				for i := range 9 {
					if _, err := s.Get(cas.Sum(big(i)), nil); err == nil {
						found++
					} else if i/3 != n-1 {
						t.Errorf("%d %s stuck %v: chunk %d: %v", n, name, stuck, i, err)
					}
				}
				if found < 6 || name == "block" && found < 7 {
					t.Errorf("%d %s stuck %v: %d found", n, name, stuck, found)
				}
				s.Close()
				m.Inject(nil)
				if stuck {
					s = open(t, m, x, Options{})
					for i := range 9 {
						wantGet(t, s, big(i))
					}
				} else if _, err := m.OpenFile("/store/lost/"+segment.Name(uint32(n)), 0, 0); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
