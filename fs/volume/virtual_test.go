package volume

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/canonical"
	"ckptfs/formats/detect"
	"ckptfs/formats/npy"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

const tensors = ".ckptfs/tensors/"

// npyBytes is what the .npy file of a tensor must hold.
func npyBytes(t testing.TB, src []byte, name string) []byte {
	t.Helper()
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Tensors {
		x := &l.Tensors[i]
		if x.Name != name {
			continue
		}
		p, err := npy.AppendHeader(nil, x)
		if err != nil || len(p)%64 != 0 {
			t.Fatalf("header of %d bytes, %v", len(p), err)
		}
		return append(p, elements(src, l, x)...)
	}
	t.Fatalf("no tensor %q", name)
	return nil
}

// elements is a tensor's elements, row-major.
func elements(src []byte, l *formats.Layout, x *formats.Tensor) []byte {
	var out []byte
	width := int64(x.DType.Bits() / 8)
	index := make([]int64, len(x.Shape))
	stride := x.Stride
	if stride == nil {
		stride = make([]int64, len(x.Shape))
		n := int64(1)
		for i := len(stride) - 1; i >= 0; i-- {
			stride[i] = n
			n *= x.Shape[i]
		}
	}
	for range x.NumElements() {
		at := l.Regions[x.Region].Off + x.Offset
		for i, k := range index {
			at += k * stride[i] * width
		}
		out = append(out, src[at:at+width]...)
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < x.Shape[i] {
				break
			}
			index[i] = 0
		}
	}
	return out
}

func TestTensors(t *testing.T) {
	for _, name := range []string{"torch/flat.pt", "torch/views.pt", "torch/unicode.pt", "numpy/several.npz", "numpy/fortran.npy", "same/model.safetensors",
		"hdf5/model.keras", "sklearn/arrays.joblib", "torch/empty_and_scalar.pt"} {
		if _, err := os.Stat("../../formats/testdata/" + name); err != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			src := sample(t, name)
			l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
			if err != nil || len(l.Tensors) == 0 {
				t.Fatal(err, len(l.Tensors))
			}
			r.mkdir("a")
			p := "a/x" + filepath.Ext(name)
			check := func() {
				t.Helper()
				var want []string
				for i := range l.Tensors {
					x := &l.Tensors[i]
					file := view.TensorFile(x.Name)
					want = append(want, file)
					r.same(tensors+p+"/"+file, npyBytes(t, src, x.Name))
				}
				got := r.listing(tensors + p)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("names %q, want %q", got, want)
				}
			}
			r.withoutPacking()
			r.write(p, src)
			check()
			r = r.reopen()
			r.bring(p, both)
			check()
			r.bring(p, packed)
			check()
			r.onlyRoot()
		})
	}
}

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
		".ckptfs": unix.S_IFDIR | 0o555, tensors: unix.S_IFDIR | 0o555, tensors + "runs": unix.S_IFDIR | 0o555, tensors + "runs/latest": unix.S_IFLNK | 0o777,
		tensors + "runs/a/m.pt": unix.S_IFDIR | 0o550, tensors + "runs/a/m.pt/" + first: unix.S_IFREG | 0o440,
	} {
		if a := r.stat(p); a.Mode != want {
			t.Errorf("%s has mode %o, want %o", p, a.Mode, want)
		}
	}
	if a := r.stat(tensors + "runs/a/m.pt/" + first); a.Mtime != r.stat("runs/a/m.pt").Mtime || a.Nlink != 1 || a.Settled {
		t.Errorf("%+v", a)
	}
	for _, p := range []string{".ckptfs/x", tensors + "x", tensors + "runs/a/m.pt/x.npy", tensors + "runs/a/m.pt/" + strings.TrimSuffix(first, ".npy"), "runs/.ckptfs"} {
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
	wantErr(t, "rename to .ckptfs", r.Rename(r.names.Root(), "m.pt", r.names.Root(), ".ckptfs", 0), unix.EROFS)
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

// A tensor's file belongs to one generation of its file's bytes, and reads on when that is evicted, hydrated
// or unlinked.
func TestTensorFollowsItsFile(t *testing.T) {
	r := newRig(t)
	src := fixture(t, "flat.pt")
	r.write("m.pt", src)
	r.pack("m.pt")
	l, _ := detect.Detect(bytes.NewReader(src), int64(len(src)))
	name := l.Tensors[0].Name
	p := tensors + "m.pt/" + name + ".npy"
	want := npyBytes(t, src, name)
	h := r.open(p, unix.O_RDONLY)
	check := func(when string) {
		t.Helper()
		got, err := r.readHandle(h)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		r.equal(when, got, want)
	}
	check("resident")
	r.evictAll()
	check("evicted")
	r.hydrateAll()
	check("hydrated")
	w := r.open("m.pt", unix.O_WRONLY|unix.O_TRUNC)
	if r.exists(p) {
		t.Error("a tensor of a file that is being written")
	}
	_, err := h.Read(make([]byte, 10), 0)
	wantErr(t, "a read of old bytes", err, unix.ESTALE)
	r.writeAt(w, src, 0)
	r.release(w)
	r.same(p, want)
	r.release(h)
	h = r.open(p, unix.O_RDONLY)
	r.unlink("m.pt")
	check("unlinked")
	r.release(h)
	r.onlyRoot()
}

// What a mapping writes that outlived its descriptor is no change that anybody is told of: until it is gone
// there is nothing whose pages the kernel could keep.
func TestTensorOfMapped(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs")
	src := fixture(t, "flat.pt")
	h := r.open("runs/m.pt", unix.O_RDWR|unix.O_CREAT)
	r.writeAt(h, src, 0)
	fd, err := unix.Open(r.rawPath("runs/m.pt"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(fd, 0, len(src), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	r.release(h)
	l, _ := detect.Detect(bytes.NewReader(src), int64(len(src)))
	x := &l.Tensors[0]
	of := tensors + "runs/m.pt/" + view.TensorFile(x.Name)
	for _, p := range []string{of, "runs/m.safetensors"} {
		if r.exists(p) {
			t.Errorf("%s is there while the file may change", p)
		}
	}
	at := l.Regions[x.Region].Off + x.Offset
	copy(m[at:], "four")
	copy(src[at:], "four")
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	r.same(of, npyBytes(t, src, x.Name))
	r.same("runs/m.safetensors", viewBytes(t, src))
}

// A read of one tensor needs its own chunks, and nothing is read ahead beyond them.
func TestTensorAlone(t *testing.T) {
	r := newRig(t)
	const n = 4 << 20
	a, b, c := random(n, 1), random(n, 2), random(n, 3)
	r.write("m.safetensors", weights(t, []string{"a", "b", "c"}, a, b, c))
	r.packOut("m.safetensors")
	before := r.asm.Stats()
	head, err := npy.AppendHeader(nil, &formats.Tensor{DType: formats.U8, Shape: []int64{n}})
	if err != nil {
		t.Fatal(err)
	}
	r.same(tensors+"m.safetensors/b.npy", append(head, b...))
	// of 3n; read ahead may fetch what was just let go
	if got := r.asm.Stats().FetchedBytes - before.FetchedBytes; got > 2*n {
		t.Errorf("%d bytes fetched for a tensor of %d", got, n)
	}
}

func TestTensorFile(t *testing.T) {
	long := strings.Repeat("ä", 300)
	for name, want := range map[string]string{
		"": ".npy", "a.b": "a.b.npy", "a/b": "a%2Fb.npy", "100%": "100%25.npy", "größe": "größe.npy", "a\x00\n\x7f": "a%00%0A%7F.npy", "\xff": "%FF.npy",
		".": "..npy", "..": "...npy", strings.Repeat("x", 251): strings.Repeat("x", 251) + ".npy",
	} {
		if got := view.TensorFile(name); got != want {
			t.Errorf("%q is called %q, want %q", name, got, want)
		}
	}
	seen := map[string]bool{}
	for _, name := range []string{long, long + "x", strings.Repeat("x", 252), strings.Repeat("%", 100), strings.Repeat("x", 199) + strings.Repeat("%", 99), "y" + strings.Repeat("%", 99)} {
		got := view.TensorFile(name)
		if len(got) > 255 || !strings.Contains(got, "%~") || seen[got] || strings.ToValidUTF8(got, "?") != got {
			t.Errorf("%q is called %q", name, got)
		}
		seen[got] = true
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
	if _, err := r.Show(t.Context(), ".ckptfs/tensors"); !errors.Is(err, tree.ErrNotRegular) {
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
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EAGAIN)
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
				save("m", v) // in place
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
				if back, err := canonical.Identify(t.Context(), bytes.NewReader(got), l, 1); err != nil || back.String() != id {
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

// A step that not everybody may see who may see its run is no best, and tells no metric.
func TestBestOfPrivateSteps(t *testing.T) {
	r := newRig(t)
	for step, metrics := range map[string]string{"1": `{"loss": 3}`, "2": `{"loss": 2, "secret": 1}`, "3": `{"loss": 1, "secret": 2}`} {
		r.mkdir("runs/a/" + step)
		r.write("runs/a/"+step+"/metrics.json", []byte(metrics))
	}
	chmod := func(p string, mode uint32) {
		t.Helper()
		r.setattr(p, &tree.SetAttr{Mode: &mode})
	}
	want := func(target string, names ...string) {
		t.Helper()
		got := r.listing(".ckptfs/best/a")
		slices.Sort(got)
		if !slices.Equal(got, names) {
			t.Errorf("%q, want %q", got, names)
		}
		n := r.find(".ckptfs/best/a/loss.min")
		defer r.forget(n)
		if to, err := r.Readlink(n); err != nil || path.Base(to) != target {
			t.Errorf("%s, %v; want %s", to, err, target)
		}
	}
	want("3", "loss.max", "loss.min", "secret.max", "secret.min")
	chmod("runs/a/3", 0o700)
	want("2", "loss.max", "loss.min", "secret.max", "secret.min")
	chmod("runs/a/2/metrics.json", 0o600)
	want("1", "loss.max", "loss.min")
	if got := r.best("runs/a", "loss", "min"); got != "3" { // who asks the daemon may see all
		t.Errorf("best is %s", got)
	}
	chmod("runs/a", 0o700)
	want("3", "loss.max", "loss.min", "secret.max", "secret.min")
	chmod("runs/a", 0o755)
	chmod("runs/a/3", 0o711)
	chmod("runs/a/2/metrics.json", 0o644)
	want("2", "loss.max", "loss.min", "secret.max", "secret.min")
}

// Who may not look into runs/, or into a run, learns nothing of it below best.
func TestBestPermissions(t *testing.T) {
	r := newRig(t)
	if a := r.stat(".ckptfs/best"); a.Mode != unix.S_IFDIR|0o555 {
		t.Errorf("without runs: mode %o", a.Mode)
	}
	r.mkdir("runs/a/1")
	r.write("runs/a/1/metrics.json", []byte(`{"loss": 1}`))
	for _, c := range []struct{ runs, run uint32 }{{0o755, 0o755}, {0o700, 0o755}, {0o755, 0o700}, {0o751, 0o710}} {
		for p, mode := range map[string]uint32{"runs": c.runs, "runs/a": c.run} {
			n := r.find(p)
			if _, err := r.Setattr(n, &tree.SetAttr{Mode: &mode}); err != nil {
				t.Fatal(err)
			}
			r.forget(n)
		}
		for p, mode := range map[string]uint32{".ckptfs/best": c.runs, ".ckptfs/best/a": c.run} {
			if a := r.stat(p); a.Mode != unix.S_IFDIR|mode&0o555 {
				t.Errorf("%o/%o: %s has mode %o", c.runs, c.run, p, a.Mode)
			}
		}
		if got := r.listing(".ckptfs/best/a"); !slices.Equal(got, []string{"loss.max", "loss.min"}) && !slices.Equal(got, []string{"loss.min", "loss.max"}) {
			t.Errorf("%q", got)
		}
	}
	r.onlyRoot()
}
