package volume

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"ckptfs/fs/tree"
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

// A view becomes a file only by those who may make a name in its folder, and, where that is sticky, replace
// one of the source's owner.
func TestViewWrittenByOthers(t *testing.T) {
	const owner, folders, group = 1000, 1001, 70
	for _, c := range []struct {
		what string
		who  tree.Caller
		mode uint32 // of the folder
		want error
	}{
		{"a stranger", tree.Caller{UID: 2000, GID: 2000}, 0o755, unix.EACCES},
		{"a stranger who may not enter", tree.Caller{UID: 2000, GID: 2000}, 0o776, unix.EACCES},
		{"the group", tree.Caller{UID: 2000, GID: group}, 0o775, unix.ESTALE},
		{"all", tree.Caller{UID: 2000, GID: 2000}, 0o777, unix.ESTALE},
		{"a stranger, sticky", tree.Caller{UID: 2000, GID: 2000}, 0o1777, unix.EACCES},
		{"the source's owner, sticky", tree.Caller{UID: owner, GID: 2000}, 0o1777, unix.ESTALE},
		{"the source's owner", tree.Caller{UID: owner, GID: 2000}, 0o755, unix.EACCES},
		{"the folder's owner, sticky", tree.Caller{UID: folders, GID: 2000}, 0o1755, unix.ESTALE},
		{"root", tree.Caller{}, 0o500, unix.ESTALE},
	} {
		for _, by := range []string{"open", "truncate"} {
			t.Run(c.what+" "+by, func(t *testing.T) {
				if os.Geteuid() != 0 {
					t.Skip("needs root, to give files away")
				}
				r := newRig(t)
				r.mkdir("runs/a")
				r.write("runs/a/m.npy", npyOf(1))
				own := func(p string, uid, mode uint32) {
					gid := uint32(group)
					r.setattr(p, &tree.SetAttr{UID: &uid, GID: &gid})
					r.setattr(p, &tree.SetAttr{Mode: &mode})
				}
				own("runs/a/m.npy", owner, 0o666)
				own("runs/a", folders, c.mode)
				n := r.find("runs/a/m.safetensors")
				defer r.forget(n)
				var err error
				if size := int64(0); by == "open" {
					_, err = r.OpenBy(t.Context(), c.who, n, unix.O_WRONLY)
				} else {
					_, err = r.Setattr(n, &tree.SetAttr{Size: &size, By: &c.who})
				}
				wantErr(t, by, err, c.want)
				if _, err := os.Lstat(r.at("tree/runs/a/m.safetensors")); (err == nil) != (c.want == unix.ESTALE) {
					t.Errorf("a file is there: %v", err == nil)
				}
			})
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
	h.Node.Synth().Open(t.Context(), r.me, unix.O_WRONLY)
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
