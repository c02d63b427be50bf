package volume

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
	if b.full(100) {
		t.Error("a file that is alone waits, however large")
	}
	b.add(x, 4, now)
	b.add(y, 5, now)
	b.begin(x)
	b.add(x, 6, now) // written again while it is packed
	if b.bytes != 15 || !b.full(0) {
		t.Errorf("%d bytes", b.bytes)
	}
	b.end(x)
	if b.bytes != 11 || !b.full(0) {
		t.Errorf("%d bytes", b.bytes)
	}
	b.begin(x)
	b.end(x)
	if b.bytes != 5 || b.full(5) || !b.full(6) {
		t.Errorf("%d bytes", b.bytes)
	}
	b.begin(y)
	b.end(y)
	if b.bytes != 0 || len(b.queued)+len(b.busy) > 0 {
		t.Errorf("%+v", &b)
	}
	if b = newBacklog(-1); b.full(1 << 60) {
		t.Error("no bound is one")
	}
}

// waits reports whether p has a close waiting, in time.
func waits(t *testing.T, p *packer) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := p.backlog.waiting
		p.mu.Unlock()
		if n > 0 {
			return
		}
	}
	t.Fatal("nobody waits")
}

func TestMakeRoom(t *testing.T) {
	r := newRig(t)
	p := r.newQueue(10)
	n := unpinned(r.Volume).file
	p.busy[n] = true
	p.backlog.add(n, 8, time.Now())
	p.backlog.begin(n)
	done := make(chan struct{})
	go func() { p.makeRoom(3); close(done) }()
	waits(t, p)
	select {
	case <-done:
		t.Fatal("it did not wait")
	default:
	}
	n.Pin()
	p.finish(n, 8, true, errMapped) // put off: nobody can say when it will be packed
	<-done
	p.stop()

	// One that stands still.
	p = r.newQueue(10)
	p.backlog.patience = 50 * time.Millisecond
	p.backlog.add(n, 8, time.Now())
	p.makeRoom(3)
	if !r.log.has("packing stands still") {
		t.Errorf("not a word about it: %s", r.log)
	}
}

func TestReserve(t *testing.T) {
	r := newRig(t)
	g := &guarded{q: r.packer, r: bytes.NewReader([]byte("hello"))}
	b := make([]byte, 5)
	if _, err := g.ReadAt(b, 0); err != nil && err != io.EOF || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if r.packer.backlog.passed.Load() != 5 {
		t.Error("what packing reads is not counted")
	}
	if _, err := r.reserve.check(); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}

// What waits presses after a while, or when it is much; then packing goes on though others want the processors.
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

// unpinned is a node of a file that is nowhere.
func unpinned(v *Volume) *Node {
	n := &Node{ns: v.names, refs: 1}
	n.file = content.NewFile(v.content, n)
	return n
}
