package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
)

// rotting is an index that proves damaged when it is told to.
type rotting struct {
	*memIndex
	rotten atomic.Bool
}

func (x *rotting) ask() error {
	if x.rotten.Load() {
		return fmt.Errorf("index: %w", cas.ErrCorrupt)
	}
	return nil
}

func (x *rotting) Locate(hashes []cas.Hash, locs []cas.Location) error {
	return cmp.Or(x.ask(), x.memIndex.Locate(hashes, locs))
}

func (x *rotting) Commit(entries []cas.Entry, mark cas.Watermark) error {
	return cmp.Or(x.ask(), x.memIndex.Commit(entries, mark))
}

func (x *rotting) Remove(entries []cas.Entry) error {
	return cmp.Or(x.ask(), x.memIndex.Remove(entries))
}

func (x *rotting) Watermark() (cas.Watermark, error) {
	m, err := x.memIndex.Watermark()
	return m, cmp.Or(x.ask(), err)
}

func (x *rotting) ForEach(from, to uint16, f func(cas.Entry) error) error {
	return cmp.Or(x.ask(), x.memIndex.ForEach(from, to, f))
}

// The index proves damaged again and again while chunks are put, read, swept and checked: nothing but a sweep
// or a check notices.
func TestIndexRotsUnderLoad(t *testing.T) {
	m := newMem()
	var mu sync.Mutex
	index := &rotting{memIndex: newIndex()}
	renewed := 0
	// One operation bears maxRenewals of them. So every writer ends a round between two.
	rounds, since := [3]int{}, [3]int{-1, -1, -1}
	s := open(t, m, index, Options{SegmentSize: 16 << 10, NewIndex: func(error) (Locator, error) {
		mu.Lock()
		defer mu.Unlock()
		renewed++
		index = &rotting{memIndex: newIndex()}
		return index, nil
	}})
	stop := make(chan struct{})
	var writers, others sync.WaitGroup
	committed := make([]map[int]bool, 3)
	for g := range committed {
		committed[g] = map[int]bool{}
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 60 {
				b := s.Begin()
				var ids []int
				for range 8 {
					i := r.IntN(250)
					raw := chunk(i)
					if _, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
						t.Error(err)
					}
					ids = append(ids, i)
				}
				if err := b.Commit(); err != nil {
					t.Error(err)
				}
				for _, i := range ids {
					if got, err := s.Get(cas.Sum(chunk(i)), nil); err != nil || !bytes.Equal(got, chunk(i)) {
						t.Errorf("chunk %d: %v", i, err)
					}
					if i%2 == 0 {
						committed[g][i] = true
					}
				}
				b.Release()
				mu.Lock()
				rounds[g]++
				if rounds[0] > since[0] && rounds[1] > since[1] && rounds[2] > since[2] {
					index.rotten.Store(true)
					since = rounds
				}
				mu.Unlock()
			}
			mu.Lock()
			rounds[g] = math.MaxInt
			mu.Unlock()
		})
	}
	others.Go(func() {
		for i := 0; ; i++ {
			_, err := s.Sweep(t.Context(), SweepOptions{MaxUnused: float64(i%3) / 2},
				func(_ context.Context, m *Marking) error {
					for i := 0; i < 250; i += 2 { // more than there are
						m.Keep(cas.Sum(chunk(i)))
					}
					return nil
				})
			if err != nil && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, errRenewed) {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	others.Go(func() {
		for {
			if _, err := s.Check(t.Context(), CheckOptions{ReadData: true}); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	writers.Wait()
	close(stop)
	others.Wait()
	mu.Lock()
	index.rotten.Store(false)
	mu.Unlock()
	t.Logf("renewed %d times", renewed)
	if renewed == 0 {
		t.Error("never renewed")
	}
	check := func(s *Store) {
		t.Helper()
		for _, ids := range committed {
			for i := range ids {
				wantGet(t, s, chunk(i))
			}
		}
		if _, fs := checkAll(t, s, CheckOptions{ReadData: true}); slices.ContainsFunc(fs,
			func(f damage.Finding) bool { return !f.Problem.Harmless() }) {
			t.Errorf("%v", fs)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(open(t, m, index.memIndex, Options{}))
	check(open(t, m.CrashClone(nil), newIndex(), Options{}))
}
