package volume

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// A file goes once through all states and has the same bytes in each.
func TestStates(t *testing.T) {
	r := newRig(t)
	want := random(3<<20+17, 1)
	h := r.open("f", unix.O_RDWR|unix.O_CREAT)
	r.writeAt(h, want, 0)
	r.want("f", resident)
	r.same("f", want)
	r.release(h)

	r.sync()
	r.want("f", both)
	r.same("f", want)

	r.evictAll()
	r.want("f", packed)
	r.hollow("f")
	r.same("f", want)

	r.hydrateAll()
	r.want("f", both)
	r.same("f", want)
	r.evictAll()

	r.patch("f", []byte("other"), 1<<20)
	copy(want[1<<20:], "other")
	r.same("f", want)
	r.packOut("f")

	r = r.reopen()
	r.want("f", packed)
	r.same("f", want)
}

// The state a file is opened in, and the bytes an O_TRUNC leaves of it.
func TestOpenTruncates(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			r.write("f", random(200<<10, 1))
			done := r.bring("f", state)
			h := r.open("f", unix.O_WRONLY|unix.O_TRUNC)
			done()
			if a := r.stat("f"); a.Size != 0 {
				t.Errorf("size %d after O_TRUNC", a.Size)
			}
			r.want("f", resident)
			want := random(100<<10, 2)
			r.writeAt(h, want, 0)
			r.release(h)
			r.same("f", want)
			r.packOut("f")
			r.hollow("f")
			r.same("f", want)
		})
	}
}

// An O_TRUNC that nothing is written after leaves an empty file, also for the next start.
func TestTruncatedToNothing(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			r.write("f", random(200<<10, 1))
			done := r.bring("f", state)
			r.release(r.open("f", unix.O_WRONLY|unix.O_TRUNC))
			done()
			r.same("f", nil)
			r.crashed().same("f", nil)
			r.reopen().same("f", nil)
		})
	}
}

// bring brings a file that was just written into a state. In the state resident a writer holds it, until
// done.
func (r *rig) bring(p, state string) (done func()) {
	r.t.Helper()
	done = func() {}
	switch state {
	case resident:
		h := r.open(p, unix.O_WRONLY)
		done = func() { r.release(h) }
	case both:
		r.pack(p)
	case packed:
		r.packOut(p)
	}
	r.want(p, state)
	return done
}

// truncate(2) both ways, in each state.
func TestTruncate(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		for _, size := range []int64{0, 1, 70 << 10, 200<<10 - 1, 200 << 10, 200<<10 + 1, 1 << 20} {
			r := newRig(t)
			want := random(200<<10, 1)
			r.write("f", want)
			done := r.bring("f", state)
			r.truncate("f", size)
			want = append(want, make([]byte, 1<<20)...)[:size]
			r.same("f", want)
			done()
			r.sync()
			r.evictAll()
			r.same("f", want)
			r = r.reopen()
			r.same("f", want)
			if t.Failed() {
				t.Fatalf("%s, truncated to %d", state, size)
			}
		}
	}
}

func (r *rig) truncate(p string, size int64) {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	a, err := r.Setattr(n, &tree.SetAttr{Size: &size})
	if err != nil {
		r.t.Fatalf("truncate %s to %d: %v", p, size, err)
	}
	if a.Size != size {
		r.t.Errorf("truncate %s to %d answers %d", p, size, a.Size)
	}
}

func TestAppend(t *testing.T) {
	r := newRig(t)
	want := random(100<<10, 1)
	r.write("f", want)
	r.packOut("f")
	h := r.open("f", unix.O_WRONLY|unix.O_APPEND)
	more := random(50<<10, 2)
	r.writeAt(h, more, int64(len(want))) // the kernel resolves O_APPEND
	r.release(h)
	want = append(want, more...)
	r.same("f", want)
	r.packOut("f")
	r.same("f", want)
}

// Small files stay as they are unless they are checkpoints.
func TestSmall(t *testing.T) {
	r := newRig(t)
	files := map[string][]byte{
		"empty":            {},
		"one":              {1},
		"metrics.json":     []byte(`{"val_loss": 0.31}`),
		"just":             random(64<<10-1, 1),
		"limit":            random(64<<10, 2),
		"flat.pt":          fixture(t, "flat.pt"),
		"tiny.safetensors": weights(t, []string{"a"}, []byte{1, 2, 3}),
		"less.safetensors": weights(t, []string{"a"}, random(200, 1)),
	}
	for name, data := range files {
		r.write(name, data)
	}
	r.sync()
	for name, state := range map[string]string{
		"empty": resident, "one": resident, "metrics.json": resident, "just": resident,
		"limit": both, "flat.pt": both, "less.safetensors": both,
		"tiny.safetensors": resident, // shorter than the header of a hollow file
	} {
		r.want(name, state)
	}
	r.evictAll()
	for name, data := range files {
		r.same(name, data)
	}
	r = r.reopen()
	r.sync()
	for name, data := range files {
		r.same(name, data)
	}
}

// A file with holes stays as it is, and keeps them.
func TestSparse(t *testing.T) {
	r := newRig(t)
	want := make([]byte, 20<<20)
	copy(want[1<<20:], random(1000, 1))
	copy(want[19<<20:], random(1000, 2))
	h := r.open("f", unix.O_RDWR|unix.O_CREAT)
	r.writeAt(h, want[19<<20:19<<20+1000], 19<<20)
	r.writeAt(h, want[1<<20:1<<20+1000], 1<<20)
	size := int64(len(want))
	if _, err := r.Setattr(h.Node, &tree.SetAttr{Size: &size}); err != nil {
		t.Fatal(err)
	}
	holes := func(h *Handle) {
		t.Helper()
		if off, err := h.Seek(2<<20, unix.SEEK_DATA); err != nil || off > 19<<20 || off < 18<<20 {
			t.Errorf("the next data is at %d, %v", off, err)
		}
		if off, err := h.Seek(0, unix.SEEK_HOLE); err != nil || off != 0 {
			t.Errorf("the first hole is at %d, %v", off, err)
		}
		if _, err := h.Seek(size, unix.SEEK_DATA); err != unix.ENXIO {
			t.Errorf("data past the end: %v", err)
		}
	}
	holes(h)
	r.release(h)
	r.sync()
	r.evictAll()
	r.want("f", resident)
	r.same("f", want)
	r = r.reopen()
	r.sync()
	h = r.open("f", unix.O_RDWR)
	holes(h)
	r.writeAt(h, want[:19<<20], 0) // no holes are left
	r.writeAt(h, want[19<<20:], 19<<20)
	r.release(h)
	r.packOut("f")
	r.same("f", want)

	r.evictAll()
	h = r.open("f", unix.O_RDONLY)
	defer r.release(h)
	if off, err := h.Seek(5, unix.SEEK_DATA); err != nil || off != 5 {
		t.Errorf("data of a packed file: %d, %v", off, err)
	}
	if off, err := h.Seek(5, unix.SEEK_HOLE); err != nil || off != size {
		t.Errorf("hole of a packed file: %d, %v", off, err)
	}
}

func TestFallocate(t *testing.T) {
	r := newRig(t)
	want := random(1<<20, 1)
	h := r.open("f", unix.O_RDWR|unix.O_CREAT)
	defer func() { r.release(h) }()
	r.writeAt(h, want, 0)
	if err := h.Fallocate(0, 0, 2<<20); err != nil {
		t.Fatal(err)
	}
	want = append(want, make([]byte, 1<<20)...)
	r.same("f", want)
	if err := h.Fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, 8192); err != nil {
		t.Fatal(err)
	}
	clear(want[4096 : 4096+8192])
	r.same("f", want)
	ro := r.open("f", unix.O_RDONLY)
	defer r.release(ro)
	wantErr(t, "by a handle for reading", ro.Fallocate(0, 0, 1), unix.EBADF)
}

func TestCopyRange(t *testing.T) {
	r := newRig(t)
	data := random(5<<20, 1)
	r.write("from", data)
	r.packOut("from")
	src := r.open("from", unix.O_RDONLY)
	defer r.release(src)
	dst := r.open("to", unix.O_WRONLY|unix.O_CREAT)
	for off := int64(0); ; {
		n, err := src.CopyRange(off, dst, off, 1<<30, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		off += n
	}
	r.release(dst)
	r.same("to", data)
	r.packOut("to")
	r.same("to", data)
	ro := r.open("to", unix.O_RDONLY)
	defer r.release(ro)
	_, err := src.CopyRange(0, ro, 0, 1, 0)
	wantErr(t, "into a handle for reading", err, unix.EBADF)
}

func TestReadOnly(t *testing.T) {
	r := newRig(t)
	want := random(100<<10, 1)
	r.write("f", want)
	r.packOut("f")
	r = r.reopen(func(o *Options) { o.ReadOnly = true })
	r.same("f", want)
	_, err := r.openFile("f", unix.O_RDWR)
	wantErr(t, "open", err, unix.EROFS)
	_, err = r.openFile("g", unix.O_RDWR|unix.O_CREAT)
	wantErr(t, "create", err, unix.EROFS)
	_, _, err = r.Mkdir(r.names.Root(), "d", 0o755, r.me)
	wantErr(t, "mkdir", err, unix.EROFS)
	wantErr(t, "unlink", r.Unlink(r.names.Root(), "f"), unix.EROFS)
	wantErr(t, "rename", r.Rename(r.names.Root(), "f", r.names.Root(), "g", 0), unix.EROFS)
	n := r.find("f")
	defer r.forget(n)
	mode := uint32(0o600)
	_, err = r.Setattr(n, &tree.SetAttr{Mode: &mode})
	wantErr(t, "chmod", err, unix.EROFS)
	wantErr(t, "setxattr", r.SetXattr(n, "user.a", nil, 0), unix.EROFS)
	_, err = r.Link(n, r.names.Root(), "g")
	wantErr(t, "link", err, unix.EROFS)
	_, _, err = r.Symlink(r.names.Root(), "s", "f", r.me)
	wantErr(t, "symlink", err, unix.EROFS)
	r.same("f", want)
}

// withoutPacking stops the background packing: what is written from now on stays resident.
func (r *rig) withoutPacking() {
	r.queue.Stop()
	r.queue = newQueue(r.Volume, Options{MaxUnpacked: -1})
}

// What was not packed when the store was closed is packed by the next sync, however soon it comes.
func TestSyncAfterOpen(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		r.withoutPacking()
		p := fmt.Sprint("f", i)
		r.write(p, random(64<<10, uint64(i)))
		r.close()
		r = openRig(t, r.dir)
		r.sync()
		if s := r.state(p); s != both {
			t.Fatalf("%s is %s", p, s)
		}
	}
}
