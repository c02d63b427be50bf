package store

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// After an fsync that failed nothing comes back that was not durable: not by a later fsync, not from the page
// cache.
func TestFailedSync(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	commit(t, b)

	a, c := s.Begin(), s.Begin()
	put(t, a, cas.Chunk, chunk(2))
	put(t, c, cas.Chunk, chunk(2))
	put(t, c, cas.Chunk, chunk(4))
	m.Inject(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpSync {
			return &disk.Fault{Err: syscall.EIO}
		}
		return nil
	})
	wantErr(t, a.Commit(), syscall.EIO)
	m.Inject(nil)
	wantErr(t, c.Commit(), syscall.EIO) // its chunks went the same way
	for i, want := range []bool{1: true, 2: false, 4: false} {
		if has, err := s.Has([]cas.Hash{cas.Sum(chunk(i))}); err != nil || has[0] != want {
			t.Errorf("chunk %d: %v %v", i, has, err)
		}
	}
	b = s.Begin()
	if !put(t, b, cas.Chunk, chunk(2)) {
		t.Error("believed to be held")
	}
	commit(t, b)
	if loc := x.m[cas.Sum(chunk(2))]; loc.Segment != 2 {
		t.Errorf("written to segment %d", loc.Segment)
	}
	if st := s.Stats(); st.Abandoned != 1 || st.Chunks.Records != 2 {
		t.Errorf("%+v", st)
	}
	// The daemon is killed, the machine runs on: the page cache must not vouch for what the disk never got.
	y := newIndex()
	s2 := open(t, m, y, Options{})
	if _, ok := y.m[cas.Sum(chunk(4))]; ok {
		t.Error("a record came back from the page cache")
	}
	wantGet(t, s2, chunk(1))
	wantGet(t, s2, chunk(2))
}

// What a killed process left in the page cache is synced before the index hears of it.
func TestReplaySyncs(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	put(t, b, cas.Chunk, chunk(2))
	x2 := x.clone()
	x2.see = durable(t, m)
	open(t, m, x2, Options{ReplayBatch: 1}) // with s never closed
	if len(x2.m) != 2 {
		t.Fatal("not replayed")
	}
}

// Damage in a segment without a footer costs the damaged record alone, and is counted.
func TestDamageIsCounted(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for i := range 10 {
		put(t, b, cas.Chunk, chunk(i))
	}
	commit(t, b)
	b = s.Begin()
	put(t, b, cas.Chunk, chunk(10)) // not committed: behind the watermark
	put(t, b, cas.Chunk, chunk(11))
	spoil := func(m *disk.Mem, ids ...int) {
		f, err := m.OpenFile(segment.Path(dir, 1), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range ids {
			var loc [1]cas.Location
			if err := s.Locate([]cas.Hash{cas.Sum(chunk(i))}, loc[:]); err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("XXXX"), loc[0].Off); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	spoil(m, 3, 4, 7, 9, 10)
	c := m.CrashClone(nil)
	y := x.clone()
	s2 := open(t, c, y, Options{})
	st := s2.Stats()
	if st.Damaged != 3 || st.DamagedBytes == 0 || st.Leftover == 0 {
		t.Errorf("%+v", st)
	}
	for i := range 12 {
		got, err := s2.Get(cas.Sum(chunk(i)), nil)
		switch {
		case slices.Contains([]int{3, 4, 7, 9}, i):
			wantErr(t, err, cas.ErrCorrupt) // the index still knows of it
		case i == 10:
			wantErr(t, err, cas.ErrNotFound)
		case err != nil || !bytes.Equal(got, chunk(i)):
			t.Errorf("chunk %d: %v", i, err)
		}
	}
}

// Commits that come while one is under way share the next one.
func TestGroupCommit(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	const n = 20
	var batches [n]*Batch
	for i := range batches {
		batches[i] = s.Begin()
		put(t, batches[i], cas.Chunk, chunk(i))
	}
	s.appender.flushing.Lock() // a commit under way
	var wg sync.WaitGroup
	for _, b := range batches {
		wg.Go(func() {
			if err := b.Commit(); err != nil {
				t.Error(err)
			}
		})
	}
	s.appender.flushing.Unlock()
	wg.Wait()
	if x.commits != 1 {
		t.Errorf("%d commits of the index for %d batches", x.commits, n)
	}
}
