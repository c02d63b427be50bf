package volume

import (
	"ckptfs/fs/content"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is filled in waits while somebody reads packed files, but not for ever, and not at the end.
func TestHydrationWaits(t *testing.T) {
	v := &Volume{}
	v.content = content.New(content.Parts{Events: events{v}, Now: time.Now})
	v.names = newNames(v)
	v.hot = newHotList(v, 1<<40)
	start := time.Now()
	at := start
	v.now = func() time.Time { return at }
	h := newHydrator(v, 0)
	var readFor time.Duration
	h.after = func(d time.Duration) <-chan time.Time {
		if at.Sub(start) < readFor {
			d = min(d, 100*time.Millisecond)
			v.content.Count.ReadPacked.Add(1)
		}
		at = at.Add(d)
		c := make(chan time.Time, 1)
		c <- at
		return c
	}
	waits := func(what string, lasts, want time.Duration) {
		t.Helper()
		start, readFor = at, lasts
		h.add(unpinned(v).file)
		for len(h.queue) > 0 {
			if !h.wait() {
				t.Fatal("the end")
			}
			h.next()
		}
		if got := at.Sub(start); got < want || got > want+200*time.Millisecond {
			t.Errorf("%s: filled in after %v, want %v", what, got, want)
		}
	}
	waits("opened", 0, readsStill)
	waits("loaded", 4*time.Second, 4*time.Second+readsStill)
	waits("read for ever", 1<<60, maxHydrateWait)

	// Those that waited together do not wait again, one after the other.
	h.add(unpinned(v).file)
	h.add(unpinned(v).file)
	waits("the last of three", 0, readsStill)

	h.after = func(time.Duration) <-chan time.Time { return nil }
	h.add(unpinned(v).file)
	close(h.quit)
	if h.wait() {
		t.Error("filled in at the end")
	}
}

// A file that waits to be filled in and loses its name, or that somebody wants evicted, waits no more: prune takes its chunks.
func TestHydrationForgets(t *testing.T) {
	for what, gone := range map[string]func(r *rig){
		"removed":  func(r *rig) { r.unlink("f") },
		"replaced": func(r *rig) { r.write("g", nil); r.rename("g", "f") },
		"evicted, then removed": func(r *rig) {
			if _, err := r.Evict(t.Context(), "f", nil); err != nil {
				t.Fatal(err)
			}
			r.awaitHydrator()
			r.unlink("f")
		},
		"removed while it is read": func(r *rig) {
			h := r.open("f", unix.O_RDONLY)
			r.unlink("f")
			if _, err := r.readHandle(h); err != nil {
				t.Fatal(err)
			}
			r.release(h)
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.HydrateAfter = time.Hour })
			want := random(300<<10, 1)
			r.write("f", want)
			r.packOut("f")
			r.same("f", want)
			if len(r.hydrator.in) != 1 {
				t.Fatal("nothing waits")
			}
			r.want("f", packed)
			gone(r)
			r.wantNothing()
			r.awaitHydrator()
		})
	}
}

// A hydration that is asked for does not wait, nor does whoever writes, nor the end.
func TestHydratedAtOnce(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HydrateAfter = time.Hour })
	want := random(300<<10, 1)
	for _, p := range []string{"f", "g", "h"} {
		r.write(p, want)
		r.packOut(p)
	}
	for _, p := range []string{"f", "g", "h"} {
		r.same(p, want)
	}
	if _, err := r.Hydrate(t.Context(), "f", nil); err != nil {
		t.Fatal(err)
	}
	r.want("f", both)
	h := r.open("g", unix.O_WRONLY)
	r.want("g", resident)
	r.release(h)
	r.want("h", packed)
	r = r.reopen()
	r.same("h", want)
}

// unpinned is a node of a file that is nowhere.
func unpinned(v *Volume) *Node {
	n := &Node{ns: v.names, refs: 1}
	n.file = content.NewFile(v.content, n)
	return n
}
