package virtual

import (
	"fmt"
	"testing"
	"time"

	"ckptfs/formats"
	"ckptfs/fs/view"
)

func indexOf(gen uint64, names ...string) *tensorIndex {
	l := &formats.Layout{Regions: []formats.Region{{Len: 8, Kind: formats.Data}}}
	for _, name := range names {
		l.Tensors = append(l.Tensors, formats.Tensor{Name: name, DType: formats.F32, Shape: []int64{2}})
	}
	return &tensorIndex{gen: gen, layout: l}
}

// TestTensorIndex: a name is found by a look at all, and by the table; of twins the first.
func TestTensorIndex(t *testing.T) {
	all := []string{"a", "b/c", "a", "%", "", "x\x00", "b%2Fc"}
	x := indexOf(1, all...)
	for range 3 {
		for i, name := range all {
			if i == 2 {
				i = 0
			}
			if got := x.find(view.TensorFile(name)); got != i {
				t.Errorf("%q: %d, want %d", name, got, i)
			}
		}
		for _, name := range []string{"b", "a", "b/c.npy", "c.npy"} {
			if got := x.find(name); got != -1 {
				t.Errorf("%q: %d", name, got)
			}
		}
	}
}

// TestTensorIndexes: what is kept is bounded, but one is; and it goes when nobody asks.
func TestTensorIndexes(t *testing.T) {
	s := &tensorIndexes{maxBytes: 3000, lingers: 50 * time.Millisecond}
	for gen := range uint64(20) {
		s.put(indexOf(gen, "a", "b"))
		if s.get(nil, gen) == nil {
			t.Fatal("the last is not kept")
		}
	}
	if s.bytes > s.maxBytes || len(s.last) < 2 {
		t.Errorf("%d of %d bytes", s.bytes, len(s.last))
	}
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint(i))
	}
	s.put(indexOf(99, names...))
	if s.get(nil, 99) == nil || len(s.last) != 1 {
		t.Errorf("a large one: %d are kept", len(s.last))
	}
	for end := time.Now().Add(time.Minute); s.get(nil, 100) == nil; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		left, bytes := len(s.last), s.bytes
		s.mu.Unlock()
		if left == 0 && bytes == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it stays")
		}
	}
}
