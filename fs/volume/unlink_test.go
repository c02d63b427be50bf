package volume

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Who has a file open keeps it when its name goes, in whatever state it was, and may go on writing.
func TestUnlinkOpen(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			want := random(300<<10, 1)
			r.write("f", want)
			done := r.bring("f", state)
			h := r.open("f", unix.O_RDONLY)
			r.unlink("f")
			done()
			if r.exists("f") {
				t.Error("the name is still there")
			}
			got, err := r.readHandle(h)
			if err != nil {
				t.Fatal(err)
			}
			r.equal("the open file", got, want)
			if a, err := r.Stat(h.Node); err != nil || a.Nlink != 0 || a.Size != int64(len(want)) {
				t.Errorf("%+v, %v", a, err)
			}
			if err := h.Fsync(); err != nil {
				t.Error(err)
			}
			r.release(h)
			r.onlyRoot()
			r.noDeletedFiles()
		})
	}
}

// noDeletedFiles fails if the process goes on holding the space of files without a name.
func (r *rig) noDeletedFiles() {
	r.t.Helper()
	var held []string
	none := func() bool {
		held = nil
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range fds {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			if strings.HasPrefix(to, r.dir+"/") && strings.HasSuffix(to, " (deleted)") {
				held = append(held, to)
			}
		}
		return len(held) == 0
	}
	for end := time.Now().Add(patience / 10); !none(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Errorf("descriptors of %q", held)
			return
		}
	}
}

func TestUnlinkWriting(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			want := random(300<<10, 1)
			r.write("f", want)
			r.bring("f", state)()
			h := r.open("f", unix.O_RDWR)
			r.unlink("f")
			more := random(100<<10, 2)
			r.writeAt(h, more, 250<<10)
			want = append(want[:250<<10], more...)
			got, err := r.readHandle(h)
			if err != nil {
				t.Fatal(err)
			}
			r.equal("the open file", got, want)
			size := int64(1000)
			if _, err := r.Setattr(h.Node, &tree.SetAttr{Size: &size}); err != nil {
				t.Error(err)
			}
			if a, err := r.Stat(h.Node); err != nil || a.Size != size {
				t.Errorf("%+v, %v", a, err)
			}
			r.release(h)
			r.sync()
			r.onlyRoot()
			r.noDeletedFiles()
		})
	}
}

// An unlinked file that is open for reading may be opened again through /proc, for writing too.
func TestUnlinkedOpenedForWriting(t *testing.T) {
	for _, flags := range []uint32{unix.O_RDWR, unix.O_RDWR | unix.O_TRUNC} {
		for _, state := range []string{resident, both, packed} {
			t.Run(fmt.Sprintf("%s %#x", state, flags), func(t *testing.T) {
				r := newRig(t)
				want := random(300<<10, 1)
				r.write("f", want)
				forget := r.known("f") // since before it is packed: the copy is known to be durable
				r.bring("f", state)()
				h := r.open("f", unix.O_RDONLY)
				r.unlink("f")
				w, err := r.Open(h.Node, flags)
				forget()
				if err != nil {
					t.Fatal(err)
				}
				if flags&unix.O_TRUNC != 0 {
					want = nil
				}
				r.writeAt(w, []byte("new"), 0)
				want = append([]byte("new"), want[min(3, len(want)):]...)
				for _, h := range []*Handle{h, w} {
					got, err := r.readHandle(h)
					if err != nil {
						t.Fatal(err)
					}
					r.equal("the open file", got, want)
				}
				r.release(w)
				r.release(h)
				r.onlyRoot()
				r.noDeletedFiles()
			})
		}
	}
}

// open(2) is a lookup and then an open. If the name is replaced or goes between the two, the program gets the
// old file or an error that makes the kernel look the name up again, and never an empty file.
func TestReplacedBetweenLookupAndOpen(t *testing.T) {
	for _, how := range []string{"rename", "unlink"} {
		for _, state := range []string{"small", "queued", both, packed} {
			t.Run(how+" "+state, func(t *testing.T) {
				r := newRig(t)
				want := random(300<<10, 1)
				switch state {
				case "small":
					want = []byte(`{"val_loss": 0.31}`)
					r.write("f", want)
					r.sync()
				case "queued":
					r.withoutPacking()
					r.write("f", want)
				default:
					r.write("f", want)
					r.bring("f", state)
				}
				n := r.find("f")
				if how == "rename" {
					r.write("g", random(1000, 2))
					r.rename("g", "f")
				} else {
					r.unlink("f")
				}
				h, err := r.Open(n, unix.O_RDONLY)
				if err == unix.ESTALE || err == unix.ENOENT && how == "unlink" {
					r.forget(n)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.readHandle(h)
				if err != nil {
					t.Fatal(err)
				}
				r.equal("the replaced file", got, want)
				r.release(h)
				r.forget(n)
			})
		}
	}
}

func TestRenameOverOpen(t *testing.T) {
	r := newRig(t)
	old, new := random(300<<10, 1), random(200<<10, 2)
	r.write("f", old)
	r.packOut("f")
	h := r.open("f", unix.O_RDONLY)
	r.write("f.tmp", new)
	r.rename("f.tmp", "f")
	got, err := r.readHandle(h)
	if err != nil {
		t.Fatal(err)
	}
	r.equal("the open file", got, old)
	r.release(h)
	r.same("f", new)
	r.packOut("f")
	r.same("f", new)
	if n := r.listing(""); len(n) != 1 {
		t.Errorf("names: %v", n)
	}
}

// One of two names goes: the file stays, whether both names were looked up or not.
func TestUnlinkOneOfTwo(t *testing.T) {
	for _, known := range []bool{true, false} {
		for _, state := range []string{resident, both, packed} {
			t.Run(fmt.Sprintf("%v %s", known, state), func(t *testing.T) {
				r := newRig(t)
				want := random(300<<10, 1)
				r.write("a", want)
				r.mkdir("d")
				r.link("a", "d/b")
				var done func()
				if known {
					done = r.bring("a", state)
					if r.stat("a").Ino != r.stat("d/b").Ino || r.stat("a").Nlink != 2 {
						t.Errorf("%+v, %+v", r.stat("a"), r.stat("d/b"))
					}
				} else {
					r.packOut("a")
					r = r.reopen()
					done = r.bringPacked("a", state)
				}
				h := r.open("a", unix.O_RDONLY)
				r.unlink("a")
				got, err := r.readHandle(h)
				if err != nil {
					t.Fatal(err)
				}
				r.equal("the open file", got, want)
				if a, err := r.Stat(h.Node); err != nil || a.Nlink != 1 {
					t.Errorf("%+v, %v", a, err)
				}
				r.awaitHydrator()
				r.same("d/b", want)
				done()
				r.release(h)
				r.sync()
				if s := r.state("d/b"); s != both && s != packed {
					t.Errorf("the file is %s after a sync", s)
				}
				r.evictAll()
				r.want("d/b", packed)
				r.same("d/b", want)
				r.awaitHydrator()
				r.unlink("d/b")
				r.onlyRoot()
			})
		}
	}
}

// bringPacked brings a packed file into a state without another name of it becoming known.
func (r *rig) bringPacked(p, state string) (done func()) {
	r.t.Helper()
	done = func() {}
	switch state {
	case resident:
		h := r.open(p, unix.O_WRONLY)
		done = func() { r.release(h) }
	case both:
		n := r.find(p)
		defer r.forget(n)
		if _, err := n.File().Hydrate(); err != nil {
			r.t.Fatal(err)
		}
	}
	r.want(p, state)
	return done
}

// A file loses the one name that was looked up while it is written, and lives on by the other.
func TestWriterLosesKnownName(t *testing.T) {
	r := newRig(t)
	r.write("a", random(300<<10, 1))
	r.link("a", "b")
	r.packOut("a")
	r = r.reopen()
	h := r.open("a", unix.O_RDWR)
	r.unlink("a")
	want := random(400<<10, 2)
	r.writeAt(h, want, 0)
	r.release(h)
	r.sync()
	r.same("b", want)
	if s := r.state("b"); s != both {
		t.Errorf("the file is %s after a sync", s)
	}
}

// A hydration that ends after the known name went must not take the bytes from the other name.
func TestHydratedAfterKnownNameWent(t *testing.T) {
	r := newRig(t)
	want := random(300<<10, 1)
	r.write("a", want)
	r.link("a", "b")
	r.packOut("a")
	r = r.reopen()
	h := r.open("a", unix.O_RDONLY)
	r.unlink("a")
	if _, err := h.Node.File().Hydrate(); err != nil {
		t.Fatal(err)
	}
	r.release(h)
	r.same("b", want)
	r.patch("b", []byte("new"), 0)
	copy(want, "new")
	r.same("b", want)
	r.sync()
	r.reopen().same("b", want)
}

func TestTmpfile(t *testing.T) {
	for _, linked := range []bool{true, false} {
		r := newRig(t)
		r.mkdir("d")
		dir := r.find("d")
		n, a, h, err := r.Tmpfile(dir, 0o640, unix.O_RDWR, r.me)
		if err != nil {
			t.Fatal(err)
		}
		if a.Nlink != 0 || a.Mode != unix.S_IFREG|0o640 {
			t.Errorf("%+v", a)
		}
		want := random(300<<10, 1)
		r.writeAt(h, want[:200<<10], 0)
		if names := r.listing("d"); len(names) != 0 {
			t.Errorf("names: %v", names)
		}
		if linked {
			if _, err := r.Link(n, dir, "f"); err != nil {
				t.Fatal(err)
			}
			r.forget(n)
			if a := r.stat("d/f"); a.Nlink != 1 || a.Ino != n.Ino() {
				t.Errorf("%+v", a)
			}
		}
		r.writeAt(h, want[200<<10:], 200<<10)
		got, err := r.readHandle(h)
		if err != nil {
			t.Fatal(err)
		}
		r.equal("the open file", got, want)
		r.release(h)
		r.forget(n)
		r.forget(dir)
		if linked {
			r.same("d/f", want)
			r.packOut("d/f")
			r.same("d/f", want)
			r.reopen().same("d/f", want)
			continue
		}
		r.onlyRoot()
		r.noDeletedFiles()
	}
}
