package store

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// fullIndex is an index that has no room until there is some.
type fullIndex struct {
	*memIndex
	full *bool
}

func (x fullIndex) Remove(entries []cas.Entry) error {
	if *x.full {
		return syscall.ENOSPC
	}
	return x.memIndex.Remove(entries)
}

// On a disk that is full to the last byte a sweep uses what it is given: before the segment that is being
// written is sealed, or when the disk fills on the way.
func TestSweepMakesRoom(t *testing.T) {
	for _, on := range []string{"seal", "remove", "footer"} {
		t.Run(on, func(t *testing.T) {
			m, full, made := newMem(), false, 0
			x := fullIndex{newIndex(), &full}
			opt := Options{SegmentSize: 64 << 10, MakeRoom: func() bool {
				if made++; on != "seal" && made == 1 {
					return false // there is enough yet
				}
				gave := full
				full = false
				return gave
			}}
			s, err := Open(m, dir, storeID, x, opt)
			if err != nil {
				t.Fatal(err)
			}
			b := s.Begin()
			for i := range 100 {
				put(t, b, cas.Chunk, chunk(i))
			}
			commit(t, b)
			b.Release()
			full = on == "seal"
			writes := 0
			m.Inject(func(op disk.Op) *disk.Fault {
				if op.Kind == disk.OpWrite {
					if writes++; on == "footer" && writes == 4 {
						full = true
					}
					if full {
						return &disk.Fault{Err: syscall.ENOSPC, Short: int(op.Len / 2)}
					}
				}
				return nil
			})
			if on == "remove" {
				if err := s.roll(); err != nil {
					t.Fatal(err)
				}
				full = true
			}
			live := slices.DeleteFunc(upTo(100), func(i int) bool { return i%3 > 0 })
			st := sweepNow(t, s, SweepOptions{MaxUnused: 1}, marking(live...))
			m.Inject(nil)
			if st.Failed > 0 || st.Skipped > 0 || st.Punched != 1 || full {
				t.Errorf("%+v", st)
			}
			for i := range 100 {
				if slices.Contains(live, i) {
					wantGet(t, s, chunk(i))
				} else if has(t, s, i) {
					t.Errorf("chunk %d is there", i)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, m, newIndex(), Options{})
			for _, i := range live {
				wantGet(t, s, chunk(i))
			}
		})
	}
}

// What only saves room is not written where there is none to spare: sweeps make holes instead, and
// compactions end. What they wrote until there stays.
func TestRoom(t *testing.T) {
	m, x := newMem(), newIndex()
	left := int64(0)
	opt := Options{SegmentSize: 16 << 10, Room: func(n int64) error {
		if left -= n; left < 0 {
			return syscall.ENOSPC
		}
		return nil
	}}
	s := open(t, m, x, opt)
	ids := line(1, 11)
	alone(t, s, ids...)
	if st, err := recode(t.Context(), s, ids, stepBefore, nil); !errors.Is(err, syscall.ENOSPC) ||
		st.Records != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	size := int64(0)
	for _, id := range ids[:2] {
		size += int64(len(version(id[0], id[1])))
	}
	left = size
	st, err := recode(t.Context(), s, ids, stepBefore, nil)
	if !errors.Is(err, syscall.ENOSPC) || st.Records == 0 || st.Records >= 9 {
		t.Errorf("%+v, %v", st, err)
	}
	left = 1 << 30
	if st, err = recode(t.Context(), s, ids, stepBefore, nil); err != nil || st.Records == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	for _, id := range ids {
		wantGet(t, s, version(id[0], id[1]))
	}
	if got := s.spending.Load(); got != 0 {
		t.Errorf("%d bytes are being written", got)
	}

	m = newMem()
	left = 0
	s = filled(t, m, newIndex(), 100, opt)
	live := slices.DeleteFunc(upTo(100), func(i int) bool { return i%10 > 0 })
	if st := sweepNow(t, s, SweepOptions{MaxUnused: 0.1}, marking(live...)); st.Copied != 0 ||
		st.Freed <= 0 || st.Punched == 0 {
		t.Errorf("%+v", st)
	}
	left = 1 << 30
	if st := sweepNow(t, s, SweepOptions{MaxUnused: 0.1}, marking(live...)); st.Copied == 0 ||
		st.Removed == 0 {
		t.Errorf("%+v", st)
	}
	for _, i := range live {
		wantGet(t, s, chunk(i))
	}
}
