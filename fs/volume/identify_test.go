package volume

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// identifies has artifact ids computed when a test says so: by the other goroutine after an hour.
func identifies(o *Options) { o.IDsAfter, o.PackWorkers = time.Hour, 1 }

// identify computes the ids of the files that wait, now.
func (r *rig) identify() {
	r.t.Helper()
	r.ids.Turn(0)
	if files, more := r.ids.Pending(); files != 0 || more {
		r.t.Errorf("%d files wait, and more: %v", files, more)
	}
}

func (r *rig) waiting(want int) {
	r.t.Helper()
	st, err := r.Status(r.test.Context())
	if err != nil || st.Unidentified.Files != want {
		r.t.Errorf("%+v wait, want %d (%v)", st.Unidentified, want, err)
	}
}

// TestIdentified: every packed file with tensors is found by its id though no program has asked, and is read
// for that once.
func TestIdentified(t *testing.T) {
	id := sameID(t) + ".safetensors"
	for _, stop := range []bool{false, true} { // before there was time
		r := newRig(t, identifies)
		r.mkdir("runs")
		r.write("runs/m.pt", sample(t, "same/model.pt"))
		r.write("same.npz", sample(t, "same/model.npz"))
		r.write("other.npz", sample(t, "numpy/several.npz"))
		r.write("mixed.npz", sample(t, "numpy/mixed.npz"))
		r.write("noise", random(100<<10, 1))
		for _, p := range []string{"runs/m.pt", "same.npz", "other.npz", "mixed.npz", "noise"} {
			r.packOut(p)
		}
		r.waiting(5)
		if got := r.listing(artifactsDir); len(got) != 0 {
			t.Errorf("already there: %q", got)
		}
		if stop {
			r = r.reopen(identifies)
			r.waiting(5)
		}
		r.rename("runs/m.pt", "runs/moved.pt")
		r.identify()
		if got := r.listing(artifactsDir); len(got) != 2 || !slices.Contains(got, id) {
			t.Errorf("artifacts lists %q, not %s", got, id)
		}
		r.exists(artifactsDir + id)
		for range 2 {
			r = r.reopen(identifies)
			r.waiting(0)
			r.ids.LookAtAll() // and a look at all files finds nothing
			r.identify()
			if n := r.asm.Stats().Fetched; n != 0 {
				t.Errorf("%d bytes are read again", n)
			}
		}
		r.unlink("same.npz")
		r.unlink("runs/moved.pt")
		if r.exists(artifactsDir + id) {
			t.Error("there though its files are gone")
		}
	}
}

// In the background it happens by itself.
func TestIdentifiedByItself(t *testing.T) {
	r := newRig(t, func(o *Options) { o.IDsAfter, o.PackWorkers = time.Millisecond, 1 })
	r.write("m.pt", sample(t, "same/model.pt"))
	r.sync()
	r.eventually("its id is known", func() bool { return len(r.listing(artifactsDir)) == 1 })
	r.eventually("none waits", func() bool { files, more := r.ids.Pending(); return files == 0 && !more })
	r.onlyRoot()
}

// When too many files wait to be remembered, or a file was moved unseen, all files are looked at.
func TestIdentifiedByWalk(t *testing.T) {
	r := newRig(t, identifies)
	r.write("a.pt", sample(t, "same/model.pt"))
	r.pack("a.pt")
	r.ids.LookAtAll()
	r.identify()
	if !r.exists(artifactsDir + sameID(t) + ".safetensors") {
		t.Error("not found")
	}
}

// What waits is not kept from going, nor is a file that is being written, or was.
func TestIdentifiedMeanwhile(t *testing.T) {
	r := newRig(t, identifies)
	for _, p := range []string{"gone.pt", "written.pt", "new.pt"} {
		r.write(p, sample(t, "same/model.pt"))
	}
	r.sync()
	r.waiting(3)
	r.unlink("gone.pt")
	r.waiting(2)
	h := r.open("written.pt", unix.O_WRONLY)
	r.write("new.pt", sample(t, "numpy/several.npz"))
	r.identify()
	if got := r.listing(artifactsDir); len(got) != 0 {
		t.Errorf("artifacts lists %q", got)
	}
	r.release(h)
	r.sync()
	r.waiting(2)
	r.identify()
	if got := r.listing(artifactsDir); len(got) != 2 {
		t.Errorf("artifacts lists %q", got)
	}
	r.onlyRoot()
}

// A file that has no id, and took the place of one that was to get one, says nothing of that one.
func TestIdentifiedAnother(t *testing.T) {
	r := newRig(t, identifies)
	r.write("a.pt", sample(t, "same/model.pt"))
	r.sync()
	r.content.Step = func(what string) error {
		if what == "identify" {
			r.content.Step = func(string) error { return nil }
			r.write("a.pt", random(100<<10, 1))
			r.sync()
		}
		return nil
	}
	r.ids.Turn(0)
	r.write("a.pt", sample(t, "same/model.pt"))
	r.sync()
	r.identify()
	if !r.exists(artifactsDir + sameID(t) + ".safetensors") {
		t.Error("it is said to have no id")
	}
}

// Nothing is computed while anything is packed.
func TestQueueRests(t *testing.T) {
	r := newRig(t, identifies)
	r.Volume.content.Step = func(what string) error {
		if what == "pack: record" {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := r.queue.Rests(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error("it rests while it packs:", err)
			}
		}
		return nil
	}
	r.write("a.pt", sample(t, "same/model.pt"))
	r.sync()
	if err := r.queue.Rests(t.Context()); err != nil {
		t.Error(err)
	}
}

// A prune forgets what is known of manifests that are gone, and that they have no id.
func TestIdentifiedPruned(t *testing.T) {
	r := newRig(t, identifies)
	r.write("noise", random(100<<10, 1))
	r.write("kept", random(100<<10, 2))
	r.sync()
	r.identify()
	gone, _ := r.manifestOf("noise")
	kept, _ := r.manifestOf("kept")
	r.unlink("noise")
	r = r.reopen(func(o *Options) { o.Now = func() time.Time { return time.Now().Add(100 * time.Hour) } })
	if _, err := r.Prune(t.Context(), control.PruneOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if !r.artifacts.Wants(gone) {
		t.Error("what is gone is known")
	}
	if r.artifacts.Wants(kept) {
		t.Error("what is there is not")
	}
}
