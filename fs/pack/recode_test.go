package pack

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
)

func TestEndings(t *testing.T) {
	for name, want := range map[string][]string{
		"w": {"w"}, "a.w": {"a.w"}, "m/a.w": {"m/a.w", "a.w"}, "": {""},
		"model.layers.0.w": {"model.layers.0.w", "layers.0.w", "0.w"},
	} {
		if got := endings(name, 2); !slices.Equal(got, want) {
			t.Errorf("%q: %q", name, got)
		}
	}
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = '.'
	}
	if got := endings(string(long), 2); len(got) != maxEndings {
		t.Error(len(got))
	}
}

// Each chunk is looked at with what stood there before; where it does not pay few are; and the workers wait
// for their turns.
func TestRecode(t *testing.T) {
	const n = 40 * cas.ChunkSize / 4
	b := memBench(t)
	old := b.against(t, trained(t, 2, n, 0, 1e-6), nil)
	res := b.against(t, trained(t, 2, n, 1, 1e-6), old.Manifest)
	for _, pays := range []bool{true, false} {
		var turns, over atomic.Int64
		p := New(b.st, Options{Workers: 2, Turn: func(context.Context) (func(), error) {
			turns.Add(1)
			return func() { over.Add(1) }, nil
		}})
		var mu sync.Mutex
		seen := map[cas.Hash]cas.Related{}
		recode := func(h cas.Hash, hint codec.Hint, rel cas.Related) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[h] = rel
			if !rel.Prev.IsZero() && hint != (codec.Hint{DType: "F32", Elem: 4}) {
				t.Error(hint)
			}
			return pays, nil
		}
		err := p.Recode(t.Context(), res.Manifest, Recoding{Trials: NewTrials(), Chunk: recode,
			Claim:   func(cas.Hash) bool { return true },
			Related: func() Related { return Related{Before: known(old.Manifest)} }})
		if err != nil {
			t.Fatal(err)
		}
		related := 0
		for h, rel := range seen {
			if !rel.Prev.IsZero() && rel.Prev != h {
				related++
			}
		}
		if turns.Load() < int64(len(seen)) || over.Load() != turns.Load() || pays && related != 41 ||
			!pays && related > 12 {
			t.Errorf("pays %v: %d chunks, %d related, %d turns, %d over", pays, len(seen), related, turns.Load(), over.Load())
		}
	}
}

// Of a small file the caller tries the chunks, one after the other, so that the first error is the end.
func TestRecodeSmall(t *testing.T) {
	b := memBench(t)
	var ts []named
	for i := range 20 {
		ts = append(ts, named{string(rune('a' + i)), random(256, byte(i))})
	}
	res := b.file(t, tensors(t, ts...))
	wrong, tried := errors.New("wrong"), 0
	err := New(b.st, Options{Workers: 2}).Recode(t.Context(), res.Manifest, Recoding{Trials: NewTrials(),
		Chunk: func(cas.Hash, codec.Hint, cas.Related) (bool, error) {
			tried++
			return false, wrong
		},
		Claim:   func(cas.Hash) bool { return true },
		Related: func() Related { return Related{} }})
	if err != wrong || tried != 1 {
		t.Errorf("%v, %d chunks tried", err, tried)
	}
}
