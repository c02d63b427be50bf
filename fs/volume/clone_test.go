package volume

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// copyTo copies all of a file into an open one, at once or in parts of so many bytes.
func (r *rig) copyTo(from string, dst *Handle, part int64) {
	r.t.Helper()
	src := r.open(from, unix.O_RDONLY)
	defer r.release(src)
	for off := int64(0); ; {
		n, err := src.CopyRange(off, dst, off, part, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		if n == 0 {
			return
		}
		off += n
	}
}

func (r *rig) stored() int64 {
	r.t.Helper()
	return r.store.Stats().Bytes
}

func TestCloneOfAPackedFile(t *testing.T) {
	for _, from := range []string{both, packed} {
		t.Run(from, func(t *testing.T) {
			r := newRig(t)
			data := random(3<<20+5, 1)
			r.write("from", data)
			r.pack("from")
			if from == packed {
				r.evictAll()
			}
			before := r.stored()
			dst := r.open("to", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
			r.copyTo("from", dst, 1<<40)
			r.want("to", packed) // before it is closed
			if got, err := r.readHandle(dst); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("through the target's handle: %v", err)
			}
			if now := r.stored(); now != before {
				t.Errorf("a copy took %d bytes of segments", now-before)
			}
			if err := dst.Fsync(); err != nil {
				t.Error(err)
			}
			r.release(dst)
			r.same("to", data)
			if a, b := r.recordOf("from"), r.recordOf("to"); a.Manifest != b.Manifest {
				t.Error("another manifest")
			}
			r.patch("to", []byte("new"), 7)
			r.same("from", data)
			r.unlink("from")
			r.pack("to")
			r.evictAll()
			r.same("to", append(append(bytes.Clone(data[:7]), "new"...), data[10:]...))
		})
	}
}

// A copy by manifest is a record that no program has synced: the next sync makes it durable, as it does that
// of a file it packs.
func TestCloneIsSynced(t *testing.T) {
	r := newRig(t)
	data := random(300<<10, 1)
	r.write("from", data)
	r.pack("from")
	owed := func() bool { return r.queue.Status().Unsynced }
	if owed() {
		t.Fatal("a sync left a record that is not known to be durable")
	}
	dst := r.open("to", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	r.copyTo("from", dst, 1<<40)
	r.release(dst)
	r.want("to", packed)
	if !owed() {
		t.Error("the next sync would not make the copy durable")
	}
	r.sync()
	if owed() {
		t.Error("it is still owed after the sync")
	}
	r.same("to", data)
}

// What is done to the target while its writer has it open finds the bytes there.
func TestCloneIsWrittenOn(t *testing.T) {
	data := random(1<<20+5, 1)
	for name, c := range map[string]struct {
		do   func(r *rig, h *Handle) error
		want func(p []byte) []byte
	}{
		"write": {func(r *rig, h *Handle) error { _, err := h.Write([]byte("new"), 100); return err },
			func(p []byte) []byte { copy(p[100:], "new"); return p }},
		"append": {func(r *rig, h *Handle) error {
			_, err := h.Write([]byte("new"), int64(len(data)))
			return err
		}, func(p []byte) []byte { return append(p, "new"...) }},
		"truncate": {func(r *rig, h *Handle) error {
			n := int64(1000)
			_, err := r.Setattr(h.Node, &tree.SetAttr{Size: &n})
			return err
		}, func(p []byte) []byte { return p[:1000] }},
		"grow": {func(r *rig, h *Handle) error {
			n := int64(len(data) + 9)
			_, err := r.Setattr(h.Node, &tree.SetAttr{Size: &n})
			return err
		}, func(p []byte) []byte { return append(p, make([]byte, 9)...) }},
		"empty": {func(r *rig, h *Handle) error {
			n := int64(0)
			_, err := r.Setattr(h.Node, &tree.SetAttr{Size: &n})
			return err
		}, func(p []byte) []byte { return nil }},
		"fallocate": {func(r *rig, h *Handle) error { return h.Fallocate(unix.FALLOC_FL_ZERO_RANGE, 10, 10) },
			func(p []byte) []byte { clear(p[10:20]); return p }},
		"small copy": {func(r *rig, h *Handle) error {
			src := r.open("from", unix.O_RDONLY)
			defer r.release(src)
			_, err := src.CopyRange(50, h, 5, 10, 0)
			return err
		}, func(p []byte) []byte { copy(p[5:15], data[50:60]); return p }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("from", data)
			r.packOut("from")
			h := r.open("to", unix.O_RDWR|unix.O_CREAT)
			r.copyTo("from", h, 1<<40)
			r.want("to", packed)
			other := r.open("to", unix.O_RDONLY) // it reads on through the manifest
			if err := c.do(r, h); err != nil {
				t.Fatal(err)
			}
			want := c.want(bytes.Clone(data))
			for what, h := range map[string]*Handle{"the writer": h, "a reader": other} {
				if got, err := r.readHandle(h); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s reads %d bytes, want %d: %v", what, len(got), len(want), err)
				}
			}
			if _, err := h.Write([]byte("!"), 0); err != nil && len(want) > 0 {
				t.Fatal(err)
			} else if len(want) > 0 {
				want[0] = '!'
			} else {
				want = []byte("!")
			}
			r.release(h)
			r.release(other)
			r.same("to", want)
			r.same("from", data)
			r.sync()
			r.evictAll()
			r.same("to", want)
		})
	}
}

// Cut off at any of its changes on the disk, a copy leaves the source as it is, and the target empty or
// whole.
func TestCloneCutOff(t *testing.T) {
	data := random(1<<20, 1)
	for k := 0; ; k++ {
		steps := 0
		r := newRig(t)
		r.write("from", data)
		r.packOut("from")
		h := r.open("to", unix.O_WRONLY|unix.O_CREAT)
		src := r.open("from", unix.O_RDONLY)
		r.content.Step = func(string) error {
			if steps++; steps > k {
				return errStop
			}
			return nil
		}
		_, err := src.CopyRange(0, h, 0, int64(len(data)), 0)
		r.content.Step = func(string) error { return nil }
		if err != nil && !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		c := r.crashed()
		<-c.surveyed
		if got := c.read("to"); len(got) > 0 && !bytes.Equal(got, data) {
			t.Errorf("step %d: %d bytes that are not the source's", k, len(got))
		} else if a := c.stat("to"); a.Size != int64(len(got)) {
			t.Errorf("step %d: size %d of %d bytes", k, a.Size, len(got))
		}
		c.same("from", data)
		r.release(src)
		r.release(h)
		if steps <= k {
			break
		}
	}
}

// A reader of a copy that is gone on with and fails meets no end of the file before its time.
func TestCloneThatFailsIsRead(t *testing.T) {
	r := newRig(t)
	a := random(1<<20, 1)
	r.write("a", a)
	r.packOut("a")
	dst := r.open("to", unix.O_RDWR|unix.O_CREAT)
	defer r.release(dst)
	r.copyTo("a", dst, 1<<40)
	r.content.Step = func(what string) error {
		if what == "clone: size" {
			return errStop
		}
		return nil
	}
	src := r.open("a", unix.O_RDONLY)
	defer r.release(src)
	if _, err := src.CopyRange(0, dst, int64(len(a)), int64(len(a)), 0); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	got := make([]byte, len(a))
	if n, err := dst.Read(got, 0); n != len(a) || err != nil || !bytes.Equal(got, a) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A part of a packed file that is copied by its manifest may begin like a hollow file of this store: it is no
// lost record, whatever happens to it.
func TestCloneOfAHeader(t *testing.T) {
	r := newRig(t)
	r.write("some", random(100<<10, 1))
	r.packOut("some")
	const at = 256 << 10
	data := random(at+16<<20+1000, 2) // a part of that length is shared
	copy(data[at:], headerOf(r, "some"))
	r.write("from", data)
	r.pack("from")
	want := data[at:]
	src, dst := r.open("from", unix.O_RDONLY), r.open("to", unix.O_RDWR|unix.O_CREAT)
	if k, err := src.CopyRange(at, dst, 0, int64(len(want)), 0); err != nil || k != int64(len(want)) {
		t.Fatalf("%d, %v", k, err)
	}
	r.release(src)
	r.release(dst)
	r.want("to", packed)
	r.same("to", want)
	h := r.open("to", unix.O_RDWR)
	c := r.crashed()
	c.same("to", want)
	c.sync()
	c.same("to", want)
	c.reopen().same("to", want)
	r.writeAt(h, []byte("x"), int64(len(want)))
	r.release(h)
	r.sync()
	want = append(want[:len(want):len(want)], 'x')
	r.same("to", want)
	r.crashed().same("to", want)
	r.patch("to", []byte("no header"), 0)
	copy(want, "no header")
	r.pack("to")
	r.evictAll()
	r.same("to", want)
	r.sound()
}
