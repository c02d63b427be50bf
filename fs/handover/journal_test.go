package handover

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestJournal(t *testing.T) {
	m := fresh(t, tiny)
	a := Entry{Unique: 2, Op: 3, Dir: 4, Dir2: 5, Ino: 6, Ino2: 7, Arg: 8, Name: "\x00\xff/", Name2: ""}
	b := Entry{Unique: 1<<63 - 2, Op: 1<<32 - 1, Name: strings.Repeat("\xff", 255),
		Name2: strings.Repeat("\x00", 255)}
	begun, ended, freed := m.Journal().Begin(a), m.Journal().Begin(b), m.Journal().Begin(Entry{Unique: 9})
	ended.Done(-2, 77)
	ended.Done(0, 78) // is not what was answered
	freed.Done(0, 0)
	freed.Free()
	freed.Free()
	if m.Journal().Find(2) != nil || len(slices.Collect(m.Journal().Left())) != 0 {
		t.Error("what this life began is no former one's")
	}

	m = next(t, m)
	j := m.Journal()
	if s := j.Find(2); s == nil || s.Entry() != a || s.Entry() != begun.Entry() {
		t.Errorf("%+v", s.Entry())
	} else if done, _, _ := s.Result(); done {
		t.Error("it was not done")
	}
	if s := j.Find(b.Unique); s == nil || s.Entry() != b {
		t.Errorf("%+v", s.Entry())
	} else if done, status, node := s.Result(); !done || status != -2 || node != 77 {
		t.Errorf("%v %d %d", done, status, node)
	}
	if j.Find(9) != nil || j.Find(0) != nil {
		t.Error("it was freed")
	}
	for range tiny.journal - 2 {
		if j.Begin(Entry{Unique: 100}) == nil {
			t.Error("full")
		}
	}
	if j.Begin(Entry{}) != nil {
		t.Error("not full")
	}
	var left []uint64
	for s := range j.Left() {
		left = append(left, s.Entry().Unique)
		s.Done(5, 6)
		if done, status, node := j.Find(2).Result(); len(left) == 1 && (!done || status != 5 || node != 6) {
			t.Error("what was begun before is not done")
		}
		s.Free()
	}
	if !slices.Equal(left, []uint64{a.Unique, b.Unique}) {
		t.Errorf("%v", left)
	}
	if j.Find(a.Unique) != nil || len(slices.Collect(j.Left())) != 0 {
		t.Error("they were freed")
	}
	for range 2 {
		if j.Begin(Entry{}) == nil {
			t.Error("full")
		}
	}
	if j.Begin(Entry{}) != nil || j.Begin(Entry{Name: strings.Repeat("n", 256)}) != nil {
		t.Error("not full")
	}
	// Of two entries for one request, that which is done counts; both are left.
	m = next(t, m)
	slices.Collect(m.Journal().Left())[3].Done(1, 2)
	m = next(t, m)
	if done, _, _ := m.Journal().Find(100).Result(); !done {
		t.Error("the one that was only begun counts")
	}
	if n := len(slices.Collect(m.Journal().Left())); n != 8 {
		t.Errorf("%d are left", n)
	}
	for range m.Journal().Left() {
		break
	}
}

func TestJournalNil(t *testing.T) {
	var s *Slot
	s.Done(1, 2)
	s.Free()
	if done, status, node := s.Result(); done || status != 0 || node != 0 || s.Entry() != (Entry{}) {
		t.Error("nothing has a result")
	}
}

func TestJournalConcurrent(t *testing.T) {
	m := fresh(t, tiny)
	for i := range uint64(4) {
		m.Journal().Begin(Entry{Unique: 1000 + i})
	}
	m = next(t, m)
	j := m.Journal()
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(2000) {
				s := j.Begin(Entry{Unique: g, Arg: i, Name: "n"})
				s.Done(int32(i), g)
				if e := s.Entry(); e.Unique != g || e.Arg != i {
					t.Errorf("%+v", e)
				}
				s.Free()
				if i == 1000 {
					j.Find(1000 + g).Free()
				}
				if f := j.Find(1000 + g); (f == nil) != (i >= 1000) {
					t.Error("a former entry")
				}
			}
		})
	}
	wg.Wait()
	if n := len(slices.Collect(next(t, m).Journal().Left())); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func BenchmarkJournal(b *testing.B) {
	m := fresh(b, standard)
	e := Entry{Unique: 2, Op: 9, Dir: 1, Ino: 5, Name: "model.safetensors.tmp", Name2: "model.safetensors"}
	b.ReportAllocs()
	for b.Loop() {
		s := m.Journal().Begin(e)
		s.Done(0, 5)
		s.Free()
	}
}
