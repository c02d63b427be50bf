package content

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// readBeside makes the file f, packed by an earlier process, and opens it for a reader that the kernel
// serves.
func (r *rig) readBeside(data []byte) *Handle {
	r.t.Helper()
	r.writtenAs("unknown", data)
	h := r.open("f", unix.O_RDONLY)
	if h.Mode != Passthrough {
		r.t.Fatal(h.Mode)
	}
	return h
}

// A file whose local copy an earlier process left is written to while the kernel reads the copy for others:
// the disk has it.
func TestWrittenBesideReader(t *testing.T) {
	for _, size := range []int{200 << 10, 3<<20 + 4097, 100_001} {
		old := random(size, 1)
		for name, do := range map[string]struct {
			do   func(r *rig) error
			want []byte
		}{
			"written": {func(r *rig) error {
				h, err := r.file("f").Open(unix.O_RDWR, 0)
				if err == nil {
					_, err = r.kernel.file(h).WriteAt([]byte("new"), 100)
					h.Release()
				}
				return err
			}, slices.Concat(old[:100], []byte("new"), old[103:])},
			"resized": {resize, old[:min(size, 100<<10)]},
			"truncated": {func(r *rig) error {
				r.open("f", unix.O_WRONLY|unix.O_TRUNC).Release()
				return nil
			}, nil},
		} {
			if name == "resized" && size < 100<<10 {
				continue
			}
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				r := passthroughRig(t)
				h := r.readBeside(old)
				if err := do.do(r); err != nil {
					t.Fatal(err)
				}
				r.want("f", "plain")
				r.same("f", do.want)
				h.Release()
				r.same("f", do.want)
			})
		}
	}
}

// A copy that the disk did not take never becomes the file, no matter who was told of it and when, and
// whichever sync fails.
func TestLostBesideReader(t *testing.T) {
	old := random(200<<10, 1)
	for _, c := range []struct{ told, sync bool }{{told: true}, {told: false}, {sync: true}} {
		for k := 0; ; k++ {
			lost := false
			t.Run(fmt.Sprintf("%+v, %d", c, k), func(t *testing.T) {
				r := passthroughRig(t)
				h := r.readBeside(old)
				steps, last := 0, ""
				lose := func(what string) error {
					if steps++; steps == k+1 && !c.sync {
						lost, last = true, what
						r.disk.lose(r.known["f"].at(), c.told)
					}
					return nil
				}
				if c.sync {
					r.disk.arm(k + 1)
				}
				lose("before")
				r.Step = lose
				w, err := r.file("f").Open(unix.O_RDWR, 0)
				r.Step = func(string) error { return nil }
				lost = lost || c.sync && r.disk.syncs >= r.disk.failAt
				switch {
				case last == "unpack: sync record" || last == "unpack: record": // they are durable by then
					if err == nil {
						w.Release()
					}
					h.Release()
					return
				case err == nil:
					if w.Release(); lost {
						t.Fatalf("opened for writing, lost at %q", last)
					}
					h.Release()
					r.same("f", old)
					return
				case err != unix.EIO && !errors.Is(err, unix.EBUSY):
					t.Fatal(err)
				}
				r.want("f", "packed")
				r.same("f", old)
				if _, err := r.file("f").Open(unix.O_RDWR, 0); !errors.Is(err, unix.EBUSY) {
					t.Errorf("opened again for writing: %v", err)
				}
				h.Release()
				r.open("f", unix.O_RDWR).Release()
				r.want("f", "plain")
				r.same("f", old)
			})
			if !lost || t.Failed() {
				if k == 0 {
					t.Error("nothing was lost")
				}
				break
			}
		}
	}
}

// A copy that cannot be read past the page cache stays as it is, and is not made the file.
func TestNotVerified(t *testing.T) {
	old := random(200<<10, 1)
	r := passthroughRig(t)
	h := r.readBeside(old)
	r.Past = func(Inode) (*os.File, error) { return nil, unix.EINVAL }
	if _, err := r.file("f").Open(unix.O_RDWR, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("opened for writing: %v", err)
	}
	r.want("f", "resident")
	h.Release()
	r.open("f", unix.O_RDWR).Release()
	r.want("f", "plain")
	r.same("f", old)
}

// What is told of a copy while it is read from the disk is not forgotten.
func TestToldWhileVerified(t *testing.T) {
	old := random(200<<10, 1)
	r := passthroughRig(t)
	h := r.readBeside(old)
	f := r.file("f")
	f.Lock()
	f.local.after = r.syncs.begun.Load() + 1
	f.Unlock()
	r.Step = func(what string) error {
		if !strings.HasPrefix(what, "verify") {
			return nil
		}
		r.Suspect(f, errNotWritten)
		r.syncAll(nil)
		return unix.EMFILE
	}
	if _, err := f.Open(unix.O_RDWR, 0); err == nil {
		t.Fatal("opened for writing")
	}
	f.Lock()
	if !f.rec.Hollow && f.local.durable(r.Files) {
		t.Error("the copy is held for durable")
	}
	f.Unlock()
	h.Release()
}

// Where the disk has nothing of a page it cannot be told from one of zeros, and what is written over it may
// be lost.
func TestZerosBesideReader(t *testing.T) {
	old := make([]byte, 200<<10)
	copy(old, "a file of zeros, most of it")
	r := passthroughRig(t)
	h := r.readBeside(old)
	raw, err := os.OpenFile(r.known["f"].at(), os.O_RDWR, 0)
	if err == nil {
		err = unix.Fallocate(int(raw.Fd()), unix.FALLOC_FL_ZERO_RANGE, 64<<10, 4096)
	}
	if err = errors.Join(err, raw.Close()); err != nil {
		t.Skip(err)
	}
	if _, err := r.file("f").Open(unix.O_RDWR, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("opened for writing: %v", err)
	}
	h.Release()
	r.open("f", unix.O_RDWR).Release()
	r.same("f", old)
}
