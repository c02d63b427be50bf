package volume

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"ckptfs/fs/virtual"

	"golang.org/x/sys/unix"
)

// A view that is opened for writing becomes a real file, with the view's bytes unless it is truncated.
func TestViewWritten(t *testing.T) {
	for _, name := range []string{"m.pt", "m.v2.pth", "m.pth.pt", "m.bin.pt", "m.ckpt", "m.bin"} {
		for _, flags := range []uint32{unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC} {
			for _, state := range []string{resident, packed} {
				t.Run(fmt.Sprintf("%s %#x %s", name, flags, state), func(t *testing.T) {
					r := newRig(t)
					src := fixture(t, "views.pt")
					want := viewBytes(t, src)
					r.mkdir("runs/a")
					r.write("runs/a/"+name, src)
					if state == packed {
						r.packOut("runs/a/" + name)
					}
					p := "runs/a/" + r.listing("runs/a")[0]
					_, err := r.openFile(p, flags)
					wantErr(t, "the first open", err, unix.ESTALE)
					h := r.open(p, flags)
					if h.Node.IsView() {
						t.Error("still a view")
					}
					r.writeAt(h, []byte("new"), 0)
					r.release(h)
					if flags&unix.O_TRUNC != 0 {
						want = nil
					}
					r.same(p, append([]byte("new"), want[min(3, len(want)):]...))
					r.same("runs/a/"+name, src)
					if got := r.listing("runs/a"); len(got) != 2 {
						t.Errorf("names: %v", got)
					}
					r.onlyRoot()
				})
			}
		}
	}
}

// The source of a view has a second name in another directory, where the view is opened for writing.
func TestViewOfHardLinkWritten(t *testing.T) {
	r := newRig(t)
	src := fixture(t, "flat.pt")
	r.mkdir("runs/a")
	r.mkdir("runs/b")
	r.write("runs/a/m.pt", src)
	r.link("runs/a/m.pt", "runs/b/n.pt")
	r.same("runs/a/m.safetensors", viewBytes(t, src))
	h := r.open("runs/b/n.safetensors", unix.O_RDWR)
	r.writeAt(h, []byte("new"), 0)
	r.release(h)
	r.same("runs/a/m.safetensors", viewBytes(t, src))
	if got := r.read("runs/b/n.safetensors"); string(got[:3]) != "new" {
		t.Errorf("%q", got[:3])
	}
}

// What was read of a view while its source got a writer is not given out.
func TestViewReadBesideAWriter(t *testing.T) {
	r := newRig(t)
	src := fixture(t, "flat.pt")
	r.mkdir("runs/a")
	r.write("runs/a/m.pt", src)
	h := r.open("runs/a/m.safetensors", unix.O_RDONLY)
	defer r.release(h)
	w := virtual.ViewOf(h.Node)
	p := make([]byte, 16)
	if _, err := w.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	r.patch("runs/a/m.pt", []byte("new"), 7)
	if _, err := w.ReadAt(p, 0); !errors.Is(err, unix.ESTALE) {
		t.Errorf("%v", err)
	}
	h.Node.Synth().Open(t.Context(), unix.O_WRONLY)
	if _, err := os.Lstat(r.at("tree/runs/a/m.safetensors")); err == nil {
		t.Error("a file was made of it")
	}
}

// A view that becomes a file is whole before it has its name, and stays the view when it does not get that
// far.
func TestViewWrittenCutOff(t *testing.T) {
	r := newRig(t)
	src := fixture(t, "flat.pt")
	r.mkdir("runs/a")
	r.write("runs/a/m.pt", src)
	met := false
	r.content.Step = func(what string) error {
		if what != "view: name" {
			return nil
		}
		met = true
		if _, err := os.Lstat(r.at("tree/runs/a/m.safetensors")); err == nil {
			t.Error("named already")
		}
		return errStop
	}
	if _, err := r.openFile("runs/a/m.safetensors", unix.O_RDWR); !errors.Is(err, errStop) || !met {
		t.Errorf("%v, %v", err, met)
	}
	r.same("runs/a/m.safetensors", viewBytes(t, src))
	r.onlyRoot()
}
