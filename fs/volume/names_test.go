package volume

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Open files and known children keep working when a directory above them moves or is replaced.
func TestRenameDirectory(t *testing.T) {
	r := newRig(t)
	want := random(100<<10, 1)
	r.mkdir("a/b/c")
	r.mkdir("z")
	r.mkdir("full/x")
	r.write("a/b/c/f", want)
	h := r.open("a/b/c/f", unix.O_RDWR)
	c := r.find("a/b/c")
	z := r.find("z")

	r.rename("a/b", "z") // over an empty directory that is known
	r.same("z/c/f", want)
	if got := h.Node.Path(); got != "z/c/f" {
		t.Errorf("the open file is %s", got)
	}
	r.writeAt(h, []byte("new"), 0)
	copy(want, "new")
	r.release(h)
	if _, _, err := r.Lookup(c, "f"); err != nil {
		t.Error(err)
	} else {
		r.forget(h.Node)
	}
	if _, _, err := r.Lookup(z, "c"); err != unix.ENOENT {
		t.Errorf("a lookup in a removed directory: %v", err)
	}
	if a, err := r.Stat(z); err != nil || a.Nlink != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	_, _, _, err := r.Create(z, "f", 0o644, unix.O_RDWR, r.me)
	wantErr(t, "create in a removed directory", err, unix.ENOENT)

	wantErr(t, "over a directory that is not empty", r.tryRename("a", "full", 0), unix.ENOTEMPTY)
	wantErr(t, "into itself", r.tryRename("z", "z/c/z", 0), unix.EINVAL)
	r.write("file", nil)
	wantErr(t, "a directory over a file", r.tryRename("a", "file", 0), unix.ENOTDIR)
	wantErr(t, "a file over a directory", r.tryRename("file", "a", 0), unix.EISDIR)
	r.same("z/c/f", want)
	r.packOut("z/c/f")
	r.same("z/c/f", want)
	r.unlink("file")
	r.forget(c)
	r.forget(z)
	r.onlyRoot()
}

func TestSpecialFiles(t *testing.T) {
	r := newRig(t)
	n, a, err := r.Symlink(r.names.Root(), "s", "no/where", r.me)
	if err != nil || a.Mode&unix.S_IFMT != unix.S_IFLNK || a.Size != 8 {
		t.Fatalf("%+v, %v", a, err)
	}
	if got, err := r.Readlink(n); err != nil || got != "no/where" {
		t.Errorf("%q, %v", got, err)
	}
	r.rename("s", "s2")
	if got, err := r.Readlink(n); err != nil || got != "no/where" {
		t.Errorf("%q, %v", got, err)
	}
	r.unlink("s2")
	if got, err := r.Readlink(n); err != nil || got != "no/where" {
		t.Errorf("of an unlinked one: %q, %v", got, err)
	}
	r.forget(n)

	n, a, err = r.Mknod(r.names.Root(), "fifo", unix.S_IFIFO|0o640, 0, r.me)
	if err != nil || a.Mode != unix.S_IFIFO|0o640 {
		t.Fatalf("%+v, %v", a, err)
	}
	mode := uint32(0o600)
	if a, err := r.Setattr(n, &tree.SetAttr{Mode: &mode}); err != nil || a.Mode != unix.S_IFIFO|0o600 {
		t.Errorf("%+v, %v", a, err)
	}
	r.forget(n)

	n, a, err = r.Mknod(r.names.Root(), "plain", 0o640, 0, r.me)
	if err != nil || a.Mode != unix.S_IFREG|0o640 || a.Size != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	r.forget(n)
	r.write("plain", []byte("x"))
	r.same("plain", []byte("x"))
	_, _, err = r.Mknod(r.names.Root(), "plain", 0o640, 0, r.me)
	wantErr(t, "mknod of a taken name", err, unix.EEXIST)

	names := r.listing("")
	slices.Sort(names)
	if fmt.Sprint(names) != "[fifo plain]" {
		t.Errorf("names: %v", names)
	}
	r = r.reopen()
	if a := r.stat("fifo"); a.Mode != unix.S_IFIFO|0o600 {
		t.Errorf("%+v", a)
	}
	if _, err := r.openFile("fifo", unix.O_RDONLY); err == nil {
		t.Error("a fifo was opened here")
	}
}

// Reading a directory in pieces; the view of a checkpoint comes before the checkpoint.
func TestEntries(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	for i := range 300 {
		r.write(fmt.Sprintf("runs/a/f%03d", i), nil)
	}
	r.write("runs/a/m.pt", fixture(t, "flat.pt"))
	n := r.find("runs/a")
	defer r.forget(n)
	d, err := r.OpenDir(n)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	seen := map[string]int{}
	var pos uint64
	for {
		e, err := r.Entries(d, pos)
		if err != nil {
			t.Fatal(err)
		}
		if len(e) == 0 {
			break
		}
		for _, e := range e[:min(7, len(e))] {
			seen[e.Name] = len(seen) + 1
			pos = e.Pos
		}
	}
	if len(seen) != 304 || seen["m.safetensors"] >= seen["m.pt"] {
		t.Errorf("%d names, m.safetensors at %d, m.pt at %d", len(seen), seen["m.safetensors"], seen["m.pt"])
	}
	r.write("runs/a/new", nil)
	if e, _ := r.Entries(d, 0); len(e) != 305 {
		t.Errorf("%d entries after a rewind", len(e))
	}
	if err := d.Fsync(); err != nil {
		t.Error(err)
	}
}
