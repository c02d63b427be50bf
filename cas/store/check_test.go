package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/disk"
	"ckptfs/cas/salvage"
	"ckptfs/cas/segment"
)

func checkAll(t testing.TB, s *Store, opt CheckOptions) (CheckStats, []damage.Finding) {
	t.Helper()
	var fs []damage.Finding
	opt.Found = func(f damage.Finding) { fs = append(fs, f) }
	st, err := s.Check(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return st, fs
}

// patch writes p at off of a file and makes it durable.
func patch(t testing.TB, m *disk.Mem, name string, off int64, p ...byte) {
	t.Helper()
	f, err := m.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func size(t testing.TB, m *disk.Mem, name string) int64 {
	t.Helper()
	f, err := m.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCheckSound(t *testing.T) {
	m, x := newMem(), newIndex()
	s := filled(t, m, x, 100, Options{SegmentSize: 8 << 10})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(100)) // not committed
	for _, data := range []bool{false, true} {
		st, found := checkAll(t, s, CheckOptions{ReadData: data})
		if len(found) > 0 || st.Findings > 0 {
			t.Errorf("%v", found)
		}
		if want := map[bool]int64{true: 101}[data]; st.Read != want || st.Records != 101 ||
			st.Entries != 100 {
			t.Errorf("%+v", st)
		}
	}
	st, _ := checkAll(t, s, CheckOptions{ReadData: true, Subset: 0.3})
	if st.Read < 10 || st.Read > 60 {
		t.Errorf("%d of 100 read", st.Read)
	}
	b.Release()
	sweepNow(t, s, SweepOptions{MaxUnused: 1}, marking(upTo(30)...))
	if _, found := checkAll(t, s, CheckOptions{ReadData: true}); len(found) > 0 {
		t.Errorf("after a sweep: %v", found)
	}
}

// Each damage is found for what it is.
func TestCheckFinds(t *testing.T) {
	type found map[damage.Problem]int
	seg := segment.Path(dir, 1)
	for name, c := range map[string]struct {
		harm func(t *testing.T, m *disk.Mem, x *memIndex, loc cas.Location)
		want found
	}{
		"header": {func(t *testing.T, m *disk.Mem, _ *memIndex, _ cas.Location) {
			patch(t, m, seg, 20, 0xee)
		}, found{damage.BadSegment: 1}},
		"record": {func(t *testing.T, m *disk.Mem, _ *memIndex, l cas.Location) {
			patch(t, m, seg, l.Off+17, 0xee)
		}, found{damage.BadRecord: 1}},
		"content": {func(t *testing.T, m *disk.Mem, _ *memIndex, l cas.Location) {
			patch(t, m, seg, l.Off+segment.RecordHeaderSize+5, 1, 2, 3)
		}, found{damage.BadChunk: 1}},
		"trailer": {func(t *testing.T, m *disk.Mem, _ *memIndex, _ cas.Location) {
			patch(t, m, seg, size(t, m, seg)-8, 1, 2)
		}, found{damage.Unsealed: 1}},
		"entry": {func(t *testing.T, m *disk.Mem, x *memIndex, l cas.Location) {
			l.Off += 64
			x.m[cas.Sum(chunk(1))] = l
		}, found{damage.BadEntry: 1}},
		"entry past the end": {func(t *testing.T, m *disk.Mem, x *memIndex, l cas.Location) {
			l.Off = 1 << 30
			x.m[cas.Sum(chunk(1))] = l
		}, found{damage.BadEntry: 1}},
		"entry too many": {func(t *testing.T, m *disk.Mem, x *memIndex, l cas.Location) {
			x.m[cas.Sum(chunk(999))] = l
		}, found{damage.BadEntry: 1}},
		"lost entry": {func(t *testing.T, m *disk.Mem, x *memIndex, l cas.Location) {
			delete(x.m, cas.Sum(chunk(1)))
		}, found{damage.NotIndexed: 1}},
		"lost segment": {func(t *testing.T, m *disk.Mem, x *memIndex, l cas.Location) {
			if err := m.Remove(segment.Path(dir, 2)); err != nil {
				t.Fatal(err)
			}
		}, found{damage.BadEntry: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			m, x := newMem(), newIndex()
			s := filled(t, m, x, 40, Options{SegmentSize: 4 << 10})
			if err := s.roll(); err != nil {
				t.Fatal(err)
			}
			c.harm(t, m, x, x.m[cas.Sum(chunk(1))])
			before := maps.Clone(x.m)
			_, fs := checkAll(t, s, CheckOptions{ReadData: true})
			got := found{}
			for _, f := range fs {
				got[f.Problem]++
				if f.String() == "" || f.Problem.Repair() == "" && !f.Problem.Harmless() {
					t.Errorf("%+v", f)
				}
			}
			if n := got[damage.BadEntry]; c.want[damage.BadEntry] < 0 && n > 3 {
				got[damage.BadEntry] = -1
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", fs, c.want)
			}
			if !maps.Equal(before, x.m) {
				t.Error("the index was changed")
			}
		})
	}
}

// Checks of a store in use find nothing.
func TestCheckInUse(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 8 << 10})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 8))
			for {
				b := s.Begin()
				for range 10 {
					raw := chunk(r.IntN(400))
					if _, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
						t.Error(err)
					}
				}
				if err := b.Commit(); err != nil {
					t.Error(err)
				}
				b.Release()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; ; i++ {
			_, err := s.Sweep(t.Context(), SweepOptions{MaxUnused: float64(i%3) / 2},
				marking(slices.DeleteFunc(upTo(400), func(n int) bool { return (n+i)%3 == 0 })...))
			if err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		_, findings := checkAll(t, s, CheckOptions{ReadData: true})
		for _, f := range findings {
			t.Errorf("false alarm: %v", f)
		}
	}
	close(stop)
	wg.Wait()
}

// Damaged segments are moved aside, and what is whole in them is kept.
func TestSalvage(t *testing.T) {
	m, x := newMem(), newIndex()
	s := filled(t, m, x, 40, Options{SegmentSize: 4 << 10})
	bad := []int{2, 31}
	locs := map[int]cas.Location{}
	for _, i := range bad {
		locs[i] = x.m[cas.Sum(chunk(i))]
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	aside := "/store/lost+found"
	run := func(m *disk.Mem, drop func() error) (salvage.Stats, error) {
		return salvage.Segments(m, dir, storeID, salvage.Options{Aside: aside, DropIndex: drop})
	}
	never := func() error { t.Error("the index was dropped"); return nil }
	if st, err := run(m, never); err != nil || len(st.Moved) > 0 || st.Looked != st.Segments ||
		st.Looked == 0 {
		t.Fatalf("sound: %+v, %v", st, err)
	}
	for _, l := range locs {
		patch(t, m, segment.Path(dir, l.Segment), l.Off+segment.RecordHeaderSize+3, 9, 9, 9)
	}
	// A header: nothing is lost by it.
	patch(t, m, segment.Path(dir, x.m[cas.Sum(chunk(39))].Segment), 3, 0xff)
	every := 1
	if testing.Short() {
		every = 7
	}
	for n := 0; ; n += every {
		for _, crash := range []bool{true, false} {
			c := m.CrashClone(nil)
			fault := disk.FailAt(n, os.ErrDeadlineExceeded)
			if crash {
				fault = disk.CrashAfter(n)
			}
			c.Inject(fault)
			y := x.clone()
			drop := func() error { y = newIndex(); return nil }
			st, err := run(c, drop)
			done := c.Ops() <= n
			if done && (err != nil || len(st.Moved) < 2) {
				t.Fatalf("%+v, %v", st, err)
			}
			c = c.CrashClone(rand.New(rand.NewPCG(uint64(n), 1)))
			what := fmt.Sprintf("fault at %d, crash %v", n, crash)
			if _, err := run(c, drop); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			s := open(t, c, y, Options{SegmentSize: 4 << 10})
			for i := range 40 {
				if slices.Contains(bad, i) {
					if has(t, s, i) {
						t.Errorf("%s: chunk %d is there", what, i)
					}
					continue
				}
				wantGet(t, s, chunk(i))
			}
			if _, fs := checkAll(t, s, CheckOptions{ReadData: true}); len(fs) > 0 {
				t.Errorf("%s: %v", what, fs)
			}
			names, err := c.ReadDir(aside)
			if err != nil || len(names) < 2 {
				t.Errorf("%s: aside: %v, %v", what, names, err)
			}
			s.Close()
			if done {
				t.Logf("%d operations", n)
				return
			}
		}
	}
}
