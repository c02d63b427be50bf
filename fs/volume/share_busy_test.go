package volume

import (
	"context"
	"errors"
	"fmt"
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

// Folders that others removed go while a push is under way, however long that takes.
func TestFoldersGoBesideAPush(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for i := range 5 {
		a.put(fmt.Sprintf("runs/x/%d/f", i), []byte("f"))
	}
	a.published("")
	h := b.hook("heads/b")
	b.fetched()
	if !b.exists("runs/x/4/f") {
		t.Fatal("nothing appeared")
	}
	for i := range 5 {
		a.unlink(fmt.Sprintf("runs/x/%d/f", i))
		a.rmdir(fmt.Sprintf("runs/x/%d", i))
	}
	a.rmdir("runs/x")
	a.published("")
	b.put("runs/y/1/f", []byte("own"))
	h.call = func() {
		b.fetched()
		if b.exists("runs/x") {
			t.Error("what was removed is there")
		}
	}
	b.published("")
	if h.call != nil {
		t.Error("nothing was published")
	}
}
