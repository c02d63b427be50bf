package segment

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// The kernel tells of a write that failed once. After that no later Sync succeeds, nothing that is
// finished after it counts, and nothing of it stays in the file.
func TestFailedSync(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	a := mustPut(t, w, cas.Chunk, "a")
	if err := w.Sync(1); err != nil || w.Durable() != 1 {
		t.Fatal(err, w.Durable())
	}
	early, err := w.Reserve(1) // below what is durable when it ends
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, w, cas.Chunk, "b")
	failures := 0
	m.Inject(func(op disk.Op) *disk.Fault {
		if failures++; op.Kind != disk.OpSync || failures > 1 {
			return nil
		}
		return &disk.Fault{Err: syscall.EIO}
	})
	for range 2 {
		if err := w.Sync(2); !errors.Is(err, syscall.EIO) || w.Durable() != 1 {
			t.Errorf("%v; %d are durable", err, w.Durable())
		}
	}
	r := &Record{Kind: cas.Chunk, Raw: 1}
	buf := append(make([]byte, RecordHeaderSize), 'c')
	if err := w.Write(early, r, buf); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(early, r, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("finished after the failure: %v", err)
	}
	if _, err := w.Reserve(1); !errors.Is(err, ErrFull) {
		t.Errorf("takes more: %v", err)
	}
	if _, err := w.Seal(sealTime); err == nil {
		t.Error("sealed")
	}
	if err := w.Abandon(early.End, nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := scanned(t, fileOf(t, m)); !slices.Equal(got[:1], []string{"chunk at 64"}) ||
		slices.ContainsFunc(got[1:], func(s string) bool { return s[:3] != "gap" }) {
		t.Errorf("%q; a ends at %d", got, a.End())
	}
}

// Those who wait for an fsync share the next one, and what is durable takes none.
func TestSyncsAreShared(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	syncs := 0
	m.Inject(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpSync {
			syncs++
		}
		return nil
	})
	w.syncing.Lock() // one is under way
	var wg sync.WaitGroup
	for range 20 {
		mustPut(t, w, cas.Chunk, "x")
	}
	for n := range uint64(20) {
		wg.Go(func() {
			if err := w.Sync(n + 1); err != nil {
				t.Error(err)
			}
		})
	}
	w.syncing.Unlock()
	wg.Wait()
	if syncs != 1 || w.Durable() != 20 {
		t.Errorf("%d fsyncs, %d durable", syncs, w.Durable())
	}
	if err := w.Sync(20); err != nil || syncs != 1 {
		t.Errorf("%v, %d fsyncs", err, syncs)
	}
}

// A sealed segment, which may be closed, needs no Sync, though what was taken back of it is on no disk.
func TestSyncOfSealed(t *testing.T) {
	m := newMem(t)
	w := create(t, m)
	mustPut(t, w, cas.Chunk, "a")
	if err := w.Sync(1); err != nil {
		t.Fatal(err)
	}
	b := mustPut(t, w, cas.Chunk, "b")
	if err := w.TakeBack([]Range{{b.Off, b.End()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Seal(sealTime); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(w.Finished()); err != nil || w.Failed() {
		t.Error(err)
	}
}

// One caller is told that much was written since the last fsync began; after that one, another is.
func TestBehind(t *testing.T) {
	w := create(t, newMem(t))
	const limit = 100
	for n := range uint64(3) {
		if w.Behind(limit) {
			t.Errorf("round %d: before anything was written", n)
		}
		mustPut(t, w, cas.Chunk, string(make([]byte, limit)))
		if !w.Behind(limit) || w.Behind(limit) {
			t.Errorf("round %d: not told, or twice", n)
		}
		if err := w.Sync(n + 1); err != nil {
			t.Fatal(err)
		}
	}
}
