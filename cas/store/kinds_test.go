package store

import (
	"slices"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/salvage"
	"ckptfs/cas/segment"
)

// kinds are those of the records of a segment.
func kinds(t *testing.T, m *disk.Mem, number uint32) (found []cas.Kind) {
	t.Helper()
	r, err := segment.Open(m, dir, segment.ID{Store: storeID, Number: number})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, recs, err := r.Contents()
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		found = append(found, rec.Kind)
	}
	return found
}

// Records of remotes, which no local store has, are passed over where a segment has them: not indexed, not
// swept, not damage, and saved.
func TestKindsOfRemotes(t *testing.T) {
	m := newMem()
	if err := m.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := segment.Create(m, dir, segment.ID{Store: storeID, Number: 1}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	all := []cas.Kind{cas.Plan, cas.Chunk, cas.Commit}
	var offs []int64
	for i, kind := range all {
		raw := chunk(i)
		rec := &segment.Record{Kind: kind, Raw: uint32(len(raw)), Hash: cas.Sum(raw), XXH3: cas.SumXXH3(raw)}
		slot, err := w.Reserve(len(raw))
		if err != nil {
			t.Fatal(err)
		}
		err = w.Write(slot, rec, append(make([]byte, segment.RecordHeaderSize), raw...))
		if _, err := w.Finish(slot, rec, err); err != nil {
			t.Fatal(err)
		}
		offs = append(offs, rec.Off)
	}
	if _, err := w.Seal(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, m, newIndex(), Options{})
	wantGet(t, s, chunk(1))
	for _, i := range []int{0, 2} {
		if has(t, s, i) {
			t.Errorf("%s is indexed", all[i])
		}
	}
	if _, fs := checkAll(t, s, CheckOptions{ReadData: true}); len(fs) > 0 {
		t.Error(fs)
	}
	sweepNow(t, s, SweepOptions{}, marking(1))
	wantGet(t, s, chunk(1))
	if got := kinds(t, m, 1); !slices.Equal(got, all) {
		t.Errorf("swept to %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	patch(t, m, segment.Path(dir, 1), offs[1]+segment.RecordHeaderSize+3, 9, 9, 9)
	st, err := salvage.Segments(m, dir, storeID, salvage.Options{Aside: "/store/lost+found"})
	if err != nil || len(st.Moved) != 1 || st.Kept.Records != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	if got := kinds(t, m, st.Moved[0].New); !slices.Equal(got, []cas.Kind{cas.Plan, cas.Commit}) {
		t.Errorf("saved %v", got)
	}
}
