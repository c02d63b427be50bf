package queue

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/pack"
)

// remove removes a file's last name, as a volume does. Afterwards only the caller pins it, so often, and the
// process has no descriptor of it.
func (r *rig) remove(name string, pins int64) {
	r.t.Helper()
	f, n := r.file(name), r.known[name]
	if err := os.Remove(n.at()); err != nil {
		r.t.Fatal(err)
	}
	n.gone.Store(true)
	f.Pin()
	f.Lock()
	f.BuryLocked()
	r.Forget(f)
	f.Unlock()
	f.Unpin()
	r.eventually(fmt.Sprintf("%s is pinned %d times after it was removed", name, pins), func() bool {
		return n.pins.Load() == pins // who packs it looks soon
	})
	if s, ok := r.stage(name); ok {
		r.t.Errorf("%s is at stage %d after it was removed", name, s)
	}
}

// noneOpen waits until the process has no descriptor of a removed file.
func (r *rig) noneOpen(name string) {
	r.t.Helper()
	at := r.known[name].at() + " (deleted)"
	r.eventually("the descriptors of "+name+" are closed", func() bool {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			r.t.Fatal(err)
		}
		return !slices.ContainsFunc(fds, func(e os.DirEntry) bool {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			return to == at
		})
	})
}

// busy has no processor for packing after so many turns. asked counts the turns that were asked for.
func busy(after int64, asked *atomic.Int64) func(*Options) {
	return func(o *Options) {
		o.Pack = pack.New(o.Store, pack.Options{Turn: func(ctx context.Context) (func(), error) {
			if asked.Add(1) > after {
				<-ctx.Done()
			}
			return func() {}, ctx.Err()
		}})
	}
}

// nothing fails the test if the queue knows of anything.
func (r *rig) nothing() {
	r.t.Helper()
	r.Failures(func(f *content.File, err error, _ time.Time, _ int) { r.t.Errorf("%s: %v", f.Path(), err) })
	r.mu.Lock()
	failed := len(r.lines) > 0
	r.mu.Unlock()
	if n := r.files.Count.PackErrs.Load(); n > 0 || failed {
		r.t.Errorf("%d failures", n)
	}
	r.Queue.mu.Lock()
	defer r.Queue.mu.Unlock()
	b := &r.backlog
	if b.bytes != 0 || len(b.queued)+len(b.packing)+len(r.queued)+len(r.packing)+len(r.ahead) > 0 {
		r.t.Errorf("%d bytes in %d, %d, %d, %d and %d files", b.bytes, len(b.queued), len(b.packing),
			len(r.queued), len(r.packing), len(r.ahead))
	}
}

// A removed file that waits to be packed waits no longer, and a close waits for it no longer.
func TestForgetQueued(t *testing.T) {
	r := newRig(t, maxUnpacked(150<<10))
	for i := range 3 {
		r.write(fmt.Sprint(i), random(100<<10, uint64(i)))
	}
	done := make(chan struct{})
	go func() { r.MakeRoom(r.file("new"), 100<<10); close(done) }()
	r.eventually("a close waits", func() bool { return r.Status().WaitingCloses > 0 })
	for _, name := range []string{"1", "0", "2"} {
		r.remove(name, 0)
		r.noneOpen(name)
	}
	<-done
	r.nothing()
	if err := r.Rests(t.Context()); err != nil {
		t.Error(err)
	}
}

// The close of a file that was removed waits for no other file.
func TestForgetClosing(t *testing.T) {
	r := newRig(t, maxUnpacked(150<<10))
	r.write("a", random(100<<10, 1))
	r.file("new")
	done := make(chan struct{})
	go func() { r.MakeRoom(r.file("new"), 100<<10); close(done) }()
	r.eventually("a close waits", func() bool { return r.Status().WaitingCloses > 0 })
	r.remove("new", 0)
	<-done
	r.MakeRoom(r.file("new"), 1<<20)
	r.remove("a", 0)
	r.nothing()
}

// A removed file that is packed is let go of at once, though its worker waits for a processor, and that is no
// failure.
func TestForgetPacking(t *testing.T) {
	var asked atomic.Int64
	r := newRig(t, busy(0, &asked))
	r.write("a", random(100<<10, 1))
	r.Start()
	r.eventually("its packing begins", func() bool { return asked.Load() > 0 })
	r.remove("a", 0)
	r.noneOpen("a")
	if err := r.Rests(t.Context()); err != nil {
		t.Error(err)
	}
	r.nothing()
}

// So it is with a file of a group whose other files are not packed yet.
func TestForgetOfGroup(t *testing.T) {
	var asked atomic.Int64
	r := newRig(t, busy(1, &asked))
	for i := range 3 {
		r.write(fmt.Sprint(i), random(100<<10, uint64(i)))
	}
	group, _ := r.take()
	if len(group) != 2 {
		t.Fatalf("a group of %d", len(group))
	}
	done := make(chan struct{})
	go func() { r.packGroup(t.Context(), group, false); close(done) }()
	r.eventually("the packing of the second file begins", func() bool { return asked.Load() > 1 })
	r.remove("0", 0)
	r.noneOpen("0")
	r.remove("2", 0)
	r.remove("1", 0)
	<-done
	r.noneOpen("1")
	r.nothing()
}

// A file that was removed before the turn that its group was given it has none.
func TestForgetOfGroupBefore(t *testing.T) {
	r := newRig(t)
	r.write("a", random(100<<10, 1))
	r.write("b", random(100<<10, 2))
	group, alone := r.take()
	r.remove("a", 0)
	r.packGroup(t.Context(), group, alone)
	r.remove("b", 0)
	r.nothing()
}

// The close of a large file, which is packed ahead, waits no longer when the file is removed.
func TestForgetAhead(t *testing.T) {
	var asked atomic.Int64
	r := newRig(t, busy(0, &asked), maxUnpacked(50<<10))
	h := r.open("large")
	if _, err := h.Write(random(100<<10, 1), 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { r.MakeRoom(r.file("large"), h.Flush(false)); close(done) }()
	r.eventually("it is packed ahead", func() bool { return asked.Load() > 0 })
	r.remove("large", 1) // the handle's
	<-done
	h.Release()
	r.noneOpen("large")
	if n := r.known["large"].pins.Load(); n != 0 {
		t.Errorf("pinned %d times", n)
	}
	r.nothing()
}

// A removed file is no failure any more, and is not tried again.
func TestForgetFailed(t *testing.T) {
	r := newRig(t)
	r.o.Reserve.least.Store(everything)
	r.write("a", random(100<<10, 1))
	r.Start()
	r.eventually("it is put off", func() bool { s, ok := r.stage("a"); return ok && s == Delayed })
	r.Queue.mu.Lock()
	r.delayed[r.file("a")].timer.Stop()
	r.Queue.mu.Unlock()
	r.remove("a", 0)
	r.noneOpen("a")
	r.Failures(func(f *content.File, err error, _ time.Time, _ int) { t.Errorf("%s: %v", f.Path(), err) })
	f := r.file("a")
	f.Lock()
	r.Add(f) // as a late event
	f.Unlock()
	r.NotePlain(f)
	r.crowdIn(f, errNoFile)
	if n := r.known["a"].pins.Load(); n != 0 {
		t.Errorf("pinned %d times", n)
	}
}

// A file for which there was no room is looked at soon after a removed one gave its room back, however long
// it was put off for.
func TestFreed(t *testing.T) {
	r := newRig(t)
	f, room := r.file("a"), r.o.Reserve.left()
	r.write("a", random(100<<10, 1))
	group, alone := r.take()
	r.begin(f)
	f.Unpin()
	r.putOff(f, &roomError{})
	r.endGroup(alone)
	if len(group) != 1 {
		t.Fatalf("%d files", len(group))
	}
	r.Queue.mu.Lock()
	d := r.delayed[f]
	d.timer.Reset(time.Hour)
	d.room = room - 1<<30 // there is more now
	r.Queue.mu.Unlock()
	r.Start()
	r.Freed()
	r.Freed()
	r.eventually("it is packed", func() bool { return r.packed("a") })
}
