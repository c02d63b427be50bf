package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
)

// Writers of chunks and deltas come upon a Close, on a disk that fails, with several segments that take
// records: what was committed is there after a crash and after the end, with the index that is left and with
// none.
func TestCloseUnderFaults(t *testing.T) {
	for seed := range uint64(15) {
		r, faults := rand.New(rand.NewPCG(seed, 19)), rand.New(rand.NewPCG(seed, 20))
		m, x := newMem(), newIndex()
		s, err := Open(crowded{m}, dir, storeID, x, Options{SegmentSize: 4 << 10, Tails: 3})
		if err != nil {
			t.Fatal(err)
		}
		s.appender.ahead = 1 << 10
		m.Inject(func(op disk.Op) *disk.Fault {
			switch {
			case op.Kind == disk.OpWrite && faults.IntN(25) == 0:
				return &disk.Fault{Err: syscall.ENOSPC, Short: faults.IntN(int(op.Len))}
			case op.Kind == disk.OpSync && faults.IntN(10) == 0:
				return &disk.Fault{Err: []error{syscall.ENOSPC, syscall.EIO}[faults.IntN(2)]}
			case op.Kind == disk.OpTruncate && faults.IntN(3) == 0:
				return &disk.Fault{Err: syscall.EIO}
			case op.Kind == disk.OpPunch && faults.IntN(3) == 0:
				return &disk.Fault{Err: syscall.EIO}
			}
			return nil
		})
		x.see = durable(t, m)
		var mu sync.Mutex
		type id struct{ line, v int }
		var committed []id
		var wg sync.WaitGroup
		for g := range 5 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(g)))
				for range 25 {
					b := s.Begin()
					var mine []id
					bad := false
					for range 1 + r.IntN(5) {
						i := id{r.IntN(3), r.IntN(12)}
						raw := version(i.line, i.v)
						hint, rel := relatedTo(i.line, i.v, i.v-1)
						if _, _, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, hint, rel); err != nil {
							bad = true
						}
						mine = append(mine, i)
					}
					if r.IntN(8) == 0 {
						b.TakeBack()
						b.Release()
						continue
					}
					if err := b.Commit(); err == nil && !bad {
						mu.Lock()
						committed = append(committed, mine...)
						mu.Unlock()
					}
					b.Release()
				}
			})
		}
		look := func(what string, m *disk.Mem, x *memIndex, committed []id) {
			s, err := Open(m, dir, storeID, x, Options{SegmentSize: 4 << 10})
			if err != nil {
				t.Fatal(what, err)
			}
			for again := range 2 {
				for _, i := range committed {
					if _, err := s.Get(cas.Sum(version(i.line, i.v)), nil); err != nil {
						t.Fatalf("%s, again %d: %v: %v\n%s", what, again, i, err, m)
					}
				}
				b := s.Begin()
				var all []id
				for line := range 3 {
					for v := range 12 {
						raw := version(line, v)
						if _, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
							t.Fatal(err)
						}
						all = append(all, id{line, v})
					}
				}
				wantErr(t, b.Commit(), nil)
				b.Release()
				committed = all
			}
			s.Close()
		}
		time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
		mu.Lock()
		had := committed[:len(committed):len(committed)]
		c := m.CrashClone(rand.New(rand.NewPCG(seed, 4)))
		mu.Unlock()
		look(fmt.Sprint("seed ", seed, ", crash, index lost"), c, newIndex(), had)
		if r.IntN(2) == 0 {
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			s.Close()
		}
		wg.Wait()
		m.Inject(nil)
		crashed := func(i uint64) *disk.Mem { return m.CrashClone(rand.New(rand.NewPCG(seed, i))) }
		look(fmt.Sprint("seed ", seed, ", crash"), crashed(5), x.clone(), committed)
		look(fmt.Sprint("seed ", seed, ", crash, index lost"), crashed(6), newIndex(), committed)
		s.Close()
		look(fmt.Sprint("seed ", seed, ", killed"), m, x.clone(), committed)
	}
}
