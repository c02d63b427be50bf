package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// workload runs batches over s, some sharing chunks, some aborted, some interleaved, and returns the chunks
// of those whose Commit returned nil. Errors end a batch and nothing else.
func workload(s *Store) (committed [][]byte) {
	type open struct {
		b   *Batch
		raw [][]byte
		err error
	}
	add := func(o *open, ids ...int) {
		for _, i := range ids {
			raw := chunk(i)
			kind := cas.Chunk
			if i%5 == 0 {
				kind = cas.Manifest
			}
			if _, err := o.b.Put(kind, cas.Sum(raw), raw, codec.Hint{}); err != nil {
				o.err = err
				return
			}
			o.raw = append(o.raw, raw)
		}
	}
	end := func(o *open) {
		defer o.b.Release()
		if err := o.b.Commit(); err == nil && o.err == nil {
			committed = append(committed, o.raw...)
		} else if err == nil {
			panic("a batch was committed of which a Put had failed")
		}
	}
	a := &open{b: s.Begin()}
	add(a, 1, 2, 3)
	end(a)
	a, b := &open{b: s.Begin()}, &open{b: s.Begin()}
	add(a, 3, 4, 5, 6)
	add(b, 5, 6, 7)
	end(b)
	add(a, 8)
	end(a)
	a = &open{b: s.Begin()}
	add(a, 9, 10)
	a.b.Release()
	a = &open{b: s.Begin()}
	add(a, 10, 11, 12, 13, 14, 15, 16)
	end(a)
	return committed
}

const workloadChunks = 18 // that workload commits when nothing fails

var small = Options{SegmentSize: 2 << 10, ReplayBatch: 4}

// verify opens the store as a crash left it and checks that all of committed is there, that nothing is there
// that cannot be read, and that the store goes on.
func verify(t *testing.T, what string, m *disk.Mem, x *memIndex, committed [][]byte) {
	t.Helper()
	s, err := Open(m, dir, storeID, x, small)
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, m)
	}
	for _, raw := range committed {
		if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%s: committed: %v\n%s", what, err, m)
		}
	}
	for i := range 20 {
		if got, err := s.Get(cas.Sum(chunk(i)), nil); err == nil && !bytes.Equal(got, chunk(i)) ||
			err != nil && !errors.Is(err, cas.ErrNotFound) {
			t.Fatalf("%s: chunk %d: %v\n%s", what, i, err, m)
		}
	}
	if st := s.Stats(); st.Damaged > 0 && x.mark != (cas.Watermark{}) && len(x.m) > 0 &&
		st.DamagedBytes == 0 {
		t.Fatalf("%s: %+v", what, st)
	}
	more := workload(s)
	if len(more) != workloadChunks {
		t.Fatalf("%s: the store takes only %d of %d chunks", what, len(more), workloadChunks)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if s, err = Open(m, dir, storeID, newIndex(), small); err != nil {
		t.Fatalf("%s: rebuild: %v", what, err)
	}
	for _, raw := range append(more, committed...) {
		if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%s: rebuilt: %v", what, err)
		}
	}
	if st := s.Stats(); st.Unsealed > 0 {
		t.Fatalf("%s: %+v", what, st)
	}
	s.Close()
}

// For every n: the machine crashes after operation n.
func TestCrashAfterEveryOperation(t *testing.T) {
	for n := 0; ; n++ {
		m, x := newMem(), newIndex()
		m.Inject(disk.CrashAfter(n))
		x.fail = func() error {
			if m.Ops() > n { // operations that were refused are counted too
				return disk.ErrCrashed
			}
			return nil
		}
		var committed [][]byte
		s, err := Open(m, dir, storeID, x, small)
		if err == nil {
			s.appender.ahead = 512
			committed = workload(s)
			err = s.Close()
		}
		for seed := range uint64(4) {
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(uint64(n), seed))
			}
			c := m.CrashClone(rng)
			what := fmt.Sprintf("crash after %d, seed %d", n, seed)
			verify(t, what+", index lost", c.CrashClone(nil), newIndex(), committed)
			verify(t, what, c.CrashClone(nil), x.clone(), committed)
			if testing.Short() {
				continue
			}
			// And again during every operation of the recovery.
			for k := 0; ; k++ {
				d, y := c.CrashClone(nil), x.clone()
				d.Inject(disk.CrashAfter(k))
				y.fail = func() error {
					if d.Ops() > k {
						return disk.ErrCrashed
					}
					return nil
				}
				s2, err2 := Open(d, dir, storeID, y, small)
				if err2 == nil {
					s2.Close()
				}
				done := d.Ops() <= k
				var rng *rand.Rand
				if k%2 == 1 {
					rng = rand.New(rand.NewPCG(uint64(k), seed))
				}
				verify(t, fmt.Sprintf("%s, again after %d", what, k), d.CrashClone(rng), y.clone(), committed)
				if done {
					break
				}
			}
		}
		if m.Ops() <= n {
			if err != nil || len(committed) != workloadChunks {
				t.Fatalf("without a crash: %d chunks, %v", len(committed), err)
			}
			t.Logf("%d operations", n)
			return
		}
	}
}

// For every n: operation n fails, and the store goes on.
func TestFailureOfEveryOperation(t *testing.T) {
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		for n := 0; ; n++ {
			m, x := newMem(), newIndex()
			m.Inject(disk.FailAt(n, fault))
			what := fmt.Sprintf("%v at %d", fault, n)
			s, err := Open(m, dir, storeID, x, small)
			if err != nil {
				if !errors.Is(err, fault) {
					t.Fatalf("%s: %v", what, err)
				}
				if s, err = Open(m, dir, storeID, x, small); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			committed := workload(s)
			for _, raw := range committed {
				if got, err := s.Get(cas.Sum(raw), nil); err != nil && !errors.Is(err, fault) ||
					err == nil && !bytes.Equal(got, raw) {
					t.Fatalf("%s: %v", what, err)
				}
			}
			if m.Ops() > n {
				if again := workload(s); len(again) != workloadChunks {
					t.Fatalf("%s: afterwards the store takes only %d of %d chunks", what, len(again),
						workloadChunks)
				}
			}
			for seed := range uint64(3) {
				var rng *rand.Rand
				if seed > 0 {
					rng = rand.New(rand.NewPCG(uint64(n), seed))
				}
				verify(t, what+", then a crash", m.CrashClone(rng), x.clone(), committed)
				verify(t, what+", then a crash, index lost", m.CrashClone(rng), newIndex(), committed)
			}
			if err := s.Close(); err != nil {
				t.Fatalf("%s: close: %v", what, err)
			}
			if m.Ops() <= n {
				break
			}
		}
	}
}

// Many writers, a fault now and then, then a crash.
func TestConcurrentFaults(t *testing.T) {
	concurrentFaults(t, Options{SegmentSize: 8 << 10}, func(*Store) {})
}

// crowded is a disk whose writers come upon each other.
type crowded struct{ *disk.Mem }

type crowdedFile struct{ disk.File }

func (d crowded) OpenFile(name string, flag int, perm os.FileMode) (disk.File, error) {
	f, err := d.Mem.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return crowdedFile{f}, nil
}

func (f crowdedFile) WriteAt(p []byte, off int64) (int, error) {
	for range 20 {
		runtime.Gosched()
	}
	return f.File.WriteAt(p, off)
}

// concurrentFaults has many writers put and commit, and calls look now and then.
func concurrentFaults(t *testing.T, opt Options, look func(*Store)) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 9))
		m, x := newMem(), newIndex()
		s, err := Open(crowded{m}, dir, storeID, x, opt)
		if err != nil {
			t.Fatal(err)
		}
		s.appender.ahead = 1 << 10
		m.Inject(func(op disk.Op) *disk.Fault { // under the Mem's lock, so r is safe
			switch {
			case op.Kind == disk.OpWrite && r.IntN(15) == 0:
				return &disk.Fault{Err: syscall.ENOSPC, Short: r.IntN(int(op.Len))}
			case (op.Kind == disk.OpSync || op.Kind == disk.OpSyncDir) && r.IntN(8) == 0:
				return &disk.Fault{Err: syscall.EIO}
			case (op.Kind == disk.OpTruncate || op.Kind == disk.OpOpen) && r.IntN(8) == 0:
				return &disk.Fault{Err: syscall.EIO}
			}
			return nil
		})
		x.see = durable(t, m)
		var mu sync.Mutex
		var committed [][]byte
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(g)))
				for range 15 {
					b := s.Begin()
					var mine [][]byte
					var failed error
					for range 6 {
						raw := chunk(r.IntN(200))
						if _, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
							failed = err
						}
						mine = append(mine, raw)
					}
					mu.Lock()
					look(s)
					mu.Unlock()
					if err := b.Commit(); err == nil {
						mu.Lock()
						committed = append(committed, mine...)
						mu.Unlock()
						if failed != nil && len(mine) == 6 {
							// Then the same chunk was put again with success; verified below.
							continue
						}
					}
				}
			})
		}
		wg.Wait()
		m.Inject(nil)
		for i := range 2 {
			var rng *rand.Rand
			if i > 0 {
				rng = rand.New(rand.NewPCG(seed, 5))
			}
			verify(t, fmt.Sprintf("seed %d", seed), m.CrashClone(rng), x.clone(), committed)
			verify(t, fmt.Sprintf("seed %d, index lost", seed), m.CrashClone(rng), newIndex(), committed)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		verify(t, fmt.Sprintf("seed %d, closed", seed), m.CrashClone(nil), x.clone(), committed)
	}
}

// durable checks that a crash at the time of an index commit leaves the records that it names.
func durable(t *testing.T, m *disk.Mem) func([]cas.Entry) {
	return func(entries []cas.Entry) {
		c := m.CrashClone(nil)
		for _, e := range entries {
			r, err := segment.Open(c, dir, segment.ID{Store: storeID, Number: e.Segment})
			if err != nil {
				t.Errorf("in the index and not on the disk: %v", err)
				return
			}
			var rec segment.Record
			if _, err := r.ReadRecord(e.Location, e.Hash, &rec,
				make([]byte, segment.RecordHeaderSize+e.Stored)); err != nil {
				t.Errorf("in the index and not on the disk: %v", err)
			}
			r.Close()
		}
	}
}
