package pack

import (
	"bytes"
	"errors"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/codec"
	"ckptfs/formats/detect"
	"ckptfs/index/anchors"
	"ckptfs/index/manifest"
)

// faulty panics when it is asked.
type faulty struct{ *marked }

func (faulty) Find([]anchor.Key, int, int) []anchors.Hit { panic("a fault") }

// A fault of the search for relatives costs a file these, and nothing else. A layout that is only presumed is
// not taken then.
func TestFaultySearch(t *testing.T) {
	b, a := memBench(t), newMarked(t)
	p := New(b.st, Options{Workers: 1})
	res := a.file(t, b, p, 1, 4, 512, faulty{a})
	if s := res.Search; s == nil || s.Panic != "a fault" || !bytes.Contains(s.Stack, []byte("Find")) {
		t.Errorf("%+v", s)
	}
	if res := a.file(t, b, p, 2, 4, 512, a); res.Search != nil {
		t.Error(res.Search)
	}
	tried := 0
	err := p.Recode(t.Context(), res.Manifest, Recoding{Trials: NewTrials(),
		Claim:   func(cas.Hash) bool { return true },
		Related: func() Related { return Related{Anchors: faulty{a}} },
		Chunk: func(_ cas.Hash, _ codec.Hint, rel cas.Related) (bool, error) {
			if tried++; !rel.IsZero() {
				t.Error(rel)
			}
			return false, nil
		}})
	if err != nil || tried == 0 {
		t.Errorf("%d chunks were tried again, %v", tried, err)
	}
	src := make([]byte, 1<<20)
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	batch := b.st.Begin()
	defer batch.Release()
	rel := Related{Presumed: true, Before: []*manifest.Manifest{nil}} // which is a fault
	if _, err := p.Layout(t.Context(), batch, bytes.NewReader(src), int64(len(src)), l, rel); !errors.Is(err,
		ErrPresumed) {
		t.Error(err)
	}
}
