package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
	"ckptfs/index/chunks"
)

// What could be packed is durable after a sync, also beside a file that could not be.
func TestSyncBesideFailure(t *testing.T) {
	r := newRig(t)
	r.content.Step = func(what string) error {
		if what == "pack: record" {
			return errors.New("broken")
		}
		return nil
	}
	r.write("f", random(100<<10, 1))
	r.write("small", []byte("small"))
	err := r.Sync(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "f could not be packed: broken") {
		t.Error(err)
	}
	if r.queue.Status().Unsynced {
		t.Error("what stays plain is not durable")
	}
}

// Of a file that could not be packed a sync says that its bytes are safe, but not on a disk that loses some.
func TestSyncSaysSafe(t *testing.T) {
	r := newRig(t)
	r.content.Step = func(what string) error {
		if what == "pack: record" {
			return errors.New("broken")
		}
		return nil
	}
	r.write("f", random(100<<10, 1))
	said := func() string {
		t.Helper()
		err := r.Sync(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "f could not be packed: broken") {
			t.Fatal(err)
		}
		return err.Error()
	}
	if err := said(); !strings.Contains(err, "its bytes are safe") {
		t.Errorf("a disk that is well: %s", err)
	}
	r.content.Fsync = func(int, bool) error { return unix.EIO }
	r.write("small", []byte("small"))
	for range 2 {
		if err := said(); strings.Contains(err, "safe") {
			t.Errorf("a disk that loses bytes: %s", err)
		}
	}
	r.badEnd()
}

// A file that could not be evicted is packed: a sync has nothing to say of it.
func TestSyncAfterFailedEviction(t *testing.T) {
	r := newRig(t, hotSize(0))
	r.content.Step = func(what string) error {
		if strings.HasPrefix(what, "hollow: ") {
			return errors.New("broken")
		}
		return nil
	}
	r.write("f", random(100<<10, 1))
	r.sync()
	r.eventually("the eviction fails", func() bool {
		s, err := r.Status(t.Context())
		return err == nil && len(s.Failures) > 0
	})
	r.sync()
}

// Sync waits for a writer that a program has closed and the kernel not yet released.
func TestSyncAwaitsRelease(t *testing.T) {
	r := newRig(t)
	h := r.open("f", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, random(100<<10, 1), 0)
	r.Flush(h, alive)
	r.Flush(h, alive) // a descriptor that was duplicated
	before := h.Node.Refs()
	synced := make(chan error, 1)
	go func() { synced <- r.Sync(context.Background(), nil) }()
	r.eventually("Sync looks at the files", func() bool { return len(synced) > 0 || h.Node.Refs() > before })
	h.Release()
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	r.want("f", both)
}

// An open writer holds nothing up.
func TestSyncPassesOverWriters(t *testing.T) {
	r := newRig(t)
	h := r.open("f", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, random(100<<10, 1), 0)
	r.write("g", random(100<<10, 2))
	r.sync()
	r.want("f", resident)
	r.want("g", both)
	r.release(h)
	r.sync()
	r.want("f", both)
}

func TestSyncCancelled(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	r.write("f", random(100<<10, 1))
	ctx, cancel := context.WithCancel(context.Background())
	synced := make(chan error, 1)
	go func() { synced <- r.Sync(ctx, nil) }()
	cancel()
	wantErr(t, "sync", <-synced, context.Canceled)
}

// After a sync the index's file has all. Else a start on a disk that fails could not believe what it finds
// behind that in the segments.
func TestIndexIsSynced(t *testing.T) {
	r := newRig(t)
	r.write("f", random(100<<10, 1))
	if err := r.Sync(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	index, err := chunks.Open(filepath.Join(r.copyStore(), tree.IndexFile), chunks.Options{StoreID: r.id})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	want, err := r.index.Watermark()
	if err != nil {
		t.Fatal(err)
	}
	if mark, err := index.Watermark(); err != nil || mark != want {
		t.Errorf("on the disk up to %v, want %v (%v)", mark, want, err)
	}
}

// What shows files that nobody writes waits for a writer that a program has closed and the kernel not yet
// released: who opens the view of what it just saved finds it. For a program that goes on it does not wait
// long.
func TestShownWhenClosed(t *testing.T) {
	for shown, file := range map[string]string{
		".ckptfs/make/cast/bf16/runs/%s.safetensors": "runs/%s.safetensors",
		".ckptfs/tensors/runs/%s.safetensors/a.npy":  "runs/%s.safetensors",
		"runs/%s.safetensors":                        "runs/%s.pt",
	} {
		data := modelFile(t, "AB")
		if strings.HasSuffix(file, ".pt") {
			data = sample(t, "torch/flat.pt")
		}
		r := newRig(t)
		r.mkdir("runs")
		save := func(name string) *Handle {
			h := r.open(fmt.Sprintf(file, name), unix.O_WRONLY|unix.O_CREAT)
			r.writeAt(h, data, 0)
			if _, err := r.resolve(fmt.Sprintf(shown, name)); err != unix.ENOENT {
				t.Errorf(shown+" while it is written: %v", name, err)
			}
			r.Flush(h, alive)
			return h
		}
		h := save("goes-on")
		if _, err := r.resolve(fmt.Sprintf(shown, "goes-on")); err != unix.ENOENT {
			t.Errorf(shown+": %v", "goes-on", err)
		}
		h.Release()
		h = save("closed")
		before, found := h.Node.Refs(), make(chan error, 1)
		go func() {
			n, err := r.resolve(fmt.Sprintf(shown, "closed"))
			if err == nil {
				n.Unpin()
			}
			found <- err
		}()
		r.eventually("it is looked up", func() bool { return len(found) > 0 || h.Node.Refs() > before })
		h.Release()
		if err := <-found; err != nil {
			t.Errorf(shown+": %v", "closed", err)
		}
	}
}
