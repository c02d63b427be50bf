package ledger

import (
	"errors"
	"reflect"
	"slices"
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
		Version: 1, Ino: 1000 + seq, Manifest: cas.Sum([]byte{byte(seq)}), Path: "runs/a/1/m", Time: int64(seq), Size: 5, Tensors: len(owners), Owners: owners,
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
	for _, e := range []*Entry{entry(1, 0, lineage.None, 1, 1), entry(2, 1, lineage.Previous, 1, 2), entry(3, 2, lineage.Declared, 1, 3)} {
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
	if len(problems) > 0 || again.Next() != 4 || again.ByIno(77) == nil || again.ByIno(1001) != nil || again.Get(1).RetiredAt != 50 {
		t.Errorf("%v, %+v", problems, again)
	}
	if a, ok := again.Forest.MRCA(2, 3); !ok || a.Seq != 2 {
		t.Errorf("%+v", a)
	}
	l.Retire(2, 51)
	l.Retire(3, 52)
	if n := l.Sweep(); n != 3 || len(l.All()) != 0 || l.Next() != 4 {
		t.Errorf("%d forgotten, %d left", n, len(l.All()))
	}

	// A parent whose record is lost.
	lost, problems := New([]*Entry{coded(t, entry(2, 1, lineage.Previous, 1, 2)), coded(t, entry(3, 2, lineage.Declared, 2, 3))})
	if len(problems) != 1 || lost.Get(2).Parent != 0 || lost.Get(2).Owners[0] != 2 || lost.Get(3).Parent != 2 {
		t.Errorf("%v, %+v", problems, lost.Get(2))
	}
}
