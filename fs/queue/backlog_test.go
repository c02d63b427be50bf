package queue

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/index/runs"
)

func TestBacklogCounts(t *testing.T) {
	b, now := newBacklog(10, 0), time.Now()
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
	if b = newBacklog(-1, 0); b.full(nil, 1<<60) {
		t.Error("no bound is one")
	}
}

// Files are counted, too: each that waits takes memory.
func TestBacklogCountsFiles(t *testing.T) {
	b, now := newBacklog(-1, 3), time.Now()
	x, y, z := &content.File{}, &content.File{}, &content.File{}
	b.add(x, 1, now)
	if b.presses(now) {
		t.Error("one of three presses")
	}
	b.add(y, 1, now)
	b.begin(x)
	if !b.presses(now) || b.full(z, 0) {
		t.Error("two of three do not press, or a third waits")
	}
	b.add(z, 1, now)
	if !b.full(nil, 0) || b.full(z, 0) {
		t.Error("a fourth does not wait, or the third waits for itself")
	}
}

// What waits for the longest is known without looking at all that waits, and what waits no longer is let go.
func TestBacklogOrder(t *testing.T) {
	b, start := newBacklog(-1, 0), time.Now()
	first := &content.File{}
	b.add(first, 1, start)
	for i := range 1000 {
		f := &content.File{}
		b.add(f, 1, start.Add(time.Duration(i)))
		b.begin(f)
		b.end(f)
	}
	if !b.since().Equal(start) || len(b.order) > 100 {
		t.Errorf("since %v, %d in order", b.since().Sub(start), len(b.order))
	}
	b.begin(first)
	b.add(first, 1, start.Add(time.Second)) // written again while it is packed
	if !b.since().Equal(start) {
		t.Error("a file that is packed does not count")
	}
	b.end(first)
	if !b.since().Equal(start.Add(time.Second)) {
		t.Errorf("since %v", b.since().Sub(start))
	}
}

func TestMakeRoom(t *testing.T) {
	r := newRig(t, maxUnpacked(10))
	f := r.file("f")
	r.packing[f] = &turn{}
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
		own := h.Flush(false)
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
	g := guard(r.Queue, bytes.NewReader([]byte("hello")))
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
	b, now := newBacklog(100, 0), time.Now()
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
	b = newBacklog(-1, 0)
	if b.add(x, 1<<60, now); b.presses(now) {
		t.Error("no bound presses")
	}
}

// The close of a file that alone has more than may wait ends once its chunks are in the store: its packing
// finds them there. A second close of the same bytes puts nothing. Where there is no room it ends, and the
// store is as it was.
func TestCloseOfLarge(t *testing.T) {
	const mib = 1 << 20
	r := newRig(t, maxUnpacked(mib))
	h := r.open("large")
	if _, err := h.Write(random(3*mib, 1), 0); err != nil {
		t.Fatal(err)
	}
	held := func() int64 { return r.o.Store.Stats().Chunks.Raw }
	r.MakeRoom(r.file("large"), h.Flush(false))
	if got := held(); got < 3*mib || r.packed("large") || r.backlog.bytes != 0 || len(r.packing) > 0 {
		t.Errorf("after the close %d bytes are in the store, %d wait", got, r.backlog.bytes)
	}
	read := r.backlog.read.Load()
	r.MakeRoom(r.file("large"), h.Flush(false))
	if r.backlog.read.Load() != read {
		t.Error("read again")
	}
	h.Release()
	before := held()
	r.Start()
	r.eventually("it is packed", func() bool { return r.packed("large") })
	if held() != before {
		t.Errorf("%d bytes of chunks, and %d after it was packed", before, held())
	}

	r = newRig(t, maxUnpacked(mib), func(o *Options) { o.Reserve.least.Store(1 << 60) })
	h = r.open("large")
	if _, err := h.Write(random(3*mib, 1), 0); err != nil {
		t.Fatal(err)
	}
	r.MakeRoom(r.file("large"), h.Flush(false))
	if n := r.o.Store.Stats().Totals; n.Chunks.Records != 0 || !r.reported("a close waits no longer") ||
		!r.reported("free at least") {
		t.Errorf("without room: %+v, %q", n, r.lines)
	}
	h.Release()
	r.Start()
	if err := r.PackAll(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if r.packed("large") {
		t.Error("packed without room")
	}
}

// A file for which there is no room is packed alone, and tried again when there is more than there was, or
// another was packed.
func TestAlone(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.write(name, random(100<<10, 1))
	}
	positions := map[*content.File]runs.Position{}
	for _, f := range r.queued {
		positions[f] = nil
	}
	r.Queue.mu.Lock()
	defer r.Queue.mu.Unlock()
	if g := r.nextLocked(positions, 250<<10); len(g) != 2 || r.alone {
		t.Errorf("two that fit: %d, alone %v", len(g), r.alone)
	}
	if g := r.nextLocked(positions, 250<<10); len(g) != 0 {
		t.Error("a third beside them")
	}
	for f := range r.packing {
		delete(r.packing, f)
		r.backlog.end(f)
		f.Unpin()
	}
	if g := r.nextLocked(positions, 0); len(g) != 1 || !r.alone {
		t.Errorf("without room: %d, alone %v", len(g), r.alone)
	}
	for f := range r.packing {
		delete(r.packing, f)
		r.backlog.end(f)
		f.Unpin()
	}
}
