package volume

import (
	"context"
	"fmt"
	"os"
	"path"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// unknown fails unless there is no node but the root's.
func (r *rig) unknown() {
	r.t.Helper()
	r.eventually("all is forgotten", func() bool {
		left, _ := r.names.Leftover()
		return len(left) == 0
	})
}

// Resident files are forgotten with all others when the kernel forgets them, and are evicted all the same,
// the least recently used first.
func TestEvictForgotten(t *testing.T) {
	const size, files = 100 << 10, 6
	r := newRig(t, hotSize(files*size))
	for i := range files {
		p := fmt.Sprint("d", i%2, "/f", i)
		r.mkdir(path.Dir(p))
		r.write(p, random(size, uint64(i)))
		r.sync()
	}
	r.unknown()
	if got := r.hot.Bytes(); got != files*size {
		t.Fatalf("%d bytes are counted", got)
	}
	r.read("d0/f0")
	r.unknown()
	r.write("g", random(size, 100))
	r.sync()
	states := func() (all string) {
		for i := range files {
			all += r.state(fmt.Sprint("d", i%2, "/f", i))[:1]
		}
		return all
	}
	r.eventually("the one is evicted that was used first", func() bool { return states() == "rprrrr" })
	if got := r.hot.Bytes(); got != files*size {
		t.Errorf("%d bytes are counted", got)
	}
	for i := range files {
		r.same(fmt.Sprint("d", i%2, "/f", i), random(size, uint64(i)))
	}
	r.onlyRoot()
	if got := r.hot.Bytes(); got != 0 {
		t.Errorf("%d bytes are counted", got)
	}
}

// So it is after a start, which knows no node.
func TestEvictUnknown(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.write(fmt.Sprint("f", i), random(100<<10, uint64(i)))
	}
	r.sync()
	for i := range 5 { // as the host remembers it
		ts := unix.NsecToTimespec(int64(1+(i+2)%5) * 1e9)
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, r.rawPath(fmt.Sprint("f", i)),
			[]unix.Timespec{ts, {Nsec: unix.UTIME_OMIT}}, 0); err != nil {
			t.Fatal(err)
		}
	}
	r = r.reopen(hotSize(250 << 10))
	r.eventually("the bound holds", func() bool { return r.hot.Bytes() <= 250<<10 })
	if got := r.states(5); got != "pbbpp" {
		t.Errorf("%s, want pbbpp", got)
	}
}

// As many files are resident as there is memory for.
func TestHotFiles(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Most.Resident = 3 })
	for i := range 5 {
		r.write(fmt.Sprint("f", i), random(100<<10, uint64(i)))
		r.sync()
	}
	r.eventually("the first ones are evicted", func() bool { return r.states(5) == "ppbbb" })
}

// A file that went, and its bytes with it, is not looked for again and again.
func TestEvictGone(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"f", "g"} {
		r.write(p, random(100<<10, 1))
	}
	r.sync()
	r.unknown()
	if err := os.Remove(r.rawPath("f")); err != nil { // behind the volume's back
		t.Fatal(err)
	}
	r.hot.Free(func() bool { return false })
	r.want("g", packed)
	if got := r.hot.Bytes(); got != 0 {
		t.Errorf("%d bytes are counted", got)
	}
}

// What is not known of a local copy that was forgotten before it was durable is not known later either.
func TestForgottenIsNotDurable(t *testing.T) {
	data := random(200<<10, 1)
	for name, c := range map[string]struct {
		settled bool  // the copy is durable
		fails   error // the next sync
		state   string
		fresh   int64 // bytes that are hydrated when it is written
	}{
		"not synced":          {state: both, fresh: int64(len(data))},
		"synced":              {settled: true, state: both},
		"not synced, failure": {fails: unix.EIO, state: packed, fresh: int64(len(data))},
		"synced, failure":     {settled: true, fails: unix.EIO, state: both},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.names.SyncTree = func() error { return nil }
			r.write("f", data)
			r.pack("f")
			r.unknown()
			if c.settled {
				if err := r.durability.syncTree(); err != nil {
					t.Fatal(err)
				}
			}
			if c.fails != nil {
				r.names.SyncTree = func() error { return c.fails }
				if err := r.durability.syncTree(); err == nil {
					t.Fatal("no error")
				}
				// A later one says nothing of what that one was told.
				r.names.SyncTree = func() error { return nil }
				if err := r.durability.syncTree(); err != nil {
					t.Fatal(err)
				}
			}
			r.want("f", c.state)
			r.unknown()
			r.want("f", c.state)
			r.patch("f", []byte("new"), 0)
			if got := r.content.Count.HydratedBytes.Load(); got != c.fresh {
				t.Errorf("%d bytes were hydrated to write the file, want %d", got, c.fresh)
			}
			r.same("f", append([]byte("new"), data[3:]...))
			if c.fails != nil {
				r.badEnd()
			}
		})
	}
}

// How often a file was packed again since it could not be evicted is not forgotten: that has an end.
func TestKeptIsNotForgotten(t *testing.T) {
	r := newRig(t)
	want := weights(t, []string{"a"}, random(300<<10, 1))
	r.write("f.safetensors", want)
	r.sync()
	ino := r.stat("f.safetensors").Ino
	h, _ := r.manifestOf("f.safetensors")
	r.dropEntry(h)
	if _, err := r.Evict(context.Background(), "", nil); err != nil {
		t.Fatal(err)
	}
	r.sync()
	r.want("f.safetensors", both)
	n := r.names.Known(ino)
	if n == nil {
		t.Fatal("it is forgotten")
	}
	n.Unpin()
	r.same("f.safetensors", want)
	r.onlyRoot()
}

// Files are evicted, opened, renamed and removed while others are looked for in the tree.
func TestEvictForgottenRace(t *testing.T) {
	const files = 40
	r := newRig(t, hotSize(10*70<<10))
	name := func(i int) string { return fmt.Sprint("d", i%4, "/f", i) }
	for d := range 4 {
		r.mkdir(fmt.Sprint("d", d))
	}
	for i := range files {
		r.write(name(i), random(70<<10, uint64(i)))
	}
	r.sync()
	var wait sync.WaitGroup
	stop := make(chan struct{})
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.hot.Free(func() bool { return false })
			}
		}
	})
	for round := range 6 {
		for i := range files {
			switch (i + round) % 4 {
			case 0:
				r.rename(name(i), name(i)+"x")
				r.rename(name(i)+"x", name(i))
			case 1:
				r.same(name(i), random(70<<10, uint64(i)))
			case 2:
				r.unlink(name(i))
				r.write(name(i), random(70<<10, uint64(i)))
			case 3:
				if _, err := r.Hydrate(context.Background(), name(i), nil); err != nil {
					t.Error(err)
				}
			}
		}
	}
	close(stop)
	wait.Wait()
	r.sync()
	for i := range files {
		r.same(name(i), random(70<<10, uint64(i)))
	}
	r.onlyRoot()
	if got := r.hot.Bytes(); got != 0 {
		t.Errorf("%d bytes are counted", got)
	}
	if got := r.content.Count.EvictErrs.Load(); got != 0 {
		t.Errorf("%d evictions failed\n%s", got, r.log)
	}
}
