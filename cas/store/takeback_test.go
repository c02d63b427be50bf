package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// tailSize is the length of the segments that are being written, and so of what is in them.
func tailSize(s *Store) (n int64) {
	tails, _ := s.appender.tails.All()
	for _, t := range tails {
		n += t.Size() - segment.FileHeaderSize
	}
	return n
}

// What a batch takes back is as if it had not been put: the room is used again. What others put, or wrote
// something against, stays.
func TestTakeBack(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	kept := tailSize(s)
	b.Mark()
	for i := 2; i < 40; i++ {
		put(t, b, cas.Chunk, chunk(i))
	}
	put(t, b, cas.Chunk, chunk(1))
	wrote := tailSize(s) - kept
	if got := b.TakeBack(); got != wrote || tailSize(s) != kept {
		t.Errorf("took back %d of %d bytes, %d stay of %d", got, wrote, tailSize(s), kept)
	}
	if got := s.Stats().Underway; got != kept {
		t.Errorf("%d bytes are under way, want %d", got, kept)
	}
	if _, err := s.Get(cas.Sum(chunk(2)), nil); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("what was taken back: %v", err)
	}
	if !put(t, b, cas.Chunk, chunk(3)) {
		t.Error("what was taken back is held")
	}
	if b.TakeBack() == 0 || b.TakeBack() != 0 {
		t.Error("a part is taken back more or less than once")
	}

	put(t, b, cas.Chunk, chunk(50))
	put(t, b, cas.Chunk, chunk(52))
	other := s.Begin()
	put(t, other, cas.Chunk, chunk(50))
	if other.Release(); b.TakeBack() != segment.Size(len(chunk(52))) {
		t.Error("not what the other did not put")
	}
	wantGet(t, s, chunk(50))
	commit(t, b)
	wantGet(t, s, chunk(1))

	// A delta of another batch, that was put and published, needs what it was written against; and what that
	// was written against.
	b = s.Begin()
	evolve(t, b, 0, 0)
	evolve(t, b, 0, 1)
	if _, delta := evolve(t, b, 0, 2); !delta {
		t.Fatal("no delta")
	}
	other = s.Begin()
	if _, delta := evolve(t, other, 0, 3); !delta {
		t.Fatal("no delta")
	}
	commit(t, other)
	b.TakeBack()
	b.Release()
	wantGet(t, s, version(0, 3))
	s.Close()
	s = open(t, m.CrashClone(nil), newIndex(), Options{})
	wantGet(t, s, version(0, 3))
	wantGet(t, s, chunk(1))
}

// What a batch takes back it pins no more, and needs no more. What was put before Mark it does, though it was
// put again since, as another kind.
func TestTakeBackOfAgain(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	b.Mark()
	put(t, b, cas.Manifest, chunk(1))
	put(t, b, cas.Chunk, chunk(2))
	m.Inject(failing(1, syscall.EIO, func(op disk.Op) bool { return op.Kind == disk.OpWrite }))
	if _, err := b.Put(cas.Chunk, cas.Sum(chunk(3)), chunk(3), codec.Hint{}); err == nil {
		t.Fatal("put, on a disk that fails")
	}
	m.Inject(nil)
	b.TakeBack()
	for i, want := range map[int]bool{1: true, 2: false, 3: false} {
		if got := s.Pinned(cas.Sum(chunk(i))); got != want {
			t.Errorf("chunk %d is pinned: %v", i, got)
		}
	}
	commit(t, b)
	wantGet(t, open(t, m.CrashClone(nil), x.clone(), Options{}), chunk(1))
}

// TestTakeBackRandomly: batches at the same time put and take back what they like, and whatever one of them
// committed is there, also in the segments alone.
func TestTakeBackRandomly(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m, x := newMem(), newIndex()
		s := open(t, m, x, small)
		type batch struct {
			*Batch
			sure, part map[int]bool // put before Mark, and after
		}
		begin := func() *batch { return &batch{s.Begin(), map[int]bool{}, map[int]bool{}} }
		open := []*batch{begin(), begin(), begin()}
		committed := map[int]bool{}
		raw := func(i int) []byte {
			if i < 30 {
				return version(i/10, i%10)
			}
			return chunk(i)
		}
		for range 120 {
			i := rng.IntN(len(open))
			b := open[i]
			switch n := rng.IntN(12); {
			case n < 7:
				c := rng.IntN(45)
				rel := cas.Related{}
				if c < 30 && c%10 > 0 {
					rel.Prev = cas.Sum(raw(c - 1))
				}
				_, _, err := b.PutRelated(cas.Chunk, cas.Sum(raw(c)), raw(c), codec.Hint{}, rel)
				if err != nil {
					t.Fatal(err)
				}
				b.part[c] = true
			case n == 7:
				b.Mark()
				maps.Copy(b.sure, b.part)
				clear(b.part)
			case n == 8:
				b.TakeBack()
				clear(b.part)
			case n == 9:
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			case n == 10:
				if err := b.Commit(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				b.Release()
				maps.Copy(committed, b.sure)
				maps.Copy(committed, b.part)
				open[i] = begin()
			default:
				if rng.IntN(2) == 0 {
					b.TakeBack()
				}
				b.Release()
				open[i] = begin()
			}
			for c := range committed {
				if got, err := s.Get(cas.Sum(raw(c)), nil); err != nil || !bytes.Equal(got, raw(c)) {
					t.Fatalf("seed %d: chunk %d: %v", seed, c, err)
				}
			}
		}
		all := slices.Collect(maps.Keys(committed))
		for what, y := range map[string]*memIndex{"with its index": x.clone(), "without": newIndex()} {
			s := openAgain(t, m.CrashClone(nil), y)
			for _, c := range all {
				if got, err := s.Get(cas.Sum(raw(c)), nil); err != nil || !bytes.Equal(got, raw(c)) {
					t.Fatalf("seed %d, crashed, %s: chunk %d: %v", seed, what, c, err)
				}
			}
			if st := s.Stats(); st.Damaged > 0 {
				t.Errorf("seed %d, crashed, %s: %+v", seed, what, st)
			}
		}
	}
}

func openAgain(t *testing.T, m *disk.Mem, x *memIndex) *Store { return open(t, m, x, small) }

// TestTakeBackCrash: for every n the machine crashes, or an operation fails, after operation n of a workload
// in which a batch takes back.
func TestTakeBackCrash(t *testing.T) {
	work := func(s *Store) (committed [][]byte) {
		b := s.Begin()
		defer b.Release()
		var sure [][]byte
		for round := range 3 {
			b.Mark()
			ok := true
			for i := range 4 {
				raw := chunk(4*round + i)
				_, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{})
				ok = ok && err == nil
			}
			switch {
			case round == 1 || !ok:
				b.TakeBack()
			default:
				for i := range 4 {
					sure = append(sure, chunk(4*round+i))
				}
			}
		}
		if b.Commit() == nil {
			committed = sure
		}
		return committed
	}
	for _, fault := range []error{nil, syscall.EIO, syscall.ENOSPC} {
		for n := 0; ; n++ {
			what := fmt.Sprintf("fault %v at %d", fault, n)
			m, x := newMem(), newIndex()
			s := open(t, m, x, small)
			start := m.Ops()
			if fault == nil {
				m.Inject(disk.CrashAfter(start + n))
				x.fail = func() error {
					if m.Ops() > start+n {
						return disk.ErrCrashed
					}
					return nil
				}
			} else {
				m.Inject(disk.FailAt(start+n, fault))
			}
			committed := work(s)
			done := m.Ops() <= start+n
			if fault != nil {
				m.Inject(nil)
				for _, raw := range committed {
					wantGet(t, s, raw)
				}
			}
			for seed := range uint64(3) {
				var rng *rand.Rand
				if seed > 0 {
					rng = rand.New(rand.NewPCG(uint64(n), seed))
				}
				c := m.CrashClone(rng)
				what := fmt.Sprintf("%s, seed %d", what, seed)
				verify(t, what+", index lost", c.CrashClone(nil), newIndex(), committed)
				verify(t, what, c.CrashClone(nil), x.clone(), committed)
			}
			if done {
				break
			}
		}
	}
}

// Of a batch whose commit the index did not take nothing is taken back: whether the index has it is not
// known. The next commit indexes it.
func TestTakeBackOfUnknown(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	x.fail = func() error { return syscall.ENOSPC }
	wantErr(t, b.Commit(), syscall.ENOSPC)
	if n := b.TakeBack(); n != 0 {
		t.Errorf("took back %d bytes", n)
	}
	b.Release()
	x.fail = nil
	wantGet(t, s, chunk(1))
	b = s.Begin()
	if put(t, b, cas.Chunk, chunk(1)) {
		t.Error("written twice")
	}
	commit(t, b)
	s = open(t, m.CrashClone(nil), x.clone(), Options{})
	wantGet(t, s, chunk(1))
}
