package volume

import (
	"context"
	"errors"
	"testing"
	"time"

	"ckptfs/fs/control"
	"ckptfs/fs/throttle"
)

// Other programs that use all processors, as trainings do, keep nothing from being published or pulled.
func TestShareBesideBusyPrograms(t *testing.T) {
	c := newCloud(t)
	newThrottle = func(int, func() bool) *throttle.Throttle {
		return throttle.New(0, func() bool { return false }) // nobody may work
	}
	defer func() { newThrottle = throttle.New }()
	busy := func(o *Options) { o.PackWorkers = 0 }
	a, b := c.join("a", busy), c.join("b", busy)
	within := func(what string, do func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New(what+" waits for processors"))
		defer cancel()
		if err := do(ctx); err != nil {
			t.Fatal(err, context.Cause(ctx))
		}
	}
	a.put("runs/x/1/model.safetensors", modelFile(t, "one"))
	a.put("runs/x/1/tokenizer.json", random(30_000, 1))
	within("push", func(ctx context.Context) error {
		_, err := a.Push(ctx, "runs/x", control.PushOptions{}, nil)
		return err
	})
	b.put("runs/x/1/tokenizer.json", random(30_001, 2))
	within("pull", func(ctx context.Context) error {
		_, err := b.Pull(ctx, "", nil)
		return err
	})
	if !b.exists("runs/x/1/model.safetensors") {
		t.Error("nothing was pulled")
	}
}
