package volume

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

func TestRenameFlags(t *testing.T) {
	r := newRig(t)
	a, b := random(100<<10, 1), random(200<<10, 2)
	r.mkdir("d")
	r.write("a", a)
	r.write("d/b", b)
	ha := r.open("a", unix.O_RDONLY)
	defer r.release(ha)

	wantErr(t, "NOREPLACE onto a name", r.tryRename("a", "d/b", unix.RENAME_NOREPLACE), unix.EEXIST)
	wantErr(t, "WHITEOUT and EXCHANGE", r.tryRename("a", "d/b", unix.RENAME_WHITEOUT|unix.RENAME_EXCHANGE), unix.EINVAL)
	wantErr(t, "unknown", r.tryRename("a", "c", 1<<10), unix.EINVAL)
	wantErr(t, "EXCHANGE with nothing", r.tryRename("a", "c", unix.RENAME_EXCHANGE), unix.ENOENT)
	wantErr(t, "of nothing", r.tryRename("c", "a", 0), unix.ENOENT)
	r.same("a", a)
	r.same("d/b", b)

	if err := r.tryRename("a", "d/b", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	r.same("a", b)
	r.same("d/b", a)
	if got := ha.Node.Path(); got != "d/b" {
		t.Errorf("the open file is %s", got)
	}
	if err := r.tryRename("a", "d/c", unix.RENAME_NOREPLACE); err != nil {
		t.Fatal(err)
	}
	r.same("d/c", b)
	// A file and a directory that is not empty change places.
	r.write("f", []byte("f"))
	if err := r.tryRename("f", "d", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	r.same("d", []byte("f"))
	r.same("f/b", a)
	r.sync()
	r.same("f/c", b)
}

// Two names of one file: rename(2) does nothing and leaves both.
func TestRenameOntoItself(t *testing.T) {
	r := newRig(t)
	r.write("a", []byte("x"))
	r.link("a", "b")
	r.rename("a", "b")
	r.same("a", []byte("x"))
	r.same("b", []byte("x"))
	r.rename("a", "a")
	r.same("a", []byte("x"))
}

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

func TestRemoveDirectory(t *testing.T) {
	r := newRig(t)
	r.mkdir("d/e")
	r.write("f", nil)
	d := r.find("d")
	wantErr(t, "not empty", r.Rmdir(r.names.Root(), "d"), unix.ENOTEMPTY)
	wantErr(t, "unlink of a directory", r.Unlink(r.names.Root(), "d"), unix.EISDIR)
	wantErr(t, "rmdir of a file", r.Rmdir(r.names.Root(), "f"), unix.ENOTDIR)
	wantErr(t, "nothing", r.Rmdir(r.names.Root(), "x"), unix.ENOENT)
	r.mkdir("d/e/g")
	r.same("f", nil)
	for _, p := range []string{"d/e/g", "d/e"} {
		dir, name := r.dirOf(p)
		if err := r.Rmdir(dir, name); err != nil {
			t.Errorf("rmdir %s: %v", p, err)
		}
		r.forget(dir)
	}
	h, err := r.OpenDir(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Rmdir(r.names.Root(), "d"); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Entries(h, 0); err == nil && len(e) > 2 {
		t.Errorf("entries of a removed directory: %v", e)
	}
	h.Release()
	r.forget(d)
	// The name is free again, for anything.
	r.write("d", []byte("x"))
	r.same("d", []byte("x"))
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

func TestCreate(t *testing.T) {
	r := newRig(t)
	n, a, h, err := r.Create(r.names.Root(), "f", unix.S_IFREG|0o4751, unix.O_RDWR, r.me)
	if err != nil {
		t.Fatal(err)
	}
	if a.Mode != unix.S_IFREG|0o4751 || a.Nlink != 1 || a.Ino != n.Ino() || a.UID != r.me.UID {
		t.Errorf("%+v", a)
	}
	r.release(h)
	r.forget(n)
	_, _, _, err = r.Create(r.names.Root(), "f", 0o644, unix.O_RDWR, r.me)
	wantErr(t, "a taken name", err, unix.EEXIST)
	long := strings.Repeat("n", 256)
	_, _, _, err = r.Create(r.names.Root(), long, 0o644, unix.O_RDWR, r.me)
	wantErr(t, "a name of 256 bytes", err, unix.ENAMETOOLONG)
	f := r.find("f")
	defer r.forget(f)
	_, _, err = r.Lookup(f, "x")
	wantErr(t, "a lookup in a file", err, unix.ENOTDIR)
	_, err = r.OpenDir(f)
	wantErr(t, "a file as a directory", err, unix.ENOTDIR)
}

// A directory with the set-group-id bit gives its group on, and directories the bit as well.
func TestSetGroupID(t *testing.T) {
	r := newRig(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	r.mkdir("d")
	n := r.find("d")
	gid, mode := uint32(4321), uint32(0o2775)
	if _, err := r.Setattr(n, &tree.SetAttr{GID: &gid, Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	r.forget(n)
	r.me = tree.Caller{UID: 1234, GID: 1235}
	r.write("d/f", nil)
	r.mkdir("d/e")
	r.write("g", nil)
	if a := r.stat("d/f"); a.UID != 1234 || a.GID != gid {
		t.Errorf("%+v", a)
	}
	if a := r.stat("d/e"); a.UID != 1234 || a.GID != gid || a.Mode&unix.S_ISGID == 0 {
		t.Errorf("%+v", a)
	}
	if a := r.stat("g"); a.UID != 1234 || a.GID != 1235 {
		t.Errorf("%+v", a)
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
			seen[e.Name] = int(pos) + 1
			pos++
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
