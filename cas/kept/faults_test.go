package kept_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
	"ckptfs/index/chunks"
)

// newRigOn is a store on a disk, which starts without an index, and what ends it.
func newRigOn(t *testing.T, m *disk.Mem) (r *rig, end func()) {
	t.Helper()
	id := [16]byte{1}
	for _, err := range []error{m.MkdirAll("/store", 0o755), m.SyncDir("/")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	index := filepath.Join(t.TempDir(), "index.db")
	x, err := chunks.Open(index, chunks.Options{StoreID: id, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(m, "/store/segments", id, x, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r = &rig{t, s, map[cas.Hash][]byte{}, rand.NewChaCha8([32]byte{1})}
	return r, func() {
		s.Close() // whose disk may have crashed
		x.Close()
		os.Remove(index) // there are hundreds
	}
}

// TestApartFaults: for every n, operation n of storing apart what was computed of removed files fails, or the
// machine crashes there. Every chunk that a file names can be read then, also by a store that starts without
// an index, and it is done when it is tried again. CKPTFS_KILLS=all takes every n, in place of every third.
func TestApartFaults(t *testing.T) {
	ready := func(m *disk.Mem) (r *rig, end func()) {
		r, end = newRigOn(t, m)
		a := r.chunks(6, 64<<10)
		for i := range 3 {
			r.compute(4<<10, a[2*i], a[2*i+1])
		}
		b := r.chunks(1, 64<<10)
		r.compute(4<<10, b[0])
		r.remove(a...)
		if err := r.s.Flush(); err != nil {
			t.Fatal(err)
		}
		return r, end
	}
	same := func(r *rig, what string, n int) {
		t.Helper()
		for h, raw := range r.named {
			if got, err := r.s.Get(h, nil); err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("%s at operation %d: %v", what, n, err)
			}
		}
	}
	step := 3
	if testing.Short() {
		step = 15
	}
	if os.Getenv("CKPTFS_KILLS") == "all" {
		step = 1
	}
	for _, fault := range []error{nil, syscall.ENOSPC, syscall.EIO} {
		what := "a crash"
		if fault != nil {
			what = fault.Error()
		}
		done := false
		for n := 0; !done; n += step {
			m := disk.NewMem()
			r, end := ready(m)
			start := m.Ops()
			if fault == nil {
				m.Inject(disk.CrashAfter(start + n))
			} else {
				m.Inject(disk.FailAt(start+n, fault))
			}
			stored, err := r.apart()
			done = m.Ops() <= start+n
			if done && (err != nil || stored != 3) {
				t.Fatalf("without a fault %d are stored alone, %v", stored, err)
			}
			if fault != nil {
				m.Inject(nil)
				same(r, what, n)
			}
			named := r.named
			seeds := uint64(1)
			if fault == nil {
				seeds = 3 // what a crash leaves of unsynced writes
			}
			for seed := range seeds {
				var rng *rand.Rand
				if seed > 0 {
					rng = rand.New(rand.NewPCG(uint64(n), seed))
				}
				r, end := newRigOn(t, m.CrashClone(rng))
				r.named = named
				same(r, what+", and a start", n)
				if _, err := r.apart(); err != nil {
					t.Fatalf("%s at operation %d, and again: %v", what, n, err)
				}
				same(r, what+", and again", n)
				if k, sums := r.find(); sums.Held != 0 {
					t.Fatalf("%s at operation %d, and again: %v, %+v", what, n, k.Empty(), sums)
				}
				end()
			}
			end()
			if done {
				t.Logf("%s: %d operations", what, n)
			}
		}
	}
}
