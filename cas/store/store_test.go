package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

func TestPutGet(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 8 << 10})
	chunks := [][]byte{{}, {7}, make([]byte, cas.ChunkSize), make([]byte, cas.MaxChunk)}
	for i := range 100 {
		chunks = append(chunks, chunk(i))
	}
	b := s.Begin()
	for _, raw := range chunks {
		if !put(t, b, cas.Chunk, raw) {
			t.Error("not fresh")
		}
		wantGet(t, s, raw) // before the commit as well
		if put(t, b, cas.Chunk, raw) {
			t.Error("fresh twice")
		}
	}
	commit(t, b)
	b = s.Begin()
	for _, raw := range chunks {
		if put(t, b, cas.Chunk, raw) {
			t.Error("fresh though committed")
		}
	}
	b.Release()
	check := func(s *Store) {
		t.Helper()
		for _, raw := range chunks {
			wantGet(t, s, raw)
		}
		st := s.Stats()
		if st.Chunks.Records != int64(len(chunks)) || st.Segments < 5 || st.Damaged+st.Unsealed > 0 ||
			st.Leftover > 0 {
			t.Errorf("%+v", st)
		}
	}
	check(s)
	before := s.Stats()
	none := cas.Sum([]byte("none"))
	has, err := s.Has([]cas.Hash{cas.Sum(chunks[5]), none})
	if err != nil || !has[0] || has[1] {
		t.Error(has, err)
	}
	_, err = s.Get(none, nil)
	wantErr(t, err, cas.ErrNotFound)
	var ce *cas.ChunkError
	if !errors.As(err, &ce) || ce.Hash != none {
		t.Errorf("%#v", err)
	}
	big := make([]byte, cas.MaxChunk+1)
	_, err = s.Begin().Put(cas.Chunk, cas.Sum(big), big, codec.Hint{})
	wantErr(t, err, cas.ErrTooLarge)

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(none, nil)
	wantErr(t, err, ErrClosed)
	_, err = s.Begin().Put(cas.Chunk, none, nil, codec.Hint{})
	wantErr(t, err, ErrClosed)

	// With its index, and with one that is rebuilt, in small steps.
	commits := x.commits
	s = open(t, m, x, Options{})
	check(s)
	if x.commits != commits {
		t.Error("a clean close left something to replay")
	}
	if got := s.Stats(); got.Totals != before.Totals {
		t.Errorf("%+v, was %+v", got, before)
	}
	s.Close()
	x = newIndex()
	s = open(t, m, x, Options{ReplayBatch: 7})
	check(s)
	if x.commits < len(chunks)/7 {
		t.Errorf("%d commits", x.commits)
	}
}

func TestKinds(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	raw := chunk(1)
	for i, step := range []struct {
		kind  cas.Kind
		fresh bool
		found cas.Kind
	}{
		{cas.Chunk, true, cas.Chunk},
		{cas.Manifest, true, cas.Manifest}, // a rebuild must find it as a manifest
		{cas.Chunk, false, cas.Manifest},
		{cas.Manifest, false, cas.Manifest},
	} {
		b := s.Begin()
		if got := put(t, b, step.kind, raw); got != step.fresh {
			t.Errorf("step %d: fresh %v", i, got)
		}
		if i > 0 { // the first two share a commit
			commit(t, b)
		}
		var loc [1]cas.Location
		if err := s.Locate([]cas.Hash{cas.Sum(raw)}, loc[:]); err != nil || loc[0].Kind != step.found {
			t.Errorf("step %d: %v, %v", i, loc[0], err)
		}
		wantGet(t, s, raw)
	}
	s.Close()
	x = newIndex()
	open(t, m, x, Options{})
	if x.m[cas.Sum(raw)].Kind != cas.Manifest {
		t.Error("rebuilt as", x.m[cas.Sum(raw)].Kind)
	}
	if _, err := s.Begin().Put(99, cas.Sum(raw), raw, codec.Hint{}); err == nil {
		t.Error("a kind that no replay would index was stored")
	}
}

func TestPins(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	old, fresh := chunk(1), chunk(2)
	b := s.Begin()
	put(t, b, cas.Chunk, old)
	commit(t, b)
	pinned := func(want bool) {
		t.Helper()
		if s.Pinned(cas.Sum(old)) != want || s.Pinned(cas.Sum(fresh)) != want {
			t.Errorf("pinned %v %v, want %v", s.Pinned(cas.Sum(old)), s.Pinned(cas.Sum(fresh)), want)
		}
	}
	pinned(false)
	b1, b2 := s.Begin(), s.Begin()
	for range 2 {
		put(t, b1, cas.Chunk, old)
		put(t, b1, cas.Chunk, fresh)
		put(t, b2, cas.Chunk, old)
		put(t, b2, cas.Chunk, fresh)
	}
	pinned(true)
	if err := b1.Commit(); err != nil {
		t.Fatal(err)
	}
	pinned(true)
	b2.Release()
	b2.Release()
	pinned(true) // committed, and not yet published
	b1.Release()
	pinned(false)
	wantErr(t, b1.Commit(), ErrBatchDone)
	_, err := b2.Put(cas.Chunk, cas.Sum(old), old, codec.Hint{})
	wantErr(t, err, ErrBatchDone)
}

func TestOpenRefuses(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	commit(t, b)
	s.Close()
	// One of an earlier version, whatever the index knows of it.
	older := []byte("ckptseg\n")
	older = binary.LittleEndian.AppendUint32(older, segment.Oldest-1)
	older = binary.LittleEndian.AppendUint32(older, 1)
	older = append(append(older, storeID[:]...), make([]byte, 28)...)
	older = binary.LittleEndian.AppendUint32(older, crc32.Checksum(older, crc32.MakeTable(crc32.Castagnoli)))
	f, err := m.OpenFile(segment.Path(dir, 1), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	header := make([]byte, len(older))
	_, rerr := f.ReadAt(header, 0)
	_, werr := f.WriteAt(older, 0)
	if err := errors.Join(rerr, werr); err != nil {
		t.Fatal(err)
	}
	for _, x := range []Locator{x, newIndex()} {
		_, err := Open(m, dir, storeID, x, Options{})
		wantErr(t, err, segment.ErrOlder)
		_, err = Open(m, dir, storeID, x, Options{ReadOnly: true})
		wantErr(t, err, segment.ErrOlder)
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	_, err = Open(m, dir, [16]byte{9}, x, Options{})
	wantErr(t, err, segment.ErrForeign)
	if err := m.Rename(segment.Path(dir, 1), segment.Path(dir, 2)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(m, dir, storeID, newIndex(), Options{})
	wantErr(t, err, segment.ErrForeign)
	boom := errors.New("boom")
	x = newIndex()
	x.fail = func() error { return boom }
	if err := m.Rename(segment.Path(dir, 2), segment.Path(dir, 1)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(m, dir, storeID, x, Options{})
	wantErr(t, err, boom)
}

// Readers of more segments than may be open at once.
func TestOpenFiles(t *testing.T) {
	m := newMem()
	s := open(t, m, newIndex(), Options{SegmentSize: 1, OpenFiles: 2})
	b := s.Begin()
	for i := range 20 {
		put(t, b, cas.Chunk, chunk(i))
	}
	commit(t, b)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			for range 500 {
				raw := chunk(r.IntN(20))
				if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := s.reader.files.Len(); n > 2 {
		t.Errorf("%d files open", n)
	}
}

func TestConcurrent(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 64 << 10})
	const workers, batches, each, distinct = 8, 20, 20, 600
	var fresh [workers]int
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for n := range batches {
				b := s.Begin()
				var in sync.WaitGroup
				var mu sync.Mutex
				var mine [][]byte
				for range 2 {
					ids := make([]int, each/2)
					for i := range ids {
						ids[i] = r.IntN(distinct)
					}
					in.Go(func() {
						for _, i := range ids {
							raw := chunk(i)
							f, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{})
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							if f {
								fresh[g]++
							}
							mine = append(mine, raw)
							mu.Unlock()
						}
					})
				}
				in.Wait()
				if n%7 == 3 {
					b.Release()
					continue
				}
				if err := b.Commit(); err != nil {
					t.Error(err)
					return
				}
				hs := make([]cas.Hash, len(mine))
				locs := make([]cas.Location, len(mine))
				for i := range mine {
					hs[i] = cas.Sum(mine[i])
				}
				if err := x.Locate(hs, locs); err != nil {
					t.Error(err)
				}
				for i := range locs {
					if locs[i].Segment == 0 {
						t.Error("committed and not in the index")
						return
					}
				}
				b.Release()
				raw := mine[r.IntN(len(mine))]
				if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	var total int
	for _, n := range fresh {
		total += n
	}
	if st := s.Stats(); st.Chunks.Records != int64(total) || len(x.m) != total {
		t.Errorf("%d fresh, %d records, %d in the index", total, st.Chunks.Records, len(x.m))
	}
	if len(s.appender.pending)+len(s.pins.count)+len(s.appender.written) > 0 {
		t.Errorf("left: %d pending, %d pinned, %d written", len(s.appender.pending), len(s.pins.count),
			len(s.appender.written))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	y := newIndex()
	open(t, m, y, Options{})
	if len(y.m) != total {
		t.Errorf("rebuilt %d of %d", len(y.m), total)
	}
}
