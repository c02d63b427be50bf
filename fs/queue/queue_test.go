package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// packAll is PackAll, which has to end.
func (r *rig) packAll() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.PackAll(ctx, nil); err != nil {
		r.t.Fatal(err)
	}
}

// What is closed is packed, once, and what is small stays plain. A sync is told how far it is.
func TestPacks(t *testing.T) {
	var stored []string
	r := newRig(t, func(o *Options) {
		o.Stored = func(f *content.File) { stored = append(stored, f.Path()) }
	})
	r.write("a", random(100<<10, 1))
	r.write("a", random(100<<10, 2)) // waits already
	r.write("b", random(100<<10, 3))
	h := r.open("c") // is being written
	defer h.Release()
	if n := len(r.Queue.queued); n != 2 {
		t.Errorf("%d files wait", n)
	}
	if s, ok := r.stage("a"); !ok || s != Queued {
		t.Errorf("stage %v, %v", s, ok)
	}
	r.Start()
	var last control.Progress
	if err := r.PackAll(t.Context(), func(p control.Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	if last.DoneFiles != last.TotalFiles {
		t.Errorf("at the end %+v", last)
	}
	if !r.packed("a") || !r.packed("b") || r.packed("c") {
		t.Error("not packed, or too much")
	}
	if _, ok := r.stage("a"); ok {
		t.Error("a packed file waits")
	}
	count := &r.files.Count
	if len(stored) != 2 || count.PackedFiles.Load() != 2 || count.PackedBytes.Load() != 200<<10 {
		t.Errorf("%q were packed, %d are counted", stored, count.PackedFiles.Load())
	}
}

// A file that could not be packed is tried again, at once by PackAll, and until then is a failure.
func TestFailed(t *testing.T) {
	var failed atomic.Int64
	r := newRig(t, func(o *Options) { o.Failed = func() { failed.Add(1) } })
	errBroken := errors.New("broken")
	broken := make(chan struct{})
	r.files.Step = func(what string) error {
		select {
		case <-broken:
			return nil
		default:
			return errBroken
		}
	}
	r.write("a", random(100<<10, 1))
	r.Start()
	r.eventually("it is put off", func() bool { s, ok := r.stage("a"); return ok && s == Delayed })
	r.Failures(func(f *content.File, err error, _ time.Time, attempts int) {
		if f != r.file("a") || !errors.Is(err, errBroken) || attempts < 1 {
			t.Errorf("%s: %v, tried %d times", f.Path(), err, attempts)
		}
	})
	if r.files.Count.PackErrs.Load() == 0 || !r.reported("broken") {
		t.Error("nobody is told")
	}
	r.eventually("who waits for it is told", func() bool { return failed.Load() > 0 })
	if err := r.Rests(t.Context()); err != nil {
		t.Errorf("a file that was put off keeps it from resting: %v", err)
	}
	close(broken)
	r.packAll()
	if !r.packed("a") {
		t.Error("not tried again")
	}
	r.Failures(func(f *content.File, err error, _ time.Time, _ int) { t.Errorf("%s is still a failure", f.Path()) })
}

// What is packed or stays plain is made durable once, small files one by one unless they are many.
func TestMakeDurable(t *testing.T) {
	r := newRig(t)
	trees, names := 0, 0
	makeDurable := func(wantTrees, wantNames int) {
		t.Helper()
		tree := func() error { trees++; return nil }
		name := func() error { names++; return nil }
		if err := r.MakeDurable(tree, name); err != nil {
			t.Fatal(err)
		}
		if trees != wantTrees || names != wantNames {
			t.Errorf("the filesystem %d times, the names %d times, want %d and %d",
				trees, names, wantTrees, wantNames)
		}
		if r.Status().Unsynced {
			t.Error("something is left")
		}
	}
	makeDurable(0, 0)
	r.write("packed", random(100<<10, 1))
	r.Start()
	r.packAll()
	if !r.Status().Unsynced {
		t.Error("a packed file is not to be synced")
	}
	makeDurable(0, 1)
	r.write("small", []byte("small"))
	r.packAll()
	makeDurable(0, 2)
	r.write("gone", []byte("small"))
	r.packAll()
	r.Forget(r.file("gone"))
	makeDurable(0, 2)
	for i := range maxPlain + 1 {
		r.write(fmt.Sprint("small", i), []byte("small"))
	}
	r.packAll()
	makeDurable(1, 2)
}

// A sync ends when its caller goes while it is told how far it is.
func TestCancelledInReport(t *testing.T) {
	r := newRig(t)
	r.write("a", random(100<<10, 1))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	gone := func(control.Progress) {
		cancel()
		time.Sleep(10 * time.Millisecond) // whatever the end of ctx wakes is over
	}
	go func() { done <- r.PackAll(ctx, gone) }()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it goes on")
		r.wake()
	}
}

// After a sync that failed the next one syncs the whole filesystem.
func TestMakeDurableFails(t *testing.T) {
	errBroken := errors.New("broken")
	never := func() error { t.Error("called"); return nil }
	works := func() error { return nil }
	fails := func() error { return errBroken }

	r := newRig(t)
	synced := func() {
		t.Helper()
		if err := r.MakeDurable(works, never); err != nil || r.Status().Unsynced {
			t.Errorf("%v, and not all is durable", err)
		}
	}
	r.write("packed", random(100<<10, 1))
	r.write("small", []byte("small"))
	r.Start()
	r.packAll()
	if err := r.MakeDurable(never, fails); !errors.Is(err, errBroken) || !r.Status().Unsynced {
		t.Errorf("%v, and it is forgotten", err)
	}
	synced()

	for i := range maxPlain + 1 {
		r.write(fmt.Sprint("small", i), []byte("small"))
	}
	r.packAll()
	if err := r.MakeDurable(fails, never); !errors.Is(err, errBroken) || !r.Status().Unsynced {
		t.Errorf("%v, and it is forgotten", err)
	}
	synced()

	r.write("small", []byte("another"))
	r.packAll()
	r.known["small"].broken.Store(true)
	if err := r.MakeDurable(never, works); !errors.Is(err, errNoFile) || !r.Status().Unsynced {
		t.Errorf("%v, and it is forgotten", err)
	}
	synced()
}

// A file that is closed after the end does not wait, and is not pinned.
func TestAfterStop(t *testing.T) {
	r := newRig(t)
	r.Start()
	r.Stop()
	r.write("a", random(100<<10, 1))
	r.write("small", []byte("small"))
	if _, ok := r.stage("a"); ok {
		t.Error("it waits")
	}
}

// A sync that finds another one under way returns after it.
func TestMakeDurableTwice(t *testing.T) {
	r := newRig(t)
	r.NotePacked()
	under, end := make(chan struct{}), make(chan struct{})
	first, second := make(chan error, 1), make(chan error, 1)
	never := func() error { t.Error("called"); return nil }
	go func() { first <- r.MakeDurable(never, func() error { close(under); <-end; return nil }) }()
	<-under
	go func() { second <- r.MakeDurable(never, never) }()
	select {
	case err := <-second:
		close(end)
		t.Fatalf("it returned (%v) before the records are durable", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(end)
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
}

// Whatever programs and syncs do at the same time, in the end every file is packed and none waits.
func TestConcurrent(t *testing.T) {
	r := newRig(t, maxUnpacked(1<<20))
	const writers, files, rounds = 4, 6, 5
	for i := range writers * files {
		r.file(fmt.Sprint("f", i)) // the folder is made here, by one goroutine
	}
	var tries atomic.Int64
	r.files.Step = func(what string) error {
		if what == "pack: record" && tries.Add(1)%7 == 0 {
			return errors.New("broken")
		}
		return nil
	}
	r.Start()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range files * rounds {
				name := fmt.Sprint("f", w*files+i%files)
				h := r.open(name)
				if _, err := h.Write(random(70<<10, uint64(i)), 0); err != nil {
					t.Error(err)
				}
				r.MakeRoom(r.file(name), h.Flush(false))
				h.Release()
			}
		})
	}
	nothing := func() error { return nil }
	all.Go(func() {
		for range rounds {
			if err := errors.Join(r.PackAll(t.Context(), nil), r.MakeDurable(nothing, nothing)); err != nil {
				t.Error(err)
			}
			r.Status()
		}
	})
	all.Wait()
	r.eventually("all files are packed", func() bool {
		r.packAll()
		left := false
		for f := range r.Pending() {
			left = true
			f.Unpin()
		}
		return !left
	})
	for name := range r.known {
		if !r.packed(name) {
			t.Errorf("%s is not packed", name)
		}
	}
	if b := &r.backlog; b.bytes != 0 || len(b.queued)+len(b.packing) > 0 || len(r.waits)+len(r.ahead) > 0 {
		t.Errorf("left: %d bytes of %d and %d files, %d and %d",
			b.bytes, len(b.queued), len(b.packing), len(r.waits), len(r.ahead))
	}
}

// A sync tries a file again also when its timer has run out just now.
func TestRetriedAtOnce(t *testing.T) {
	r := newRig(t)
	r.write("a", random(100<<10, 1))
	r.groups()
	r.begin(r.file("a"))
	r.file("a").Unpin()
	r.putOff(r.file("a"), errors.New("broken"))
	if !r.delayed[r.file("a")].timer.Stop() {
		t.Skip("too late")
	}
	r.Start()
	r.packAll()
	if !r.packed("a") {
		t.Error("not packed")
	}
}
