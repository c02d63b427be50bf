package handover

import (
	"maps"
	"sync"
	"testing"
)

func TestHandles(t *testing.T) {
	m := fresh(t, tiny)
	h := m.Handles()
	a := Handle{Node: 1, Unique: 2, Flags: 3, Thread: 4, Mode: 5, Backing: -6, Kind: KindFile}
	b := Handle{Node: 1<<64 - 1, Unique: 1 << 63, Flags: 1 << 31, Thread: 1 << 30, Mode: 1 << 29,
		Backing: 1 << 28, Kind: KindDir}
	fa, ok := h.Add(a)
	fb, ok2 := h.Add(b)
	if !ok || !ok2 || fa != 1<<32 || fb != 1<<32|1 {
		t.Fatalf("%#x %#x", fa, fb)
	}
	if _, ok := h.Add(Handle{Kind: 3}); ok {
		t.Error("a handle of no kind")
	}
	for range 3 {
		was := a
		a.Mode++
		a.Backing++
		x := a
		x.Node, x.Unique, x.Kind = 0, 0, 0 // these stay
		h.Set(fa, x)
		if got, ok := next(t, m).Handles().Get(fa); !ok || got != a {
			t.Errorf("%+v, not %+v", got, a)
		}
		// A kill on the way would have left the copy before.
		s := &m.handles.slots[0]
		if got := s.handle(s.state.Load() ^ handleSecond); got != was {
			t.Errorf("%+v was written over, and is %+v", was, got)
		}
	}
	if got := maps.Collect(next(t, m).Handles().All()); !maps.Equal(got, map[uint64]Handle{fa: a, fb: b}) {
		t.Errorf("%+v", got)
	}
	for range h.All() {
		break
	}
}

// The number of a handle that was ended is never that of another, in no later life either.
func TestHandlesGeneration(t *testing.T) {
	m := fresh(t, tiny)
	seen := map[uint64]bool{}
	for range 50 {
		h := m.Handles()
		fh, ok := h.Add(Handle{Kind: KindFile})
		if !ok || seen[fh] {
			t.Fatalf("%#x, %v", fh, ok)
		}
		seen[fh] = true
		if uint32(fh) != 0 {
			t.Errorf("%#x is not the lowest slot", fh)
		}
		for old := range seen {
			if _, ok := h.Get(old); ok != (old == fh) {
				t.Errorf("%#x is open: %v", old, ok)
			}
			h.Set(old^1<<40, Handle{Mode: 1})
			if h.Remove(old) != (old == fh) {
				t.Errorf("%#x was removed: %v", old, old != fh)
			}
		}
		m = next(t, m)
	}
	// A generation of 32 bits goes round without ever being 0.
	m.handles.slots[0].state.Store((1<<32 - 1) << 32)
	if fh, _ := m.Handles().Add(Handle{Kind: KindDir}); fh != 1<<32 {
		t.Errorf("%#x", fh)
	}
	for _, fh := range []uint64{0, 1, 15, 16, 1<<32 | 16, 1<<64 - 1} {
		if _, ok := m.Handles().Get(fh); ok || m.Handles().Remove(fh) {
			t.Errorf("%#x is open", fh)
		}
	}
}

func TestHandlesFull(t *testing.T) {
	m := fresh(t, tiny)
	var all []uint64
	for range tiny.handles {
		fh, ok := m.Handles().Add(Handle{Kind: KindFile})
		if !ok {
			t.Fatal("full")
		}
		all = append(all, fh)
	}
	m = next(t, m)
	if _, ok := m.Handles().Add(Handle{Kind: KindFile}); ok {
		t.Error("not full")
	}
	m.Handles().Remove(all[9])
	m.Handles().Remove(all[5])
	m = next(t, m)
	for _, want := range []uint64{5, 9} {
		if fh, ok := m.Handles().Add(Handle{Kind: KindFile}); !ok || fh != want|2<<32 {
			t.Errorf("%#x instead of %d", fh, want)
		}
	}
	if _, ok := m.Handles().Add(Handle{Kind: KindFile}); ok {
		t.Error("not full")
	}
}

func TestHandlesConcurrent(t *testing.T) {
	m := fresh(t, tiny)
	h := m.Handles()
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint32(2000) {
				x := Handle{Node: g, Kind: KindDir, Mode: i, Backing: int32(i)}
				fh, ok := h.Add(x)
				x.Mode, x.Backing = i+1, int32(i+1)
				h.Set(fh, x)
				if got, ok2 := h.Get(fh); !ok || !ok2 || got != x {
					t.Errorf("%+v, not %+v", got, x)
				}
				for _, y := range h.All() {
					if y.Mode != uint32(y.Backing) {
						t.Errorf("torn: %+v", y)
					}
				}
				m.NoteBacking(int32(i))
				if !h.Remove(fh) {
					t.Error("not there")
				}
			}
		})
	}
	wg.Wait()
	if m.Backing() != 1999 {
		t.Error(m.Backing())
	}
	if used := m.h.handlesUsed.Load(); used > 4 {
		t.Errorf("%d slots for 4", used)
	}
}

func BenchmarkHandles(b *testing.B) {
	m := fresh(b, standard)
	b.ReportAllocs()
	for b.Loop() {
		fh, _ := m.Handles().Add(Handle{Node: 1, Unique: 2, Kind: KindFile})
		m.Handles().Remove(fh)
	}
}
