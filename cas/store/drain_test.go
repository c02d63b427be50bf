package store

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// slowDisk is a disk on which the fsyncs of one file wait until it is let.
type slowDisk struct {
	*disk.Mem
	name  string
	began chan struct{} // closed when the first one waits
	let   chan struct{}
	once  *sync.Once
}

func newSlowDisk(name string) slowDisk {
	return slowDisk{newMem(), name, make(chan struct{}), make(chan struct{}), new(sync.Once)}
}

func (d slowDisk) OpenFile(name string, flag int, perm os.FileMode) (disk.File, error) {
	f, err := d.Mem.OpenFile(name, flag, perm)
	if err != nil || name != d.name {
		return f, err
	}
	return slowFile{f, d}, nil
}

type slowFile struct {
	disk.File
	d slowDisk
}

func (f slowFile) Sync() error {
	f.d.once.Do(func() { close(f.d.began) })
	<-f.d.let
	return f.File.Sync()
}

// While a full segment is synced, a commit that needs nothing of it is done, and a crash keeps that. What is
// in the full one is not in the index before it is on the disk.
func TestCommitPassesByAFullSegment(t *testing.T) {
	d, x := newSlowDisk(segment.Path(dir, 1)), newIndex()
	x.see = durable(t, d.Mem)
	s := open(t, d, x, Options{SegmentSize: 2 << 10})
	a := s.Begin()
	n := 0
	for ; s.appender.tails.Last() < 2; n++ {
		put(t, a, cas.Chunk, chunk(n))
	}
	<-d.began // it is being drained
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(100))
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.Release()
	if x.mark.Segment != 1 {
		t.Errorf("the watermark is at %v, past what is on no disk", x.mark)
	}
	s2 := open(t, d.CrashClone(nil), x.clone(), Options{})
	wantGet(t, s2, chunk(100))
	if has(t, s2, 0) {
		t.Error("held, and on no disk")
	}
	close(d.let)
	commit(t, a)
	s2 = open(t, d.CrashClone(nil), newIndex(), Options{})
	for i := range n {
		wantGet(t, s2, chunk(i))
	}
	if _, err := footerOf(t, d, 1); err != nil {
		t.Errorf("the full segment is not sealed: %v", err)
	}
}

func footerOf(t *testing.T, fsys disk.FS, n uint32) (*segment.Footer, error) {
	t.Helper()
	r, err := segment.Open(fsys, dir, segment.ID{Store: storeID, Number: n})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return r.Footer()
}

// What is written is synced before a commit asks for it. When that fails, and the kernel has told of it so,
// the batches fail all the same, and nothing of it comes back.
func TestSyncAheadFails(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	s.appender.ahead = 2 << 10
	var syncs int
	m.Inject(func(op disk.Op) *disk.Fault {
		if op.Kind != disk.OpSync {
			return nil
		}
		if syncs++; syncs > 1 {
			return nil
		}
		return &disk.Fault{Err: syscall.EIO}
	})
	b := s.Begin()
	for i := 0; i < 20; i++ {
		put(t, b, cas.Chunk, chunk(i))
		s.appender.aside.Wait()
		if syncs > 0 {
			break
		}
	}
	if syncs != 1 {
		t.Fatalf("%d fsyncs before a commit", syncs)
	}
	wantErr(t, b.Commit(), syscall.EIO)
	b.Release()
	if has(t, s, 0) {
		t.Error("believed to be held")
	}
	b = s.Begin()
	for i := range 20 {
		put(t, b, cas.Chunk, chunk(i))
	}
	commit(t, b)
	s2 := open(t, m.CrashClone(nil), newIndex(), Options{})
	for i := range 20 {
		wantGet(t, s2, chunk(i))
	}
}

// A full segment whose fsync fails is abandoned, and counted once.
func TestFullSegmentIsAbandoned(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 2 << 10})
	m.Inject(failing(1, syscall.EIO, isSync))
	b := s.Begin()
	for n := 0; s.appender.tails.Last() < 2; n++ {
		put(t, b, cas.Chunk, chunk(n))
	}
	s.appender.aside.Wait()
	wantErr(t, b.Commit(), syscall.EIO)
	if st := s.Stats(); st.Abandoned != 1 || st.Unsealed != 0 || st.Segments != 2 {
		t.Errorf("%+v", st)
	}
	wantErr(t, s.Close(), nil)
}
