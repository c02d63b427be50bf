package segment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"ckptfs/cas"
)

// Headers that are read together are those that are read alone, damaged ones too, however far apart they lie.
func TestHeads(t *testing.T) {
	for name, between := range map[string]int{"dense": 10, "sparse": 5 * mostBetween} {
		m := newMem(t)
		w := create(t, m)
		var recs []Record
		for i := range 20 {
			recs = append(recs, mustPut(t, w, cas.Chunk, fmt.Sprint(i, strings.Repeat("x", between))))
		}
		f, err := m.OpenFile(Path(dir, testID.Number), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("damage"), recs[7].Off+8); err != nil {
			t.Fatal(err)
		}
		r, err := Open(m, dir, testID)
		if err != nil {
			t.Fatal(err)
		}
		heads := r.Heads(recs)
		if (heads.p != nil) != (name == "dense") {
			t.Errorf("%s: read together: %v", name, heads.p != nil)
		}
		for i, rec := range recs {
			var alone, together Record
			loc := rec.Entry(testID.Number).Location
			aerr, terr := r.ReadHeader(loc, rec.Hash, &alone), heads.Read(loc, rec.Hash, &together)
			if alone != together || fmt.Sprint(aerr) != fmt.Sprint(terr) || (aerr != nil) != (i == 7) {
				t.Errorf("%s: record %d is %+v, %v; alone %+v, %v", name, i, together, terr, alone, aerr)
			}
		}
		heads.End()
		r.Heads(nil).End()
		r.Close()
	}
}

// Each record is handed on once, and the first error ends it.
func TestParts(t *testing.T) {
	const n = 5*partRecords + 3
	var mu sync.Mutex
	var got []int64
	p := NewParts(t.Context(), 3, func(_ context.Context, recs []Record) error {
		mu.Lock()
		defer mu.Unlock()
		for i := range recs {
			got = append(got, recs[i].Off)
		}
		return nil
	})
	var rec Record
	for rec.Off = range int64(n) {
		if err := p.Add(&rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Wait(); err != nil || len(got) != n {
		t.Fatal(err)
	}
	slices.Sort(got)
	for i := range got {
		if got[i] != int64(i) {
			t.Fatalf("record %d is %d of %d", i, got[i], len(got))
		}
	}
	failed := errors.New("failed")
	p = NewParts(t.Context(), 3, func(context.Context, []Record) error { return failed })
	var err error
	for i := 0; i < 1000*partRecords && err == nil; i++ {
		err = p.Add(&rec)
	}
	if err == nil || !p.Stopped() || !errors.Is(p.Wait(), failed) {
		t.Errorf("Add went on, or: %v", err)
	}
}
