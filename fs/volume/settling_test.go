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
