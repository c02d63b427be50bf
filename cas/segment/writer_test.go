package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

func TestConcurrentWriters(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := put(w, cas.Chunk, strings.Repeat("z", g*i)); err != nil {
					t.Error(err)
				}
				if s := w.Settled(); s > w.Size() {
					t.Errorf("settled to %d of %d", s, w.Size())
				}
			}
		})
	}
	wg.Wait()
	if !w.Idle() || w.Settled() != w.Size() {
		t.Error("not idle")
	}
	if got, tail := scanned(t, fileOf(t, m)); len(got) != 400 || tail != w.Size() {
		t.Errorf("%d records to %d", len(got), tail)
	}
	if _, err := w.Seal(sealTime); err != nil {
		t.Error(err)
	}
}

// Room of a failed write is used again where that is safe; else it stays a hole that no footer has.

func TestFailedWrites(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	a := mustPut(t, w, cas.Chunk, "a")
	reserve := func() Slot {
		s, err := w.Reserve(100)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	fail := func(s Slot) { w.Finish(s, &Record{}, syscall.ENOSPC) }

	s1 := reserve()
	fail(s1)
	if w.Size() != a.End() {
		t.Error("the last slot was not given back")
	}
	s1, s2, s3 := reserve(), reserve(), reserve()
	if w.Settled() != s1.Off {
		t.Error("settled past a slot")
	}
	fail(s1)
	if w.Settled() != a.End() || w.Size() != s3.End {
		t.Errorf("settled to %d, size %d", w.Settled(), w.Size())
	}
	fail(s3)
	if w.Size() != s3.Off {
		t.Error("the last slot was not given back")
	}
	fail(s2)
	if w.Size() != a.End() || w.Settled() != a.End() {
		t.Error("the holes before it were not given back")
	}

	s1 = reserve() // stays a hole
	m.Inject(disk.FailAt(m.Ops()+1, syscall.EIO))
	b := mustPut(t, w, cas.Chunk, "b")
	if _, err := put(w, cas.Chunk, strings.Repeat("torn", 10000)); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	m.Inject(nil)
	fail(s1)
	if _, err := w.Seal(sealTime); err != nil {
		t.Fatal(err)
	}
	p := fileOf(t, m)
	f, err := ReadFooter(bytes.NewReader(p), int64(len(p)), testID)
	if err != nil {
		t.Fatal(err)
	}
	var offs []int64
	if err := f.Each(bytes.NewReader(p), func(r *Record) error {
		offs = append(offs, r.Off)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(offs, []int64{a.Off, b.Off}) {
		t.Errorf("the footer has %v", offs)
	}
	got, _ := scanned(t, p)
	if want := []string{"chunk at 64", fmt.Sprintf("gap %d-%d zero=true", s1.Off, s1.End),
		fmt.Sprintf("chunk at %d", b.Off)}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestLimit(t *testing.T) {
	m := newMem(t)
	w, err := Create(m, dir, testID, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := put(w, cas.Chunk, strings.Repeat("x", 5000)); err != nil {
		t.Errorf("an empty segment takes any record: %v", err)
	}
	if _, err := put(w, cas.Chunk, "x"); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if _, err := Create(m, dir, testID, 1000); !errors.Is(err, os.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
}
