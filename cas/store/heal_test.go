package store

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// A chunk found corrupt is stored afresh by the next Put, and found there, also by a rebuild.
func TestCorruptChunkHeals(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	good, bad := chunk(1), chunk(2)
	b := s.Begin()
	put(t, b, cas.Chunk, bad)
	put(t, b, cas.Chunk, good)
	commit(t, b)
	loc := x.m[cas.Sum(bad)]
	flip := func(off int64) {
		t.Helper()
		f, err := m.OpenFile(segment.Path(dir, loc.Segment), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		if _, err := f.ReadAt(p, off); err != nil {
			t.Fatal(err)
		}
		p[0] ^= 1
		if _, err := f.WriteAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	for _, off := range []int64{0, 16, 50, 66, 74, 78, 80, 80 + int64(loc.Stored) - 1} {
		flip(loc.Off + off)
		_, err := s.Get(cas.Sum(bad), nil)
		wantErr(t, err, cas.ErrCorrupt)
		var ce *cas.ChunkError
		if !errors.As(err, &ce) || ce.Loc != loc {
			t.Errorf("%#v", err)
		}
		wantGet(t, s, good)
		flip(loc.Off + off)
		wantGet(t, s, bad)
	}
	flip(loc.Off + segment.RecordHeaderSize)
	_, err := s.Get(cas.Sum(bad), nil)
	wantErr(t, err, cas.ErrCorrupt)
	b = s.Begin()
	if !put(t, b, cas.Chunk, bad) {
		t.Fatal("believed to be held")
	}
	commit(t, b)
	wantGet(t, s, bad)
	if put(t, s.Begin(), cas.Chunk, bad) {
		t.Error("stored a third time")
	}
	s.Close()
	s = open(t, m, newIndex(), Options{})
	wantGet(t, s, bad)
	wantGet(t, s, good)
}

func TestSegmentMissing(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 1})
	for i := range 3 {
		b := s.Begin()
		put(t, b, cas.Chunk, chunk(i))
		commit(t, b)
	}
	s.Close()
	if err := m.Remove(segment.Path(dir, 1)); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, x, Options{})
	_, err := s.Get(cas.Sum(chunk(0)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	wantErr(t, err, fs.ErrNotExist)
	wantGet(t, s, chunk(1))
	// What lay there is stored afresh, and the segment is named.
	var told []uint32
	s.Close()
	s = open(t, m, x, Options{Unreadable: func(n uint32, err error) {
		wantErr(t, err, fs.ErrNotExist)
		told = append(told, n)
	}})
	b := s.Begin()
	held := make([]bool, 2)
	if err := b.PutHeld(cas.Chunk, []cas.Hash{cas.Sum(chunk(0)), cas.Sum(chunk(1))}, held); err != nil ||
		held[0] || !held[1] {
		t.Error(held, err)
	}
	if !put(t, b, cas.Chunk, chunk(0)) || !slices.Equal(told, []uint32{1}) {
		t.Errorf("believed to be held; told of %v", told)
	}
	b.Release()
	s.Close()
	m.Remove(segment.Path(dir, 4))
	// The last one: the index knows too much.
	if err := m.Remove(segment.Path(dir, 3)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(m, dir, storeID, x, Options{})
	wantErr(t, err, ErrIndexAhead)
	s = open(t, m, newIndex(), Options{})
	wantGet(t, s, chunk(1))
}

func TestIndexFailure(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	x.fail = func() error { return syscall.ENOSPC }
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	wantErr(t, b.Commit(), syscall.ENOSPC)
	x.fail = nil
	// The record is in its segment; the next commit takes it along.
	b = s.Begin()
	if put(t, b, cas.Chunk, chunk(1)) {
		t.Error("written again")
	}
	commit(t, b)
	if len(x.m) != 1 {
		t.Error("not committed")
	}
	wantGet(t, s, chunk(1))
}
