package store

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/disk"
)

// gate is a disk on which the writes of records wait until they are let through, or told to fail.
type gate struct {
	disk.FS
	writes chan *gated
}

// gated is a write that waits.
type gated struct {
	off  int64
	pass chan error
}

type gateFile struct {
	disk.File
	g *gate
}

func (g *gate) OpenFile(name string, flag int, perm os.FileMode) (disk.File, error) {
	f, err := g.FS.OpenFile(name, flag, perm)
	if err != nil || flag&os.O_CREATE == 0 {
		return f, err
	}
	return gateFile{f, g}, nil
}

func (f gateFile) WriteAt(p []byte, off int64) (int, error) {
	if off > 0 && string(p[:4]) == "ckr\n" {
		w := &gated{off, make(chan error)}
		f.g.writes <- w
		if err := <-w.pass; err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(p, off)
}

// bubble runs f with a store on a gated disk, in a synctest bubble: synctest.Wait then says when everyone
// waits.
func bubble(t *testing.T, opt Options, f func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store)) {
	// The codecs' pools must not belong to the bubble.
	id, stored := codec.Encode(nil, chunk(0), codec.Hint{})
	if _, err := codec.Decode(nil, id, stored, len(chunk(0))); id != codec.Zstd || err != nil {
		t.Fatal(id, err)
	}
	synctest.Test(t, func(t *testing.T) {
		m, x := newMem(), newIndex()
		g := &gate{FS: m, writes: make(chan *gated)}
		s, err := Open(g, dir, storeID, x, opt)
		if err != nil {
			t.Fatal(err)
		}
		f(t, m, x, g, s)
	})
}

// start begins to put chunk i and returns its write, which waits, and where the outcome comes.
func start(g *gate, b *Batch, i int) (*gated, chan error) {
	done := make(chan error, 1)
	go func() {
		_, err := b.Put(cas.Chunk, cas.Sum(chunk(i)), chunk(i), codec.Hint{})
		done <- err
	}()
	return <-g.writes, done
}

// through puts chunk i, letting its write through.
func through(t *testing.T, g *gate, b *Batch, i int) {
	t.Helper()
	w, done := start(g, b, i)
	w.pass <- nil
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A batch that meets a chunk which another is writing shares its fate.
func TestInFlightDuplicate(t *testing.T) {
	for _, fault := range []error{nil, syscall.ENOSPC} {
		bubble(t, Options{}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
			raw := chunk(1)
			a, b := s.Begin(), s.Begin()
			w, aPut := start(g, a, 1)
			if put(t, b, cas.Chunk, raw) {
				t.Error("written twice")
			}
			bCommit, got := make(chan error, 1), make(chan error, 1)
			go func() { bCommit <- b.Commit() }()
			go func() {
				_, err := s.Get(cas.Sum(raw), nil)
				got <- err
			}()
			synctest.Wait()
			if len(bCommit)+len(got) > 0 {
				t.Fatal("a Put did not wait")
			}
			w.pass <- fault
			wantErr(t, <-aPut, fault)
			wantErr(t, <-bCommit, fault)
			if fault == nil {
				wantErr(t, <-got, nil)
			} else {
				wantErr(t, <-got, cas.ErrNotFound)
				through(t, g, a, 1) // again, in the batch that failed to: it is whole then
			}
			commit(t, a)
			wantGet(t, open(t, m.CrashClone(nil), x.clone(), Options{}), raw)
			s.Close()
		})
	}
}

// The watermark does not pass a write under way, and a hole in front of whole records is no obstacle.
func TestWatermarkStaysBelowWrites(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		through(t, g, b, 1)
		slow, slowPut := start(g, a, 2)
		through(t, g, b, 4)
		commit(t, b)
		if x.mark.Off != slow.off {
			t.Errorf("mark %v, a write under way at %d", x.mark, slow.off)
		}
		s2 := open(t, m.CrashClone(nil), x.clone(), Options{})
		wantGet(t, s2, chunk(1))
		wantGet(t, s2, chunk(4))
		if st := s2.Stats(); st.Damaged > 0 {
			t.Errorf("%+v", st)
		}
		slow.pass <- syscall.EIO // now it is a hole for good
		wantErr(t, <-slowPut, syscall.EIO)
		through(t, g, a, 2)
		commit(t, a)
		if x.mark.Off <= slow.off {
			t.Errorf("mark %v still", x.mark)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, m, newIndex(), Options{})
		for _, i := range []int{1, 2, 4} {
			wantGet(t, s, chunk(i))
		}
		if st := s.Stats(); st.Damaged > 0 || st.Chunks.Records != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// What was being written while an fsync failed fails too; what lay in front of durable records is taken out.
func TestFailedSyncWithWritesUnderWay(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		low, b, c := s.Begin(), s.Begin(), s.Begin()
		slow, slowPut := start(g, low, 1)
		through(t, g, b, 2)
		commit(t, b)
		slow.pass <- nil // written, in front of a durable record, and itself not durable
		wantErr(t, <-slowPut, nil)
		later, laterPut := start(g, c, 4)

		m.Inject(func(op disk.Op) *disk.Fault {
			if op.Kind == disk.OpSync {
				return &disk.Fault{Err: syscall.EIO}
			}
			return nil
		})
		lowCommit := make(chan error, 1)
		go func() { lowCommit <- low.Commit() }()
		synctest.Wait()
		later.pass <- nil
		wantErr(t, <-laterPut, syscall.EIO)
		wantErr(t, <-lowCommit, syscall.EIO)
		m.Inject(nil)
		wantErr(t, c.Commit(), syscall.EIO)

		// The process is killed, the machine runs on.
		y := newIndex()
		s2 := open(t, m, y, Options{})
		if len(y.m) != 1 {
			t.Errorf("%d records, want 1", len(y.m))
		}
		wantGet(t, s2, chunk(2))
		s.Close()
	})
}

// A segment that gets full during a commit, with a write under way, is not sealed by that commit.
func TestSealWaitsForWrites(t *testing.T) {
	bubble(t, Options{SegmentSize: 3000}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		a, b := s.Begin(), s.Begin()
		through(t, g, a, 1)
		inCommit, goOn := make(chan bool), make(chan bool)
		x.fail = func() error {
			x.fail = nil
			x.mu.Unlock() // others may look things up
			inCommit <- true
			<-goOn
			x.mu.Lock()
			return nil
		}
		aCommit := make(chan error, 1)
		go func() { aCommit <- a.Commit() }()
		<-inCommit
		slow, slowPut := start(g, b, 2)
		big := []byte(strings.Repeat("0123456789abcde", 400))
		for i := range big {
			big[i] ^= byte(i * i >> 3)
		}
		bigPut := make(chan error, 1)
		go func() {
			_, err := b.Put(cas.Chunk, cas.Sum(big), big, codec.Hint{})
			bigPut <- err
		}()
		w := <-g.writes // in the next segment
		if w.off != 64 {
			t.Fatalf("at %d", w.off)
		}
		goOn <- true
		wantErr(t, <-aCommit, nil)
		slow.pass <- nil
		wantErr(t, <-slowPut, nil)
		w.pass <- nil
		wantErr(t, <-bigPut, nil)
		commit(t, b)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, m.CrashClone(nil), newIndex(), Options{})
		for _, raw := range [][]byte{chunk(1), chunk(2), big} {
			wantGet(t, s, raw)
		}
		if st := s.Stats(); st.Unsealed > 0 || st.Segments != 2 || st.Chunks.Records != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// While a chunk is being written as one kind, a put as a kind that needs its own record waits for it.
func TestKindsInFlight(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		b := s.Begin()
		w, done := start(g, b, 1)
		second := make(chan error, 1)
		go func() {
			fresh, err := b.Put(cas.List, cas.Sum(chunk(1)), chunk(1), codec.Hint{})
			if err == nil && !fresh {
				err = errors.New("not stored")
			}
			second <- err
		}()
		synctest.Wait()
		select {
		case <-g.writes:
			t.Fatal("it did not wait")
		default:
		}
		w.pass <- nil
		wantErr(t, <-done, nil)
		w = <-g.writes
		w.pass <- nil
		wantErr(t, <-second, nil)
		commit(t, b)
		if got := x.m[cas.Sum(chunk(1))].Kind; got != cas.List {
			t.Error("in the index as", got)
		}
		s.Close()
	})
}

// answering is an index that asks once what to answer to Locate.
type answering struct {
	*memIndex
	asked atomic.Bool
	ask   func() error
}

func (x *answering) Locate(hashes []cas.Hash, locs []cas.Location) (err error) {
	if !x.asked.Swap(true) {
		err = x.ask()
	}
	return cmp.Or(err, x.memIndex.Locate(hashes, locs))
}

// looked checks a store while a Put stores a chunk, which goes on when the check is done. ok is false when
// it waits for that one: then he is let go.
func looked(t *testing.T, s *Store, goOn func(ok bool)) (found []damage.Finding) {
	t.Helper()
	checked := make(chan []damage.Finding, 1)
	go func() {
		_, fs := checkAll(t, s, CheckOptions{ReadData: true, Workers: 1})
		checked <- fs
	}()
	synctest.Wait()
	ok := len(checked) > 0
	if !ok {
		t.Error("the check waits for the Put of a chunk")
	}
	goOn(ok)
	return <-checked
}

// A Put may find the index damaged, and make it again when no check looks at a segment: so a
// check does not wait for him.
func TestCheckWhileIndexRots(t *testing.T) {
	opt := Options{NewIndex: func(error) (Locator, error) { return newIndex(), nil }}
	bubble(t, opt, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		b := s.Begin()
		through(t, g, b, 1)
		commit(t, b)
		wantErr(t, s.roll(), nil)
		asked, answer := make(chan bool), make(chan error)
		s.indexer.index = &answering{memIndex: x, ask: func() error {
			asked <- true
			return <-answer
		}}
		b = s.Begin()
		done := make(chan error, 1)
		go func() {
			fresh, err := b.Put(cas.Chunk, cas.Sum(chunk(1)), chunk(1), codec.Hint{})
			if err == nil && fresh {
				err = errors.New("stored twice")
			}
			done <- err
		}()
		<-asked
		found := looked(t, s, func(ok bool) {
			if !ok {
				answer <- nil
			} else {
				answer <- cas.ErrCorrupt
			}
		})
		wantErr(t, <-done, nil)
		if len(found) > 0 {
			t.Errorf("%v", found)
		}
		if s.indexer.generation() != 1 {
			t.Error("no new index")
		}
		commit(t, b)
		wantErr(t, s.Close(), nil)
	})
}

// What the index lost and is just being stored again is not lost, and neither is what is a delta of it.
func TestCheckWhileStoredAnew(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		b := s.Begin()
		for v := range 2 {
			done := make(chan bool, 1)
			go func() {
				_, delta := evolve(t, b, 0, v)
				done <- delta
			}()
			(<-g.writes).pass <- nil
			if delta := <-done; delta != (v > 0) {
				t.Error(v, delta)
			}
		}
		commit(t, b)
		wantErr(t, s.roll(), nil)
		base := cas.Sum(version(0, 0))
		delete(x.m, base)
		if _, found := checkAll(t, s, CheckOptions{ReadData: true}); len(found) != 2 ||
			found[0].Problem != damage.NotIndexed || found[1].Problem != damage.BadBase {
			t.Errorf("the base is not in the index: %v", found)
		}
		b = s.Begin()
		done := make(chan bool)
		go func() { put(t, b, cas.Chunk, version(0, 0)); close(done) }()
		w := <-g.writes
		found := looked(t, s, func(bool) { w.pass <- nil })
		if len(found) > 0 {
			t.Errorf("while it is stored again: %v", found)
		}
		<-done
		commit(t, b)
		if _, found := checkAll(t, s, CheckOptions{ReadData: true}); len(found) > 0 {
			t.Errorf("stored again: %v", found)
		}
		wantErr(t, s.Close(), nil)
	})
}

// dirHook calls a function before a folder is listed.
type dirHook struct {
	disk.FS
	list func()
}

func (d dirHook) ReadDir(name string) ([]string, error) {
	d.list()
	return d.FS.ReadDir(name)
}

// What is written in full while the index is made again, before what is in the index, is not on the disk yet.
func TestWrittenWhileIndexIsMade(t *testing.T) {
	y := newIndex()
	opt := Options{NewIndex: func(error) (Locator, error) { return y, nil }}
	bubble(t, opt, func(t *testing.T, m *disk.Mem, x *memIndex, g *gate, s *Store) {
		y.see = durable(t, m)
		a, b := s.Begin(), s.Begin()
		slow, slowPut := start(g, a, 2)
		through(t, g, b, 4)
		commit(t, b)
		g.FS = dirHook{g.FS, func() {
			slow.pass <- nil
			wantErr(t, <-slowPut, nil)
		}}
		wantErr(t, s.renew(0, cas.ErrCorrupt), nil)
		g.FS = m
		if _, ok := y.m[cas.Sum(chunk(2))]; ok {
			t.Error("in the index, and on no disk")
		}
		wantGet(t, s, chunk(4))
		commit(t, a)
		wantGet(t, s, chunk(2))
		s.Close()
	})
}
