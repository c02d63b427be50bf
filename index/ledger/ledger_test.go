package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/index/lineage"
)

func entry(seq, parent uint64, how lineage.How, owners ...uint64) *Entry {
	bytes := make([]int64, len(owners))
	for i := range bytes {
		bytes[i] = 100
	}
	return &Entry{
		Model:   lineage.Model{Seq: seq, Parent: parent, How: how, Owned: lineage.Shares(owners, bytes)},
		Version: 1, Ino: 1000 + seq, Manifest: cas.Sum([]byte{byte(seq)}), Path: "runs/a/1/m",
		Time: int64(seq), Size: 5, Tensors: len(owners), Owners: owners,
		Marks: []uint64{seq, 42},
	}
}

func coded(t testing.TB, e *Entry) *Entry {
	t.Helper()
	p, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	d, err := Decode(p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRecord(t *testing.T) {
	e := entry(7, 3, lineage.Declared, 3, 3, 7)
	e.MergedFrom = []uint64{2}
	e.Graph, e.GraphFrom = []cas.Hash{cas.Sum(nil)}, "arch.json"
	if d := coded(t, e); !reflect.DeepEqual(d, e) {
		t.Errorf("%+v\n%+v", d, e)
	}
	dead := &Entry{Model: lineage.Model{Seq: 9, RetiredAt: 5}, Version: 3, Path: "x"}
	if d := coded(t, dead); !reflect.DeepEqual(d, dead) {
		t.Errorf("%+v\n%+v", d, dead)
	}
	p, _ := e.Encode()
	for n := range p {
		if _, err := Decode(p[:n]); !errors.Is(err, cas.ErrCorrupt) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	p[3] = '2'
	if _, err := Decode(p); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	p, _ := entry(7, 3, lineage.Declared, 3, 3, 7).Encode()
	f.Add(p)
	f.Fuzz(func(t *testing.T, p []byte) {
		e, err := Decode(p)
		if err != nil {
			return
		}
		if _, err := e.Encode(); err != nil {
			t.Fatal(err)
		}
	})
}

// A ledger is what its records say, in whatever order they are found, old versions among them.
func TestRebuilt(t *testing.T) {
	l, _ := New(nil)
	for _, e := range []*Entry{entry(1, 0, lineage.None, 1, 1), entry(2, 1, lineage.Previous, 1, 2),
		entry(3, 2, lineage.Declared, 1, 3)} {
		if err := l.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	records := []*Entry{}
	save := func() {
		for _, e := range l.Changed() {
			records = append([]*Entry{coded(t, e)}, records...)
			l.Recorded(e, cas.Sum([]byte{1}))
		}
	}
	save()
	if len(l.Changed()) != 0 || len(records) != 3 {
		t.Fatalf("%d records, %d left", len(records), len(l.Changed()))
	}
	var like []uint64
	for _, e := range l.Like([]uint64{42, 2, 77}) {
		like = append(like, e.Seq)
	}
	if !slices.Equal(like, []uint64{2, 3, 1}) {
		t.Errorf("like %d", like)
	}
	if !l.Retire(1, 50) || l.Retire(1, 60) || l.Retire(9, 1) {
		t.Error("retire")
	}
	if err := l.Add(entry(5, 0, lineage.None)); err == nil {
		t.Error("a number was left out")
	}
	if l.Sweep() != 0 { // it owns a tensor, and has a child
		t.Error("a tombstone in use was forgotten")
	}
	l.Move(l.Get(3), 77, "runs/b/1/m")
	save()
	again, problems := New(records)
	if len(problems) > 0 || again.Next() != 4 || again.ByIno(77) == nil || again.ByIno(1001) != nil ||
		again.Get(1).RetiredAt != 50 {
		t.Errorf("%v, %+v", problems, again)
	}
	if a, ok := again.Forest.MRCA(2, 3); !ok || a.Seq != 2 {
		t.Errorf("%+v", a)
	}
	l.Retire(2, 51)
	l.Retire(3, 52)
	if n := l.Sweep(); n != 3 || len(l.At("")) != 0 || l.Next() != 4 {
		t.Errorf("%d forgotten, %d left", n, len(l.At("")))
	}

	// A parent whose record is lost.
	lost, problems := New([]*Entry{coded(t, entry(2, 1, lineage.Previous, 1, 2)),
		coded(t, entry(3, 2, lineage.Declared, 2, 3))})
	if len(problems) != 1 || lost.Get(2).Parent != 0 || lost.Get(2).Owners[0] != 2 ||
		lost.Get(3).Parent != 2 {
		t.Errorf("%v, %+v", problems, lost.Get(2))
	}
}

// At finds what is at or below a path, whatever was added, moved, retired and forgotten.
func TestAt(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	somewhere := func() string {
		p := fmt.Sprintf("runs/%d/%d", r.IntN(3), r.IntN(12))
		for range r.IntN(3) {
			p += fmt.Sprintf("/%d", r.IntN(2))
		}
		return p
	}
	l, _ := New(nil)
	check := func(l *Ledger) {
		t.Helper()
		for _, p := range []string{"", "runs", "runs/1", "runs/1/1", "runs/1/10", somewhere(), somewhere(),
			"other/1/2/3"} {
			want := slices.DeleteFunc(l.At(""), func(e *Entry) bool {
				return p != "" && e.Path != p && !strings.HasPrefix(e.Path, p+"/")
			})
			if got := l.At(p); !slices.Equal(got, want) {
				t.Fatalf("%s: %d entries, want %d", p, len(got), len(want))
			}
		}
	}
	for range 300 {
		e := entry(l.Next(), 0, lineage.None)
		e.Path = somewhere()
		if err := l.Add(e); err != nil {
			t.Fatal(err)
		}
		other := l.Get(1 + r.Uint64N(e.Seq))
		switch r.IntN(4) {
		case 0:
			if other != nil && other.RetiredAt == 0 {
				l.Move(other, other.Ino, somewhere())
			}
		case 1:
			l.Retire(1+r.Uint64N(e.Seq), 5)
		case 2:
			if r.IntN(20) == 0 && l.Sweep() == 0 {
				t.Error("nothing was forgotten")
			}
		}
		check(l)
	}
	again, _ := New(l.At(""))
	check(again)
	if len(again.At("")) < 50 {
		t.Errorf("poor: %d entries", len(again.At("")))
	}
}

// A model that was told of is a tombstone until it comes, and then what its children come from.
func TestRevive(t *testing.T) {
	l, _ := New(nil)
	far := &Entry{Model: lineage.Model{Seq: 1}, Manifest: cas.Sum([]byte{1}), Path: "runs/far/1/m"}
	child := entry(2, 1, lineage.Declared, 2, 2)
	for _, err := range []error{l.AddRetired(far, 7), l.Add(child)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if l.AddRetired(entry(9, 0, lineage.None), 7) == nil || l.Revive(far, child.Ino) || l.Revive(child, 5) {
		t.Error("what cannot be was done")
	}
	if l.Sweep() != 0 {
		t.Error("what a child comes from was forgotten")
	}
	var records []*Entry
	for _, e := range l.Changed() {
		records = append(records, coded(t, e))
	}
	again, problems := New(records)
	if len(problems) > 0 || again.Get(1).RetiredAt != 7 || again.ByIno(0) != nil {
		t.Fatalf("%v, %+v", problems, again.Get(1))
	}
	far = again.Get(1)
	if !again.Revive(far, 55) || again.Revive(far, 55) || again.ByIno(55) != far {
		t.Fatal("not revived, or twice")
	}
	again.Describe(far, 10, 2, []uint64{4, 5})
	owners := []uint64{1, 1}
	err := again.Reparent(far, 0, lineage.None, owners, lineage.Shares(owners, []int64{3, 4}))
	if err == nil {
		owners = []uint64{1, 2}
		err = again.Reparent(again.Get(2), 1, lineage.Declared, owners, lineage.Shares(owners, []int64{3, 4}))
	}
	if err != nil {
		t.Fatal(err)
	}
	if like := again.Like([]uint64{5}); len(like) != 1 || like[0] != far {
		t.Errorf("like %v", like)
	}
	records = nil
	for _, e := range again.At("") {
		records = append(records, coded(t, e))
	}
	last, problems := New(records)
	if len(problems) > 0 || last.Get(1).RetiredAt != 0 || last.ByIno(55) == nil || last.Get(1).Tensors != 2 {
		t.Errorf("%v, %+v", problems, last.Get(1))
	}
	last.Describe(last.Get(1), 10, 2, []uint64{6})
	if len(last.Like([]uint64{4, 5})) > 0 || len(last.Like([]uint64{6})) != 1 {
		t.Error("the marks are not those of the description")
	}
}
