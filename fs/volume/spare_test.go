package volume

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/control"
)

// tightly has a machine keep a thousand bytes free of a disk that has as many as the returned number says.
// now is its clock, ahead of the host's by so much.
func tightly(m *machine, ahead time.Duration) *atomic.Int64 {
	var free atomic.Int64
	free.Store(1000)
	m.rig = m.reopen(m.c.shared, func(o *Options) {
		o.KeepFree = 1000
		o.Disk = func() (int64, int64, error) { return 1 << 40, free.Load(), nil }
		o.Now = func() time.Time { return time.Now().Add(ahead) }
	})
	return &free
}

// step is a file of withModels.
func step(i int) string { return fmt.Sprintf("runs/x/%d/model.safetensors", i) }

// withModels is a machine that has published n files.
func withModels(t *testing.T, n int) (*cloud, *machine) {
	t.Helper()
	c := newCloud(t)
	a := c.join("a")
	for i := range n {
		a.put(step(i), modelFile(t, fmt.Sprint("AB", i)))
	}
	a.published("")
	return c, a
}

// At most so much of the disk is kept free by leaving to the remote what rests there: what was used longest
// ago goes first, and nothing goes that the remote may not have, or that is in use.
func TestKeepFree(t *testing.T) {
	_, a := withModels(t, 4)
	a.put("runs/y/1/model.safetensors", modelFile(t, "XYZ")) // published nowhere
	a.put("outside/model.safetensors", modelFile(t, "XY"))
	a.sync()
	free := tightly(a, 0)
	ctx := context.Background()
	s := &a.sharing
	free.Store(0)
	if s.free(ctx) {
		t.Error("what was saved just now was dropped")
	}
	free = tightly(a, 2*time.Hour)
	s = &a.sharing
	free.Store(1000)
	if !s.free(ctx) {
		t.Error("nothing is missing, and cannot be freed")
	}
	a.stub(step(0), false)

	// What is in use stays.
	h := a.open(step(1), unix.O_RDONLY)
	free.Store(999)
	before := a.segmentBytes()
	if s.free(ctx) {
		t.Error("the disk had no more room after that, and it was enough")
	}
	for i, want := range []bool{true, false, true, true} {
		a.stub(step(i), want)
	}
	a.release(h)
	a.stub("runs/y/1/model.safetensors", false)
	a.stub("outside/model.safetensors", false)
	if after := a.segmentBytes(); after >= before {
		t.Errorf("%d bytes of segments, %d before", after, before)
	}
	for i := range 4 {
		a.same(step(i), modelFile(t, fmt.Sprint("AB", i)))
	}
	if c := a.check(); c.Damaged != 0 || c.Remote != 3 {
		t.Errorf("%+v", c)
	}
	if p := a.published(""); p.Names == 0 || p.Removed != 0 {
		t.Errorf("%+v", p)
	}
}

// As soon as enough is free nothing more is dropped.
func TestKeepFreeEnds(t *testing.T) {
	c, a := withModels(t, 3)
	var dropped atomic.Bool
	a.rig = a.reopen(c.shared, func(o *Options) {
		o.KeepFree = 1000
		o.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		o.Disk = func() (int64, int64, error) {
			free := int64(999)
			if dropped.Load() {
				free = 1000
			}
			return 1 << 40, free, nil
		}
		log := o.Log
		o.Log = func(level slog.Level, msg string, args ...any) {
			if strings.Contains(msg, "were dropped") {
				dropped.Store(true)
			}
			if log != nil {
				log(level, msg, args...)
			}
		}
	})
	if !a.sharing.free(context.Background()) {
		t.Error("it was not enough")
	}
	if n := a.stubs(); n != 1 {
		t.Errorf("%d files were dropped", n)
	}
}

// What the remote has lost stays, and a remote that is not reached ends it before anything is dropped.
func TestKeepFreeNeedsTheRemote(t *testing.T) {
	for what, lose := range map[string]func(c *cloud, o *Options){
		"lost": func(c *cloud, o *Options) {
			for info, err := range c.mu.List(context.Background(), "d/", "") {
				if err == nil {
					err = c.mu.Delete(context.Background(), []string{info.Key})
				}
				if err != nil {
					c.t.Fatal(err)
				}
			}
		},
		"unreached": func(c *cloud, o *Options) {
			o.Remote = func(remote.Joined) (bucket.Bucket, error) { return unreachable{}, nil }
		},
	} {
		t.Run(what, func(t *testing.T) {
			c, a := withModels(t, 3)
			var said atomic.Int64
			a.rig = a.reopen(c.shared, func(o *Options) {
				o.Log = func(_ slog.Level, msg string, _ ...any) {
					if strings.Contains(msg, "not all could be dropped") {
						said.Add(1)
					}
				}
				o.KeepFree = 1000
				o.Disk = func() (int64, int64, error) { return 1 << 40, 0, nil }
				o.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
				lose(c, o)
			})
			if a.sharing.free(context.Background()) {
				t.Error("room was made")
			}
			if n := a.stubs(); n != 0 {
				t.Errorf("%d files were dropped", n)
			}
			if n := said.Load(); n != map[string]int64{"lost": 0, "unreached": 1}[what] {
				t.Errorf("that the remote failed was said %d times", n)
			}
			a.same("runs/x/1/model.safetensors", modelFile(t, "AB1"))
			if p, err := a.Prune(context.Background(), control.PruneOptions{}, nil); err != nil {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

// stubs is how many steps of runs/x are stubs.
func (m *machine) stubs() (n int) {
	for i := range 4 {
		f, _, err := m.lookup(fmt.Sprintf("runs/x/%d/model.safetensors", i))
		if err != nil {
			continue
		}
		f.File().Lock()
		if err := f.File().LoadLocked(); err == nil && f.File().StateLocked().Record.Remote {
			n++
		}
		f.File().Unlock()
		m.forget(f)
	}
	return n
}
