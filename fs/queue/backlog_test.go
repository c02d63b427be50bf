package queue

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

func TestBacklogCounts(t *testing.T) {
	b, now := newBacklog(10), time.Now()
	x, y := &content.File{}, &content.File{}
	if b.full(x, 100) {
		t.Error("a file that is alone waits, however large")
	}
	b.add(x, 4, now)
	b.add(y, 5, now)
	b.begin(x)
	b.add(x, 6, now) // written again while it is packed
	if b.bytes != 15 || !b.full(nil, 0) {
		t.Errorf("%d bytes", b.bytes)
	}
	b.end(x)
	if b.bytes != 11 || !b.full(nil, 0) {
		t.Errorf("%d bytes", b.bytes)
	}
	b.begin(x)
	b.end(x)
	if b.bytes != 5 || b.full(nil, 5) || !b.full(nil, 6) {
		t.Errorf("%d bytes", b.bytes)
	}
	b.begin(y)
	b.end(y)
	if b.bytes != 0 || len(b.queued)+len(b.packing) > 0 {
		t.Errorf("%+v", &b)
	}
	if b = newBacklog(-1); b.full(nil, 1<<60) {
		t.Error("no bound is one")
	}
}

func TestMakeRoom(t *testing.T) {
	r := newRig(t, maxUnpacked(10))
	f := r.file("f")
	r.packing[f] = true
	f.Pin()
	r.backlog.add(f, 8, time.Now())
	r.backlog.begin(f)
	done := make(chan struct{})
	go func() { r.MakeRoom(r.file("g"), 3); close(done) }()
	r.eventually("a close waits", func() bool { return r.Status().WaitingCloses > 0 })
	select {
	case <-done:
		t.Fatal("it did not wait")
	default:
	}
	r.putOff(f, nil) // put off: nobody can say when it will be packed
	<-done

	// One that stands still.
	r = newRig(t, maxUnpacked(10))
	r.backlog.patience = 50 * time.Millisecond
	r.backlog.add(r.file("f"), 8, time.Now())
	r.MakeRoom(r.file("g"), 3)
	if !r.reported("packing stands still") {
		t.Error("not a word about it")
	}
}

// A file that grows while it waits counts with what it has grown to, and does not wait for itself.
func TestGrowsWhileItWaits(t *testing.T) {
	const mib = 1 << 20
	r := newRig(t, maxUnpacked(2*mib))
	r.backlog.patience = 10 * time.Millisecond
	closes := func(h *content.Handle, name string) (waits bool) {
		own := h.Flush()
		r.MakeRoom(r.file(name), own)
		h.Release()
		waits, r.lines = r.reported("packing stands still"), nil
		return waits
	}
	writes := func(name string, n int) *content.Handle {
		h := r.open(name)
		if _, err := h.Write(random(n, 1), 0); err != nil {
			t.Fatal(err)
		}
		return h
	}
	if closes(writes("a", mib/2), "a") || closes(writes("a", 7*mib/4), "a") {
		t.Error("a file that is alone waits")
	}
	if !closes(writes("b", mib), "b") {
		t.Error("a close does not wait for what a waiting file has grown to")
	}
	if closes(writes("a", 3*mib), "a"); r.backlog.bytes != 4*mib {
		t.Errorf("%d bytes", r.backlog.bytes)
	}
}

func TestReserve(t *testing.T) {
	r := newRig(t)
	g := r.guard(bytes.NewReader([]byte("hello")))
	b := make([]byte, 5)
	if _, err := g.ReadAt(b, 0); err != nil && err != io.EOF || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if r.backlog.read.Load() != 5 {
		t.Error("what packing reads is not counted")
	}
	if _, err := r.o.Reserve.check(); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}

// What waits presses after a while, or when it is much; then packing goes on though others want the
// processors.
func TestBacklogPresses(t *testing.T) {
	b, now := newBacklog(100), time.Now()
	x, y := &content.File{}, &content.File{}
	if b.presses(now) || !b.since().IsZero() {
		t.Error("nothing waits, and presses")
	}
	b.add(x, 20, now)
	now = now.Add(patientFor / 2)
	b.add(y, 30, now)
	b.begin(x)
	if b.presses(now) {
		t.Error("pressed at once")
	}
	b.add(y, 31, now)
	if !b.presses(now) {
		t.Error("half of what closes wait for does not press")
	}
	b.add(y, 30, now)
	if now = now.Add(patientFor / 2); !b.presses(now) {
		t.Error("a file that waited for long does not press")
	}
	b.end(x)
	b.add(y, 30, now) // written again: it waits since it was closed first
	if b.presses(now) || !b.presses(now.Add(patientFor/2)) {
		t.Error("the next one presses at another time")
	}
	b = newBacklog(-1)
	if b.add(x, 1<<60, now); b.presses(now) {
		t.Error("no bound presses")
	}
}
