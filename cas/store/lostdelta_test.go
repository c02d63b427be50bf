package store

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// watchedDisk calls a function before each fsync of a file.
type watchedDisk struct {
	*disk.Mem
	sync func(name string)
}

type watchedFile struct {
	disk.File
	sync func()
}

func (d watchedDisk) OpenFile(name string, flag int, perm os.FileMode) (disk.File, error) {
	f, err := d.Mem.OpenFile(name, flag, perm)
	return watchedFile{f, func() { d.sync(name) }}, err
}

func (f watchedFile) Sync() error {
	f.sync()
	return f.File.Sync()
}

// A delta whose base was lost is in no footer: a start believes a footer, and of this delta the disk need not
// have all when it has the footer.
func TestLostDeltaIsInNoFooter(t *testing.T) {
	for seed := range uint64(300) {
		x := newIndex()
		r := rand.New(rand.NewPCG(seed, 1))
		var crashed *disk.Mem // in the last fsync of segment 2
		m := newMem()
		d := watchedDisk{m, func(name string) {
			if name == segment.Path(dir, 2) {
				crashed = m.CrashClone(r)
			}
		}}
		s := open(t, d, x, Options{})
		a := s.Begin()
		evolve(t, a, 1, 0)
		wantErr(t, s.appender.tails.Retire(), nil)
		if _, delta := evolve(t, a, 1, 1); !delta {
			t.Fatal("no delta")
		}
		m.Inject(func(op disk.Op) *disk.Fault {
			if op.Kind == disk.OpSync && op.Name == segment.Path(dir, 1) {
				return &disk.Fault{Err: syscall.EIO}
			}
			return nil
		})
		first := s.appender.written[0].tail
		s.appender.sync(first, first.Finished()) // ahead of a commit
		wantErr(t, a.Commit(), syscall.EIO)
		a.Release()
		wantErr(t, m.SyncDir(dir), nil)
		wantErr(t, s.roll(), nil)
		s.Close()
		if crashed == nil {
			t.Fatal("no fsync")
		}

		s = open(t, crashed, newIndex(), Options{})
		b := s.Begin()
		for v := range 2 {
			evolve(t, b, 1, v)
		}
		commit(t, b)
		for v := range 2 {
			if _, err := s.Get(cas.Sum(version(1, v)), nil); err != nil {
				t.Errorf("seed %d, %d: %v", seed, v, err)
			}
		}
	}
}
