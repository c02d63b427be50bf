package volume

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// states of files f0, f1, … as one string: r resident, b both, p packed.
func (r *rig) states(n int) string {
	r.t.Helper()
	s := ""
	for i := range n {
		s += map[string]string{resident: "r", both: "b", packed: "p"}[r.state(fmt.Sprint("f", i))]
	}
	return s
}

// The least recently opened copies go first, until the rest fits.
func TestHotOrder(t *testing.T) {
	const size = 100 << 10
	r := newRig(t, hotSize(3*size+size/2))
	for i := range 3 {
		r.write(fmt.Sprint("f", i), random(size, uint64(i)))
		r.sync()
	}
	if got := r.states(3); got != "bbb" {
		t.Fatal(got)
	}
	r.read("f0")
	r.write("f3", random(size, 3))
	r.sync()
	r.eventually("f1 is evicted", func() bool { return r.states(4) == "bpbb" })
	r.release(r.open("f2", unix.O_RDONLY))
	r.write("f4", random(size, 4))
	r.sync()
	r.eventually("f0 is evicted", func() bool { return r.states(5) == "ppbbb" })
	s, err := r.Status(context.Background())
	if err != nil || s.ResidentBytes != 3*size || s.HotSize != 3*size+size/2 {
		t.Errorf("%+v, %v", s, err)
	}
	for i := range 5 {
		r.same(fmt.Sprint("f", i), random(size, uint64(i)))
	}
}

// When evictions do not keep up with what is packed, new copies go at once; not those of a few large files,
// which only take their moment.
func TestHotSizeWhileMuchIsPacked(t *testing.T) {
	const size = 100 << 10
	var clock atomic.Int64
	r := newRig(t, hotSize(2*size), func(o *Options) {
		o.Now = func() time.Time { return time.Unix(1<<30, clock.Load()) }
	})
	r.hot.Stop() // as one that has very much to do
	save := func(i int) {
		r.write(fmt.Sprint("f", i), random(size, uint64(i)))
		r.sync()
	}
	for i := range 3 {
		save(i)
	}
	if got := r.states(3); got != "bbb" {
		t.Fatal(got)
	}
	clock.Add(int64(time.Minute))
	save(3)
	if got := r.states(4); got != "bbbp" {
		t.Fatal(got)
	}
	if _, err := r.Evict(t.Context(), "f0", nil); err != nil {
		t.Fatal(err)
	}
	clock.Add(int64(time.Minute))
	save(4)
	if got := r.states(5); got != "pbbpb" {
		t.Fatal(got)
	}
	r.sound()
}

// Without a hot size a file is evicted as soon as it is packed, and nothing is hydrated by reading.
func TestHotSizeZero(t *testing.T) {
	r := newRig(t, hotSize(0))
	want := random(300<<10, 1)
	r.write("f", want)
	r.sync()
	r.eventually("f is evicted", func() bool { return r.state("f") == packed })
	for range 3 {
		r.same("f", want)
	}
	r.awaitHydrator()
	r.want("f", packed)
	r.hydrateAll()
	r.eventually("f is evicted", func() bool { return r.state("f") == packed })
	r.same("f", want)
	r.onlyRoot()
}

// A packed file is hydrated when most of it is read, and when it is opened twice.
func TestHydratedWhenHot(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		r := newRig(t)
		want := random(300<<10, 1)
		r.write("f", want)
		r.packOut("f")
		r.same("f", want)
		r.eventually("f is hydrated", func() bool { return r.state("f") == both })
		r.same("f", want)
	})
	t.Run("opened again", func(t *testing.T) {
		r := newRig(t)
		r.write("f", random(300<<10, 1))
		r.packOut("f")
		n := r.find("f") // as the kernel keeps it
		defer r.forget(n)
		r.release(r.open("f", unix.O_RDONLY))
		r.awaitHydrator()
		r.want("f", packed)
		r.release(r.open("f", unix.O_RDONLY))
		r.eventually("f is hydrated", func() bool { return r.state("f") == both })
	})
	t.Run("too large", func(t *testing.T) {
		r := newRig(t, hotSize(500<<10))
		want := random(300<<10, 1)
		r.write("f", want)
		r.packOut("f")
		r.same("f", want)
		r.same("f", want)
		r.awaitHydrator()
		r.want("f", packed)
	})
}

// Readers that are at it notice nothing of evictions and hydrations.
func TestEvictUnderReader(t *testing.T) {
	r := newRig(t)
	want := random(5<<20, 1)
	r.write("f", want)
	r.pack("f")
	h := r.open("f", unix.O_RDONLY)
	got := make([]byte, len(want))
	const step = 100 << 10
	for i, off := 0, 0; off < len(got); i, off = i+1, off+step {
		p := got[off:min(off+step, len(got))]
		if n, err := h.Read(p, int64(off)); n != len(p) || err != nil {
			t.Fatalf("read at %d: %d, %v", off, n, err)
		}
		switch i % 4 {
		case 1:
			r.evictAll()
			r.want("f", packed)
		case 3:
			r.hydrateAll()
			r.want("f", both)
		}
	}
	r.equal("read", got, want)
	if n, err := h.Read(got, int64(len(want))); n != 0 || err != nil {
		t.Errorf("past the end: %d, %v", n, err)
	}
	r.release(h)
}

// The local copy of a mapped file is not dropped. Eviction waits until the mapping is gone.
func TestEvictUnderMapping(t *testing.T) {
	r := newRig(t)
	want := random(300<<10, 1)
	r.write("f", want)
	r.pack("f")
	f, err := os.Open(r.rawPath("f"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, len(want), unix.PROT_READ, unix.MAP_SHARED)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	moved, err := r.Evict(context.Background(), "f", nil)
	if err != nil || moved.Files != 0 || len(moved.Skipped) != 1 ||
		moved.Skipped[0].Reason != content.SkipInUse {
		t.Errorf("%+v, %v", moved, err)
	}
	r.want("f", both)
	r.equal("the mapping", m, want)
	r.same("f", want)
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	r.eventually("f is evicted", func() bool { return r.state("f") == packed })
	r.same("f", want)
}

// A file that is open in passthrough is evicted once it is closed.
func TestEvictWhenClosed(t *testing.T) {
	r, b := passthroughRig(t)
	want := random(300<<10, 1)
	w := r.open("f", unix.O_RDWR|unix.O_CREAT)
	if _, err := b.file(w).WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	r.release(w)
	r.pack("f")
	h := r.open("f", unix.O_RDONLY)
	moved, err := r.Evict(context.Background(), "", nil)
	if err != nil || moved.Files != 0 || len(moved.Skipped) != 1 ||
		moved.Skipped[0].Reason != content.SkipOpen {
		t.Errorf("%+v, %v", moved, err)
	}
	r.want("f", both)
	r.release(h)
	r.eventually("f is evicted", func() bool { return r.state("f") == packed })
	r.same("f", want)
}

// A file that is open for writing is not evicted; evict says why.
func TestEvictSkips(t *testing.T) {
	r := newRig(t)
	r.write("small", []byte("x"))
	h := r.open("f", unix.O_WRONLY|unix.O_CREAT)
	defer func() { r.release(h) }()
	r.writeAt(h, random(100<<10, 1), 0)
	r.sync()
	m, err := r.Evict(context.Background(), "", nil)
	if err != nil || m.Files != 0 || len(m.Skipped) != 1 || m.Skipped[0].Path != "f" ||
		!strings.Contains(m.Skipped[0].Reason, "open for writing") {
		t.Errorf("%+v, %v", m, err)
	}
	_, err = r.Evict(context.Background(), "nothing", nil)
	wantErr(t, "a path that is not there", err, os.ErrNotExist)
}

func TestMoved(t *testing.T) {
	r := newRig(t)
	r.mkdir("a/b")
	for i, p := range []string{"a/f", "a/b/g", "h"} {
		r.write(p, random(100<<10, uint64(i)))
	}
	r.sync()
	m, err := r.Evict(context.Background(), "a", nil)
	if err != nil || m.Files != 2 || m.Bytes != 200<<10 {
		t.Errorf("%+v, %v", m, err)
	}
	r.want("h", both)
	m, err = r.Hydrate(context.Background(), "a/b/g", nil)
	if err != nil || m.Files != 1 || m.Bytes != 100<<10 {
		t.Errorf("%+v, %v", m, err)
	}
	r.want("a/b/g", both)
	r.want("a/f", packed)
}
