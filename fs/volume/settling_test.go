package volume

import (
	"context"
	"testing"
	"time"
)

// soon fails the test unless do ends while something else is held up.
func (r *rig) soon(what string, do func()) {
	r.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		r.t.Fatalf("%s waits for it", what)
	}
}

// What is asked of the volume does not wait until the list of models is up to date and recorded.
func TestNobodyWaitsForModels(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABCD")
	if _, err := r.Stats(context.Background()); err != nil {
		t.Fatal(err)
	}
	entered, goOn := make(chan struct{}, 1), make(chan struct{})
	r.content.Step = func(what string) error {
		if what == "models: record" {
			select {
			case entered <- struct{}{}:
			default:
			}
			<-goOn
		}
		return nil
	}
	defer close(goOn)
	r.write("runs/a/1/m.safetensors", modelFile(t, "ABCE"))
	r.soon("sync", func() { _ = r.Sync(context.Background(), nil) })
	r.soon("the list", func() { <-entered })
	for range 2 {
		r.soon("sync", func() { _ = r.Sync(context.Background(), nil) })
		r.soon("status", func() { _, _ = r.Status(context.Background()) })
		r.soon("stats", func() { _, _ = r.Stats(context.Background()) })
	}
}

// A status that has the list of models looked at does not wait for that.
func TestStatusDoesNotWaitForModels(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABCD")
	r.rename("runs/a/1", "runs/a/2")
	n := r.find("runs/a/2/m.safetensors")
	defer r.forget(n)
	func() {
		n.File().Lock()
		defer n.File().Unlock()
		r.soon("status", func() { r.models.Refresh(context.Background()) })
	}()
	r.wantChain("runs/a/2", "a/2 none 4")
}

// Sync waits for the list of models, also for one that is being recorded just then; for a bounded time.
func TestSyncAwaitsModels(t *testing.T) {
	r := newRig(t)
	entered, goOn := make(chan struct{}, 1), make(chan struct{})
	r.content.Step = func(what string) error {
		if what == "models: record" {
			entered <- struct{}{}
			<-goOn
		}
		return nil
	}
	r.mkdir("runs/a/1")
	r.write("runs/a/1/m.safetensors", modelFile(t, "ABCD"))
	if err := r.queue.PackAll(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	go r.models.Keep(context.Background())
	r.soon("the list", func() { <-entered })
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		_ = r.Sync(context.Background(), nil)
	}()
	select {
	case <-synced:
		t.Error("it returned before the models were recorded")
	case <-time.After(time.Second): // longer than a status waits
	}
	close(goOn)
	r.soon("sync", func() { <-synced })
}

// A model that was removed before it was entered is a tombstone, and the parent of what declares it.
func TestRemovedBeforeEntered(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABCD")
	r.models.Keep(t.Context())
	r.mkdir("runs/a/2")
	r.write("runs/a/2/m.safetensors", modelFile(t, "ABCE"))
	r.write("runs/a/2/other.safetensors", modelFile(t, "XYZW"))
	r.mkdir("runs/b/1")
	r.write("runs/b/1/lineage.json", []byte(`{"parent": "runs/a/2"}`))
	r.write("runs/b/1/m.safetensors", modelFile(t, "ABFE"))
	if err := r.queue.PackAll(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.unlink("runs/a/2/other.safetensors")
	r.removeStep("runs/a/2")
	r.wantChain("runs/b/1", "b/1 declared 1; a/2 previous step 3†; a/1 none 0")
	if n := len(r.models.Entries("runs/a/2")); n != 2 {
		t.Errorf("%d tombstones", n)
	}
	r.sync()
	r = r.reopen()
	r.wantChain("runs/b/1", "b/1 declared 1; a/2 previous step 3†; a/1 none 0")
	// What the ledger knew is no further tombstone, whether it is elsewhere by now or gone.
	r.mkdir("runs/c/1")
	r.write("runs/c/1/m.safetensors", modelFile(t, "ABCD"))
	if err := r.queue.PackAll(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.removeStep("runs/a/1")
	r.sync()
	if n := len(r.models.Entries("runs/a/1")); n != 0 {
		t.Errorf("%d entries of what is elsewhere", n)
	}
	r.removeStep("runs/c/1")
	r.sync()
	r.models.Keep(t.Context())
	if n := len(r.models.Entries("runs/c/1")); n != 1 {
		t.Errorf("%d tombstones of what was known", n)
	}
}
