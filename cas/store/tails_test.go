package store

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// Two writes wait in the first segment, so that the next chunks come into the second one. The watermark stays
// in the first; a crash, and a kill after which the machine runs on, find all that was committed in either.
func TestSeveralTails(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		x.see = durable(t, m)
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, a, 1)
		two, twoPut := start(g, a, 2)
		through(t, g, b, 3)
		through(t, g, b, 4)
		commit(t, b)
		if n := x.m[cas.Sum(chunk(3))].Segment; n != 2 {
			t.Fatalf("in segment %d", n)
		}
		if x.mark != (cas.Watermark{Segment: 1}) {
			t.Errorf("mark %v, of a segment that a crash may take away", x.mark)
		}
		s2 := open(t, m.CrashClone(nil), x.clone(), Options{})
		wantGet(t, s2, chunk(3))
		wantGet(t, s2, chunk(4))

		one.pass <- nil
		two.pass <- nil
		wantErr(t, <-onePut, nil)
		wantErr(t, <-twoPut, nil)
		x2 := x.clone()
		x2.see = durable(t, m)
		s2 = open(t, m, x2, Options{}) // with s never closed
		for i := 1; i <= 4; i++ {
			wantGet(t, s2, chunk(i))
		}
		if st := s2.Stats(); st.Damaged > 0 || st.Unsealed > 0 || st.Chunks.Records != 4 {
			t.Errorf("%+v", st)
		}
		s.Close()
	})
}

// What is stored afresh, or as another kind, lies behind what it stands for, though a lower segment takes
// records, too: a start without an index takes the last one.
func TestReplacementsComeLast(t *testing.T) {
	opt := Options{Tails: 2, SegmentSize: 2 << 10}
	bubble(t, opt, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, a, 1)
		two, twoPut := start(g, a, 2)
		last := 4
		for through(t, g, b, last); s.appender.tails.Last() < 3; through(t, g, b, last) {
			last++ // until the second segment is full
		}
		one.pass <- nil
		two.pass <- nil
		wantErr(t, <-onePut, nil)
		wantErr(t, <-twoPut, nil)
		again := func(i int, kind cas.Kind) (n uint32) {
			b := s.Begin()
			done := make(chan error, 1)
			go func() {
				_, err := b.Put(kind, cas.Sum(chunk(i)), chunk(i), codec.Hint{})
				done <- err
			}()
			(<-g.writes).pass <- nil
			wantErr(t, <-done, nil)
			commit(t, b)
			return x.m[cas.Sum(chunk(i))].Segment
		}
		if n := again(last, cas.List); n <= 2 { // it is not in the index yet
			t.Errorf("stored as another kind in segment %d", n)
		}
		commit(t, b)
		loc := x.m[cas.Sum(chunk(4))]
		f, err := m.OpenFile(segment.Path(dir, loc.Segment), os.O_RDWR, 0)
		if err != nil || loc.Segment != 2 {
			t.Fatal(loc, err)
		}
		if _, err := f.WriteAt([]byte("XXXX"), loc.Off+segment.RecordHeaderSize); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(cas.Sum(chunk(4)), nil); err == nil {
			t.Fatal("not damaged")
		}
		if n := again(4, cas.Chunk); n <= 2 {
			t.Errorf("stored afresh in segment %d, before the damaged one", n)
		}
		if n := again(4, cas.Manifest); n <= 2 {
			t.Errorf("stored as another kind in segment %d", n)
		}
		commit(t, a)
		s.Close()
		y := newIndex()
		s = open(t, m, y, Options{})
		wantGet(t, s, chunk(4))
		if kind := y.m[cas.Sum(chunk(4))].Kind; kind != cas.Manifest {
			t.Errorf("kind %d", kind)
		}
	})
}

// Several segments are filled at a time; what a crash leaves of them is what was committed.
func TestTailsUnderFaults(t *testing.T) {
	most := 0
	concurrentFaults(t, Options{SegmentSize: 8 << 10, Tails: 3}, func(s *Store) {
		all, _ := s.appender.tails.All()
		most = max(most, len(slices.DeleteFunc(all, func(w *segment.Tail) bool {
			return !s.appender.tails.Takes(w)
		})))
	})
	if most < 2 {
		t.Error("never more than one segment took records")
	}
}

// After an end in order a start finds all in the index, and one that may change nothing opens: also when what
// was committed last lies before what was committed earlier, or is nothing, since a write failed.
func TestNothingIsBehindAfterTheEnd(t *testing.T) {
	for _, fault := range []error{nil, syscall.EIO} {
		bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
			a, b := s.Begin(), s.Begin()
			one, onePut := start(g, a, 1)
			two, twoPut := start(g, a, 2)
			through(t, g, b, 3)
			commit(t, b)
			for _, w := range []*gated{one, two} {
				w.pass <- fault
			}
			wantErr(t, <-onePut, fault)
			wantErr(t, <-twoPut, fault)
			wantErr(t, a.Commit(), fault)
			a.Release()
			wantErr(t, s.Close(), nil)
			s2 := open(t, disk.ReadOnly{FS: m}, x, Options{ReadOnly: true})
			wantGet(t, s2, chunk(3))
		})
	}
}

// A delta that is on the disk, and whose base in another segment is not, keeps the watermark before it,
// though what lies behind it is in the index: it is committed later, and may be late then.
func TestWatermarkStaysBelowDelta(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, b, 1)
		two, twoPut := start(g, b, 2)
		var writes []*gated
		for v := range 2 {
			done := make(chan bool, 1)
			go func() {
				_, delta := evolve(t, a, 1, v)
				done <- delta
			}()
			writes = append(writes, <-g.writes)
			writes[v].pass <- nil
			if delta := <-done; delta != (v > 0) {
				t.Fatal(v, delta)
			}
			if v == 0 { // the base is in the second segment; from here on the first one takes records
				one.pass <- nil
				two.pass <- nil
				wantErr(t, <-onePut, nil)
				wantErr(t, <-twoPut, nil)
			}
		}
		through(t, g, b, 4)
		commit(t, b)
		if want := (cas.Watermark{Segment: 1, Off: writes[1].off}); x.mark != want {
			t.Errorf("mark %v, a delta at %v", x.mark, want)
		}
		commit(t, a)
		s2 := open(t, m.CrashClone(nil), x.clone(), Options{})
		wantGet(t, s2, version(1, 1))
		wantErr(t, s.Close(), nil)
	})
}

// What is stored as another kind stays in the index, though what it stands for lies in another segment and is
// committed later.
func TestReplacedIsCommittedLater(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, b, 1)
		two, twoPut := start(g, b, 2)
		through(t, g, b, 3) // in the second segment
		one.pass <- nil
		two.pass <- nil
		wantErr(t, <-onePut, nil)
		wantErr(t, <-twoPut, nil)
		commit(t, b)
		through(t, g, a, 4)
		b = s.Begin()
		done := make(chan error, 1)
		go func() {
			_, err := b.Put(cas.List, cas.Sum(chunk(4)), chunk(4), codec.Hint{})
			done <- err
		}()
		(<-g.writes).pass <- nil
		wantErr(t, <-done, nil)
		commit(t, b)
		commit(t, a)
		if loc := x.m[cas.Sum(chunk(4))]; loc.Kind != cas.List || loc.Segment != 2 {
			t.Errorf("%+v", loc)
		}
		wantErr(t, s.Close(), nil)
	})
}

// What was written after the fsync that a commit waits for keeps the watermark before it, though what lies
// behind it is in the index: it is committed later, and may be late then.
func TestWatermarkStaysBelowNotDurable(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, a, 1)
		through(t, g, b, 2)
		tails, _ := s.appender.tails.All()
		s.appender.sync(tails[0], 1) // as a goroutine of its own does
		one.pass <- nil
		wantErr(t, <-onePut, nil)
		commit(t, b)
		if want := (cas.Watermark{Segment: 1, Off: one.off}); x.mark != want {
			t.Errorf("mark %v, what is not durable at %v", x.mark, want)
		}
		x.writeLocked()
		commit(t, a)
		s2 := open(t, m.CrashClone(nil), x.clone(), Options{})
		wantGet(t, s2, chunk(1))
		wantErr(t, s.Close(), nil)
	})
}

// After a kill the index knows of a segment that is missing, above one that was being written: it is made
// again, and no new segment takes the number of the old one.
func TestHigherSegmentMissing(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, a, 1)
		two, twoPut := start(g, a, 2)
		through(t, g, b, 3) // in the second segment
		commit(t, b)
		x.writeLocked()
		killed, y := m.CrashClone(nil), newIndex()
		_, err := Open(killed, dir, storeID, x.clone(), Options{})
		wantErr(t, err, nil)
		wantErr(t, killed.Remove(segment.Path(dir, 2)), nil)
		renew := func(reason error) (Locator, error) {
			wantErr(t, reason, ErrIndexAhead)
			return y, nil
		}
		s2 := open(t, killed, x.clone(), Options{NewIndex: renew})
		if s2.indexer.index != y || has(t, s2, 3) {
			t.Error("believed to be held")
		}
		one.pass <- nil
		two.pass <- nil
		wantErr(t, <-onePut, nil)
		wantErr(t, <-twoPut, nil)
		s.Close()
	})
}

// After a kill a store that is only read opens if the index has all, though the watermark is behind.
func TestReadOnlyAfterKill(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, a, 1)
		two, twoPut := start(g, a, 2)
		through(t, g, b, 3) // in the second segment
		commit(t, b)
		x.writeLocked()
		if x.mark.Segment != 1 {
			t.Fatal(x.mark)
		}
		read := func(x *memIndex) (*Store, error) {
			return Open(disk.ReadOnly{FS: m.CrashClone(nil)}, dir, storeID, x, Options{ReadOnly: true})
		}
		s2, err := read(x.clone())
		wantErr(t, err, nil)
		wantGet(t, s2, chunk(3))
		wantErr(t, s2.Close(), nil)
		one.pass <- nil
		two.pass <- nil
		wantErr(t, <-onePut, nil)
		wantErr(t, <-twoPut, nil)
		commit(t, a) // of which the disk's index has nothing
		_, err = read(x.clone())
		wantErr(t, err, ErrNeedsRecovery)
		s.Close()
	})
}

// A segment that a sweep removes while a lower one is being written is not where the watermark goes then.
func TestWatermarkPassesWhatWasRemoved(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, a, 1)
		two, twoPut := start(g, a, 2)
		through(t, g, b, 3) // in the second segment
		wantErr(t, s.appender.tails.Retire(), nil)
		wantErr(t, b.Commit(), nil)
		b.Release()
		synctest.Wait() // it is sealed, and the first one is not
		w := sweep{s: s, deadline: time.Now()}
		if _, err := w.segments(t.Context(), []uint32{2}); err != nil || w.st.Removed != 1 {
			t.Fatalf("%+v, %v", w.st, err)
		}
		one.pass <- nil
		two.pass <- nil
		wantErr(t, <-onePut, nil)
		wantErr(t, <-twoPut, nil)
		commit(t, a)
		wantErr(t, s.Close(), nil)
		x.writeLocked()
		s2 := open(t, m, x.clone(), Options{})
		wantGet(t, s2, chunk(1))
		s2.Close()
	})
}

// At the end nothing is said of a segment to which nothing was written, and which a crash may take away.
func TestMarkStaysInWhatIsDurable(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		b := s.Begin()
		through(t, g, b, 1)
		commit(t, b)
		a := s.Begin()
		two, twoPut := start(g, a, 2)
		three, threePut := start(g, a, 3)
		four, fourPut := start(g, a, 4) // in the second segment
		four.pass <- syscall.EIO
		wantErr(t, <-fourPut, syscall.EIO)
		two.pass <- nil
		three.pass <- nil
		wantErr(t, <-twoPut, nil)
		wantErr(t, <-threePut, nil)
		wantErr(t, s.Close(), nil)
		x.writeLocked()
		s2 := open(t, m.CrashClone(nil), x.clone(), Options{})
		wantGet(t, s2, chunk(2))
	})
}

// A delta that is written after its base has failed does not come into the index, nor into a footer.
func TestDeltaAfterItsBaseFailed(t *testing.T) {
	bubble(t, Options{Tails: 2}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		one, onePut := start(g, b, 1)
		two, twoPut := start(g, b, 2)
		var last *gated
		done := make(chan bool, 1)
		for v := range 2 {
			go func() {
				_, delta := evolve(t, a, 1, v)
				done <- delta
			}()
			if last = <-g.writes; v == 0 { // the base, in the second segment
				last.pass <- nil
				<-done
				one.pass <- nil
				two.pass <- nil
				wantErr(t, <-onePut, nil)
				wantErr(t, <-twoPut, nil)
			}
		}
		m.Inject(failing(2, syscall.EIO, isSync))
		tails, _ := s.appender.tails.All()
		s.appender.sync(tails[1], 1)
		last.pass <- nil
		if !<-done {
			t.Fatal("no delta")
		}
		commit(t, b)
		wantErr(t, a.Commit(), syscall.EIO)
		a.Release()
		wantErr(t, s.Close(), nil)
		for what, x := range map[string]*memIndex{"this": x, "a new": newIndex()} {
			s2 := open(t, m.CrashClone(nil), x, Options{})
			if held, err := s2.Has([]cas.Hash{cas.Sum(version(1, 1))}); err != nil || held[0] {
				t.Errorf("%s index has it: %v", what, err)
			}
		}
	})
}
