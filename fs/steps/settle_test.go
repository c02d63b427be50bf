package steps

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/fs/tree"
)

// What is noted of the tree is there for the next process until something changes, and is not noted while
// something changes, is written, or changed since it was looked at.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, tree.TreeDir), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	open := func() *Steps {
		w, err := tree.OpenWriting(d, false, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return New(Options{Writing: w})
	}
	note := cas.Sum([]byte("all"))
	for _, c := range []struct {
		when   string
		before func(s *Steps) // Settle, behind Alterations
		after  func(s *Steps)
		noted  bool
	}{
		{when: "nothing changed", noted: true},
		{when: "changed before", before: func(s *Steps) { s.Changed(1) }},
		{when: "begins before", before: (*Steps).Alter},
		{when: "a change began and ended", before: func(s *Steps) { s.Alter(); s.Altered() }},
		{when: "changed", after: func(s *Steps) { s.Changed(1) }},
		{when: "begins", after: (*Steps).Alter},
		{when: "written", after: func(s *Steps) { s.Begin(1) }},
	} {
		s := open()
		n := s.Alterations()
		if c.before != nil {
			c.before(s)
		}
		s.Settle(note, n)
		if c.after != nil {
			c.after(s)
		}
		if got := open().Settled(); (got == note) != c.noted || !c.noted && !got.IsZero() {
			t.Errorf("%s: %v", c.when, got)
		}
		s.Altered()
	}
	s := open()
	s.Begin(7)
	if s.Settle(note, s.Alterations()); !open().Settled().IsZero() {
		t.Error("noted while a file is written")
	}
	s = open()
	s.Alter()
	if s.Settle(note, s.Alterations()); !open().Settled().IsZero() {
		t.Error("noted while something changes")
	}
}

// A change that is told of while somebody looks is not settled by that look: it may not have been seen.
func TestSettleBesideChange(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, tree.TreeDir), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w, err := tree.OpenWriting(d, false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := New(Options{Writing: w})
	s.watch.mu.Lock() // as a look has it that takes what changed
	told := make(chan struct{})
	go func() {
		defer close(told)
		s.Changed(1)
	}()
	for s.Alterations() == 0 {
		runtime.Gosched()
	}
	n := s.Alterations()
	s.watch.mu.Unlock()
	<-told
	s.Settle(cas.Sum([]byte("all")), n)
	again, err := tree.OpenWriting(d, false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !again.Was.IsZero() {
		t.Error("noted beside a change that was not seen")
	}
}
