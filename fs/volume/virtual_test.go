package volume

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats/canonical"
	"ckptfs/formats/detect"
	"ckptfs/fs/tree"
)

const tensors = ".ckptfs/tensors/"

// The directory is not listed, mirrors the tree, and shows what its files may show.
func TestVirtualTree(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	r.write("runs/a/m.pt", fixture(t, "flat.pt"))
	r.write("runs/note.txt", []byte("no tensors"))
	dir := r.find("runs")
	n, _, err := r.Symlink(dir, "latest", "a", r.me)
	if err != nil {
		t.Fatal(err)
	}
	r.forget(n)
	r.forget(dir)

	if got := r.listing(""); !slices.Equal(got, []string{"runs"}) {
		t.Errorf("the root lists %q", got)
	}
	if got := r.listing(".ckptfs"); !slices.Contains(got, "tensors") {
		t.Errorf(".ckptfs lists %q", got)
	}
	inFile := r.listing(tensors + "runs/a/m.pt")
	slices.Sort(inFile)
	for dir, want := range map[string][]string{
		"": {"runs"}, "runs": {"a", "latest", "note.txt"}, "runs/a": {"m.pt"}, "runs/note.txt": nil, "runs/a/m.safetensors": inFile,
	} {
		got := r.listing(tensors + dir)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("tensors/%s lists %q, want %q", dir, got, want)
		}
	}
	link := r.find(tensors + "runs/latest")
	if to, err := r.Readlink(link); to != "a" || err != nil {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	r.forget(link)

	f := r.find("runs/a/m.pt")
	mode := uint32(0o640)
	if _, err := r.Setattr(f, &tree.SetAttr{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	r.forget(f)
	first := r.listing(tensors + "runs/a/m.pt")[0]
	for p, want := range map[string]uint32{
		".ckptfs": unix.S_IFDIR | 0o555, tensors: unix.S_IFDIR | 0o555,
		tensors + "runs": unix.S_IFDIR | 0o555, tensors + "runs/latest": unix.S_IFLNK | 0o777,
		tensors + "runs/a/m.pt": unix.S_IFDIR | 0o550, tensors + "runs/a/m.pt/" + first: unix.S_IFREG | 0o440,
	} {
		if a := r.stat(p); a.Mode != want {
			t.Errorf("%s has mode %o, want %o", p, a.Mode, want)
		}
	}
	if a := r.stat(tensors + "runs/a/m.pt/" + first); a.Mtime != r.stat("runs/a/m.pt").Mtime ||
		a.Nlink != 1 || a.Settled {
		t.Errorf("%+v", a)
	}
	for _, p := range []string{".ckptfs/x", tensors + "x", tensors + "runs/a/m.pt/x.npy",
		tensors + "runs/a/m.pt/" + strings.TrimSuffix(first, ".npy"), "runs/.ckptfs"} {
		if r.exists(p) {
			t.Errorf("%s is there", p)
		}
	}
	a, b := r.find(tensors+"runs/a/m.pt/"+first), r.find(tensors+"runs/a/m.pt/"+first)
	if a != b {
		t.Error("two nodes of one tensor")
	}
	r.forget(a)
	r.forget(b)
	r.onlyRoot()
	if r.reopen(func(o *Options) { o.NoViews = true }).exists(".ckptfs") {
		t.Error("it is there although views are off")
	}
}

// Nothing below .ckptfs can be changed, nor can it be made, but a real one is real.
func TestVirtualRefuses(t *testing.T) {
	r := newRig(t)
	r.write("m.pt", fixture(t, "flat.pt"))
	first := r.listing(tensors + "m.pt")[0]
	for _, p := range []string{".ckptfs", ".ckptfs/tensors", tensors + "m.pt"} {
		dir := r.find(p)
		_, _, _, err := r.Create(dir, "x", 0o644, unix.O_WRONLY, r.me)
		wantErr(t, "create", err, unix.EROFS)
		_, _, err = r.Mkdir(dir, "x", 0o755, r.me)
		wantErr(t, "mkdir", err, unix.EROFS)
		_, _, err = r.Symlink(dir, "x", "y", r.me)
		wantErr(t, "symlink", err, unix.EROFS)
		_, _, _, err = r.Tmpfile(dir, 0o644, unix.O_RDWR, r.me)
		wantErr(t, "tmpfile", err, unix.EROFS)
		wantErr(t, "unlink", r.Unlink(dir, first), unix.EROFS)
		wantErr(t, "rmdir", r.Rmdir(dir, "tensors"), unix.EROFS)
		wantErr(t, "rename into", r.Rename(r.names.Root(), "m.pt", dir, "x", 0), unix.EROFS)
		wantErr(t, "rename from", r.Rename(dir, first, r.names.Root(), "x", 0), unix.EROFS)
		_, err = r.Setattr(dir, &tree.SetAttr{})
		wantErr(t, "setattr", err, unix.EROFS)
		wantErr(t, "setxattr", r.SetXattr(dir, "user.x", nil, 0), unix.EROFS)
		_, err = r.GetXattr(t.Context(), dir, "user.x", nil)
		wantErr(t, "getxattr", err, unix.ENODATA)
		_, err = r.Open(dir, unix.O_RDONLY)
		if err == nil {
			t.Errorf("%s was opened as a file", p)
		}
		r.forget(dir)
	}
	n := r.find(tensors + "m.pt/" + first)
	for _, flags := range []uint32{unix.O_WRONLY, unix.O_RDWR, unix.O_RDONLY | unix.O_TRUNC} {
		_, err := r.Open(n, flags)
		wantErr(t, "open", err, unix.EROFS)
	}
	size := int64(0)
	_, err := r.Setattr(n, &tree.SetAttr{Size: &size})
	wantErr(t, "truncate", err, unix.EROFS)
	_, err = r.Link(n, r.names.Root(), "x")
	wantErr(t, "link", err, unix.EPERM)
	r.forget(n)

	_, _, err = r.Mkdir(r.names.Root(), ".ckptfs", 0o755, r.me)
	wantErr(t, "mkdir .ckptfs", err, unix.EEXIST)
	_, _, _, err = r.Create(r.names.Root(), ".ckptfs", 0o644, unix.O_WRONLY, r.me)
	wantErr(t, "create .ckptfs", err, unix.EEXIST)
	wantErr(t, "rename to .ckptfs", r.Rename(r.names.Root(), "m.pt", r.names.Root(), ".ckptfs", 0),
		unix.EROFS)
	wantErr(t, "rename .ckptfs", r.Rename(r.names.Root(), ".ckptfs", r.names.Root(), "x", 0), unix.EROFS)
	wantErr(t, "rmdir .ckptfs", r.Rmdir(r.names.Root(), ".ckptfs"), unix.EROFS)
	wantErr(t, "unlink .ckptfs", r.Unlink(r.names.Root(), ".ckptfs"), unix.EROFS)
	r.onlyRoot()

	if err := os.WriteFile(r.at("tree/.ckptfs"), []byte("real"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.same(".ckptfs", []byte("real"))
	r.unlink(".ckptfs")
	if !r.exists(".ckptfs/tensors") {
		t.Error("gone with the real one")
	}
}

// The control commands leave virtual files alone.
func TestVirtualCommands(t *testing.T) {
	r := newRig(t)
	r.write("m.pt", fixture(t, "flat.pt"))
	r.pack("m.pt")
	if m, err := r.Evict(t.Context(), ".ckptfs/tensors", nil); err != nil || m.Files != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	_, err := r.Show(t.Context(), ".ckptfs/tensors", nil)
	if err == nil || !strings.Contains(err.Error(), "without a checkpoint") {
		t.Error(err)
	}
}

// Files are replaced, rewritten, packed, evicted and removed while their tensors and ids are looked up and
// read: what is read is of one version, whole, or nothing.
func TestVirtualConcurrent(t *testing.T) {
	r := newRig(t, hotSize(1<<20))
	const n = 300 << 10
	save := func(p string, version byte) {
		r.write(p, weights(t, []string{"a", "b"}, bytes.Repeat([]byte{version}, n), []byte{version}))
	}
	// EAGAIN: another search for an id was slow, a short while ago.
	gone := func(err error) bool {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENODATA) ||
			errors.Is(err, unix.EAGAIN)
	}
	// read reads a virtual file; nil when it is not there, or went.
	read := func(p string) []byte {
		node, _, err := r.lookup(p)
		if err != nil {
			if !gone(err) {
				t.Errorf("look up %s: %v", p, err)
			}
			return nil
		}
		defer r.forget(node)
		h, err := r.Open(node, unix.O_RDONLY)
		if err != nil {
			if !gone(err) {
				t.Errorf("open %s: %v", p, err)
			}
			return nil
		}
		defer r.release(h)
		got, err := r.readHandle(h)
		if err != nil {
			if !gone(err) {
				t.Errorf("read %s: %v", p, err)
			}
			return nil
		}
		return got
	}
	ids := make(chan string, 64)
	rounds := 40
	var wg sync.WaitGroup
	wg.Go(func() { // the writer
		for i := range rounds {
			v := byte(i)
			switch i % 4 {
			case 0:
				save("m", v) // over the old file
			case 1:
				save("tmp", v)
				r.rename("tmp", "m")
			case 2:
				r.sync()
				r.Evict(t.Context(), "", nil)
				save("tmp", v)
				r.rename("tmp", "m")
			case 3:
				r.unlink("m")
				save("m", v)
			}
		}
	})
	for range 2 {
		wg.Go(func() { // tensors
			for range 5 * rounds {
				if got := read(tensors + "m/a.npy"); got != nil {
					p := got[len(got)-n:]
					if bytes.Count(p, p[:1]) != n {
						t.Error("a tensor of two versions")
					}
				}
				if d, _, err := r.lookup(tensors + "m"); err == nil {
					if h, err := r.OpenDir(d); err == nil {
						if _, err := r.Entries(h, 0); err != nil && !gone(err) {
							t.Errorf("list: %v", err)
						}
						h.Release()
					}
					r.forget(d)
				}
			}
		})
	}
	wg.Go(func() { // ids
		defer close(ids)
		buf := make([]byte, 200)
		for range 3 * rounds {
			node, _, err := r.lookup("m")
			if err != nil {
				continue
			}
			k, err := r.GetXattr(t.Context(), node, XattrArtifact, buf)
			r.forget(node)
			if err == nil {
				select {
				case ids <- string(buf[:k]):
				default:
				}
			} else if !gone(err) {
				t.Errorf("id: %v", err)
			}
		}
	})
	wg.Go(func() { // what they lead to
		for id := range ids {
			if got := read(artifactsDir + id + ".safetensors"); got != nil {
				l, err := detect.Detect(bytes.NewReader(got), int64(len(got)))
				if err != nil {
					t.Error(err)
					continue
				}
				if back, err := canonical.Identify(t.Context(), bytes.NewReader(got), l, 1); err != nil ||
					back.String() != id {
					t.Errorf("%s leads to the tensors of %s, %v", id, back, err)
				}
			}
		}
	})
	wg.Wait()
	r.sync()
	r.awaitHydrator()
	r.unlink("m")
	r.onlyRoot()
}
