package volume

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/store"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/pack"
)

// job is a file that was packed, and is not published yet.
type job struct {
	p   *content.Packing
	res *pack.Result
}

// begin packs a file as the queue does, up to the point where its manifest is published.
func (r *rig) begin(p string) job {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	b := r.store.Begin() // not released: what is in it is kept until it is published
	j, err := r.packFile(b, n.File())
	if err == nil {
		err = b.Commit()
	}
	if err != nil {
		r.t.Fatalf("pack %s: %v", p, err)
	}
	return j
}

func (r *rig) packFile(b *store.Batch, f *content.File) (j job, err error) {
	if j.p, err = f.BeginPack(func() {}); err != nil {
		return j, err
	}
	if j.p == nil {
		return j, errors.New("it is not to be packed")
	}
	defer j.p.Close()
	if stays, err := j.p.Stays(); stays || err != nil {
		return j, errors.Join(err, errors.New("it stays plain"))
	}
	l, err := j.p.Layout()
	if err != nil {
		return j, err
	}
	rel, _, end := r.bases.Related(context.Background(), f.Path(), l)
	defer end()
	j.res, err = r.Volume.pack.Layout(context.Background(), b, j.p.Raw, j.p.Size, l, rel)
	return j, err
}

// packQuietly packs a file as the queue does.
func (r *rig) packQuietly(p string) error {
	j := r.begin(p)
	return j.p.Publish(j.res)
}

// A manifest of bytes that changed meanwhile is never published.
func TestChangedWhilePacking(t *testing.T) {
	const size = 300 << 10
	for name, change := range map[string]func(r *rig) (done func()){
		"written and closed": func(r *rig) func() {
			r.patch("f", []byte("new"), 0)
			return func() {}
		},
		"open for writing": func(r *rig) func() {
			h := r.open("f", unix.O_RDWR)
			return func() { r.release(h) }
		},
		"being written": func(r *rig) func() {
			h := r.open("f", unix.O_RDWR)
			r.writeAt(h, []byte("new"), 0)
			return func() { r.release(h) }
		},
		"truncated": func(r *rig) func() {
			r.truncate("f", size/2)
			return func() {}
		},
		"O_TRUNC": func(r *rig) func() {
			r.release(r.open("f", unix.O_WRONLY|unix.O_TRUNC))
			return func() {}
		},
		"fallocated": func(r *rig) func() {
			h := r.open("f", unix.O_RDWR)
			if err := h.Fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != nil {
				r.t.Fatal(err)
			}
			return func() { r.release(h) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.withoutPacking()
			r.write("f", random(size, 1))
			j := r.begin("f")
			done := change(r)
			if err := j.p.Publish(j.res); err != nil {
				t.Fatal(err)
			}
			r.want("f", resident)
			want := r.read("f")
			done()
			r.queue.Start()
			r.sync()
			r.evictAll()
			r.same("f", want)
		})
	}
}

// A file that was unlinked or renamed while it was packed.
func TestMovedWhilePacking(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	want := random(300<<10, 1)
	r.write("f", want)
	r.write("g", want)
	jf, jg := r.begin("f"), r.begin("g")
	r.rename("f", "h")
	r.unlink("g")
	r.write("g", []byte("another"))
	for _, j := range []job{jf, jg} {
		if err := j.p.Publish(j.res); err != nil {
			t.Fatal(err)
		}
	}
	r.want("h", both)
	r.same("h", want)
	r.want("g", resident)
	r.same("g", []byte("another"))
}

// What a file says of itself in the queue and after it.
func TestQueue(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	for _, p := range []string{"a", "b", "c"} {
		r.write(p, random(100<<10, 1))
	}
	r.patch("a", []byte("x"), 0) // queued once
	const all = 300 << 10
	status := func() *control.Status {
		t.Helper()
		s, err := r.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := status()
	if s.Queue.Files != 3 || s.Queue.Bytes != all || s.UnpackedBytes != all || s.OpenFiles != 0 {
		t.Errorf("%+v", s)
	}
	h := r.open("a", unix.O_RDWR)
	if s = status(); s.OpenFiles != 1 || len(s.Failures) != 0 || s.Mode != control.ModeUnmounted {
		t.Errorf("%+v", s)
	}
	r.release(h)
	r.queue.Start()
	var last control.Progress
	if err := r.Sync(context.Background(), func(p control.Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	if last.DoneFiles != last.TotalFiles {
		t.Errorf("%+v", last)
	}
	s = status()
	if s.Queue.Files != 0 || len(s.Packing) != 0 || s.UnpackedBytes != 0 || s.ResidentBytes != all {
		t.Errorf("%+v", s)
	}
}

// A writable mapping keeps a file from being packed as long as it lives. The daemon finds it when the kernel
// refuses a lease.
func TestMappedForWriting(t *testing.T) {
	r := newRig(t)
	want := random(300<<10, 1)
	h := r.open("f", unix.O_RDWR|unix.O_CREAT)
	r.writeAt(h, want, 0)
	fd, err := unix.Open(r.rawPath("f"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(fd, 0, len(want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	r.release(h)
	r.sync()
	r.want("f", resident)
	copy(m[1000:], "by the mapping")
	copy(want[1000:], "by the mapping")
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	r.pack("f")
	r.same("f", want)
	r.evictAll()
	r.same("f", want)
}

// Steps that are saved faster than they are packed take no more than others.
func TestQuickSeries(t *testing.T) {
	stored := func(quick bool) int64 {
		r := newRig(t)
		r.withoutPacking()
		for i := range 12 {
			r.write(fmt.Sprintf("model-%d.safetensors", i), trained(t, 1, i))
			if i == 0 && !quick {
				r.queue.Start()
			}
			if !quick {
				r.sync()
			}
		}
		if quick {
			r.queue.Start()
		}
		r.sync()
		return r.store.Stats().Bytes
	}
	if slow, quick := stored(false), stored(true); quick > slow {
		t.Errorf("%d bytes, and %d bytes when they are saved one after the other", quick, slow)
	}
}
