package store

import (
	"context"
	"errors"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// Columns that an fsync lost take with them what was stored with their help, whichever batch put that.
func TestLowRankFailsWithItsColumns(t *testing.T) {
	m := newMem()
	s := open(t, m, newIndex(), Options{SegmentSize: 1}) // a record each
	alone(t, s, [2]int{0, 0}, [2]int{0, 3})
	lost := segment.Path(dir, s.appender.tails.Last()+1)
	m.Inject(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpSync && op.Name == lost {
			return &disk.Fault{Err: errors.New("lost")}
		}
		return nil
	})
	b, c := s.Begin(), s.Begin()
	lowRank(t, b, 0)
	if _, _, err := putVersion(c, adapted, 0, -1); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(); err == nil {
		t.Error("committed without its columns")
	}
	_ = c.Commit() // it may have stored it afresh
	for _, b := range []*Batch{b, c} {
		b.Release()
	}
	m.Inject(nil)
	b = s.Begin()
	for _, v := range []int{0, 3} {
		if _, _, err := putVersion(b, adapted, v, -1); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, b)
	for range 2 {
		wantGet(t, s, version(adapted, 0))
		wantGet(t, s, version(adapted, 3))
		s.Close()
		s = open(t, m, newIndex(), Options{})
	}
}

// Rotten columns damage all that is stored with their help, which a check tells; what is saved again after
// one read failed is whole, read or not.
func TestLowRankColumnsDamaged(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for _, v := range []int{0, 3, 1} {
		alone(t, s, [2]int{0, v})
		lowRank(t, b, v)
	}
	commit(t, b)
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	bad := cas.Sum(columnsOf(0))
	patch(t, m, segment.Path(dir, x.m[bad].Segment), x.m[bad].Off+segment.RecordHeaderSize+40, 'X', 'X', 'X',
		'X')
	found := map[cas.Hash]damage.Problem{}
	if _, err := s.Check(t.Context(), CheckOptions{ReadData: true,
		Found: func(f damage.Finding) { found[f.Hash] = f.Problem }}); err != nil {
		t.Fatal(err)
	}
	if len(found) != 3 || found[bad] != damage.BadChunk ||
		found[cas.Sum(version(adapted, 0))] != damage.BadBase ||
		found[cas.Sum(version(adapted, 3))] != damage.BadBase {
		t.Errorf("%v", found)
	}
	_, err := s.Get(cas.Sum(version(adapted, 0)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	wantGet(t, s, version(adapted, 1))
	b = s.Begin()
	for _, v := range []int{0, 3} {
		if fresh, id, err := putVersion(b, adapted, v, -1); !fresh || codec.NeedsBase(id) || err != nil {
			t.Error(fresh, id, err)
		}
	}
	commit(t, b)
	for _, v := range []int{0, 1, 3} {
		wantGet(t, s, version(adapted, v))
	}
	// What comes next has columns again.
	alone(t, s, [2]int{0, 6})
	b = s.Begin()
	lowRank(t, b, 6)
	commit(t, b)
	wantGet(t, s, version(adapted, 6))
}

// For every n: the machine crashes after operation n of saves, compactions and sweeps of what is of low rank.
// What has a name can be read, and all of it put again.
func TestLowRankCrash(t *testing.T) {
	small := Options{SegmentSize: 2 << 10, ReplayBatch: 4}
	ctx := context.Background()
	run := func(s *Store) (named map[[2]int]bool) {
		named = map[[2]int]bool{}
		save := func(ids ...[2]int) {
			b := s.Begin()
			defer b.Release()
			for _, id := range ids {
				if _, _, err := putVersion(b, id[0], id[1], id[1]-1); err != nil {
					return
				}
			}
			if b.Commit() == nil {
				for _, id := range ids {
					named[id] = true
				}
			}
		}
		sweep := func(gone ...[2]int) {
			for _, id := range gone {
				delete(named, id)
			}
			_, _ = s.Sweep(ctx, SweepOptions{MaxUnused: 0.4}, keeping(named))
		}
		save([2]int{0, 0}, [2]int{0, 1}, [2]int{adapted, 0})
		save([2]int{adapted, 1}, [2]int{0, 2}, [2]int{0, 3}, [2]int{adapted, 3})
		sweep([2]int{0, 0}, [2]int{adapted, 0}, [2]int{0, 3}) // 3 has the columns of 0
		save([2]int{columned, 1}, [2]int{adapted, 2})
		sweep([2]int{adapted, 3}, [2]int{adapted, 1})
		// What was stored alone becomes of low rank.
		b := s.Begin()
		raw := version(adapted, 4)
		_, err := b.Put(cas.Chunk, cas.Sum(raw), raw, fp32)
		if err == nil && b.Commit() == nil {
			named[[2]int{adapted, 4}] = true
		}
		b.Release()
		save([2]int{0, 4})
		_, _ = recode(ctx, s, slices.Concat(line(0, 5), line(adapted, 5), line(columned, 2)), stepBefore, nil)
		sweep([2]int{0, 4}, [2]int{columned, 1})
		return named
	}
	whole := map[[2]int]bool{{0, 1}: true, {0, 2}: true, {adapted, 2}: true, {adapted, 4}: true}
	crashAnywhere(t, small, 4, run, whole)
	s := open(t, newMem(), newIndex(), small)
	if run(s); lowRanksOf(t, s) != 2 {
		t.Errorf("%d are of low rank", lowRanksOf(t, s))
	}
}
