package volume

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats/detect"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// viewBytes is what the view of a checkpoint must hold. Package view's own tests hold that against torch.
func viewBytes(t testing.TB, src []byte) []byte {
	t.Helper()
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	w, err := view.Safetensors(l.Regions, l.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, w.Size())
	if n, err := w.ReadAt(bytes.NewReader(src), p, 0); n < len(p) {
		t.Fatal(err)
	}
	return p
}

func TestView(t *testing.T) {
	for _, name := range []string{"flat.pt", "views.pt", "tied.pt", "adamw.pt", "unicode.pt"} {
		r := newRig(t)
		src := fixture(t, name)
		want := viewBytes(t, src)
		r.mkdir("runs/a/3")
		const p = "runs/a/3/model.safetensors"
		h := r.open("runs/a/3/model.pt", unix.O_WRONLY|unix.O_CREAT)
		r.writeAt(h, src, 0)
		if r.exists(p) {
			t.Error("a view of a file that is being written")
		}
		r.release(h)
		for _, state := range []string{resident, both, packed} {
			if state == resident {
				r.same(p, want)
			} else {
				r.bring("runs/a/3/model.pt", state)
				r.same(p, want)
			}
			if got := r.listing("runs/a/3"); !slices.Equal(got, []string{"model.safetensors", "model.pt"}) {
				t.Errorf("%s: names: %v", state, got)
			}
		}
		a, s := r.stat(p), r.stat("runs/a/3/model.pt")
		if a.Mode != s.Mode || a.Mtime != s.Mtime || a.Ino == s.Ino || a.Nlink != 1 {
			t.Errorf("%+v of %+v", a, s)
		}
		r = r.reopen()
		r.same(p, want)
		r.onlyRoot()
		if t.Failed() {
			t.Fatalf("%s", name)
		}
	}
}

// Formats other than torch's have views, too, when all that they hold is a tensor that safetensors has a type
// for.
func TestViewFormats(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	has := map[string]bool{
		"numpy/several.npz": true, "numpy/fortran.npy": true, "numpy/two.npy": true, "hdf5/model.weights.h5": true,
		"hdf5/model.keras": true, "hdf5/groups.h5": true, "gguf/plain.gguf": true, "hdf5/types.h5": true,
		"onnx/types.onnx":      false,
		"numpy/big_endian.npy": false, "numpy/mixed.npz": false, "numpy/complex128.npy": false, "hdf5/chunked.h5": false,
		"gguf/quantised.gguf": false, "onnx/external.onnx": false, "archive/files.zip": false, "sklearn/arrays.joblib": false,
	}
	names := map[string]string{} // of the views
	for name := range has {
		base := filepath.Base(name)
		stem := strings.TrimSuffix(base, filepath.Ext(base))
		names[name] = "runs/a/" + strings.ReplaceAll(filepath.Dir(name), "/", "_") + "_" + stem + view.Suffix
		r.write(strings.TrimSuffix(names[name], view.Suffix)+filepath.Ext(base), sample(t, name))
	}
	check := func() {
		t.Helper()
		listed := r.listing("runs/a")
		for name, want := range has {
			p := names[name]
			if !want {
				if r.exists(p) {
					t.Errorf("%s has a view", name)
				}
				continue
			}
			r.same(p, viewBytes(t, sample(t, name)))
			if !slices.Contains(listed, filepath.Base(p)) {
				t.Errorf("%s is not listed", p)
			}
		}
	}
	check()
	r.sync()
	r.evictAll()
	check()
}

// A listing parses a file once while it is not packed, and never once it is.
func TestViewListing(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	r.withoutPacking()
	r.write("runs/a/m.npz", sample(t, "numpy/several.npz"))
	r.listing("runs/a")
	if err := os.Truncate(r.at("tree/runs/a/m.npz"), 100); err != nil { // behind the volume's back
		t.Fatal(err)
	}
	if got := r.listing("runs/a"); !slices.Equal(got, []string{"m.safetensors", "m.npz"}) {
		t.Errorf("names: %v", got)
	}
}

// Where there are no views.
func TestNoView(t *testing.T) {
	r := newRig(t)
	flat := fixture(t, "flat.pt")
	r.mkdir("runs/a")
	r.mkdir("other/runs")
	for p, data := range map[string][]byte{
		"model.pt":             flat, // not below runs/
		"other/runs/m.pt":      flat,
		"runs/a/m.txt":         flat, // no checkpoint's name
		"runs/a/.pt":           flat,
		"runs/a/text.pt":       []byte("no checkpoint"),
		"runs/a/empty.pt":      nil,
		"runs/a/no_tensors.pt": fixture(t, "no_tensors.pt"),
		// a safetensors file under that name
		"runs/a/same.pt":           weights(t, []string{"a"}, []byte{1}),
		"runs/a/big.pt":            random(100<<10, 1),
		"runs/a/taken.pt":          flat,
		"runs/a/taken.safetensors": []byte("real"),
	} {
		r.write(p, data)
	}
	check := func() {
		t.Helper()
		for _, dir := range []string{"", "other/runs", "runs/a"} {
			names := r.listing(dir)
			n := 0
			for _, name := range names {
				if len(name) > 12 && name[len(name)-12:] == ".safetensors" {
					n++
				}
			}
			if want := map[string]int{"runs/a": 1}[dir]; n != want {
				t.Errorf("%q lists %v", dir, names)
			}
		}
		for _, p := range []string{"model", "other/runs/m", "runs/a/m", "runs/a/", "runs/a/text",
			"runs/a/empty", "runs/a/no_tensors", "runs/a/same", "runs/a/big"} {
			if r.exists(p + ".safetensors") {
				t.Errorf("%s.safetensors is there", p)
			}
		}
		r.same("runs/a/taken.safetensors", []byte("real"))
	}
	check()
	r.sync()
	r.evictAll()
	check()
	r.write("runs/a/view.pt", flat)
	r = r.reopen(func(o *Options) { o.NoViews = true })
	if r.exists("runs/a/view.safetensors") {
		t.Error("a view although they are off")
	}
}

func TestViewHidden(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			src := fixture(t, "flat.pt")
			r.mkdir("runs/a")
			if state == resident {
				r.withoutPacking()
			}
			r.write("runs/a/m.pt", src)
			if state != resident {
				r.bring("runs/a/m.pt", state)
			}
			r.unlink("runs/a/m.safetensors")
			dir := r.find("runs/a")
			wantErr(t, "a second unlink", r.Unlink(dir, "m.safetensors"), unix.ENOENT)
			r.forget(dir)
			check := func() {
				t.Helper()
				if r.exists("runs/a/m.safetensors") {
					t.Error("it is there")
				}
				if got := r.listing("runs/a"); !slices.Equal(got, []string{"m.pt"}) {
					t.Errorf("names: %v", got)
				}
			}
			check()
			r = r.reopen()
			check()
			r.pack("runs/a/m.pt")
			check()
			r.same("runs/a/m.pt", src)
		})
	}
}

// A checkpoint that is written again, in any state of the old one, has its view again.
func TestViewHiddenUntilRewritten(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		r := newRig(t)
		r.mkdir("runs/a")
		if state == resident {
			r.withoutPacking()
		}
		r.write("runs/a/m.pt", fixture(t, "flat.pt"))
		if state != resident {
			r.bring("runs/a/m.pt", state)
		}
		r.unlink("runs/a/m.safetensors")
		r.write("runs/a/m.pt", fixture(t, "tied.pt"))
		if !r.exists("runs/a/m.safetensors") {
			t.Errorf("%s: no view of the new checkpoint", state)
		}
	}
}

func TestRemoveTree(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a/1")
	r.write("runs/a/1/m.pt", fixture(t, "flat.pt"))
	for _, name := range r.listing("runs/a/1") { // as rm -r does
		r.unlink("runs/a/1/" + name)
	}
	dir := r.find("runs/a")
	defer r.forget(dir)
	if err := r.Rmdir(dir, "1"); err != nil {
		t.Error(err)
	}
}

// A real file takes the view's place. When it is removed, the name is gone until the source is written again.
func TestViewReplaced(t *testing.T) {
	r := newRig(t)
	src := fixture(t, "flat.pt")
	want := viewBytes(t, src)
	const p = "runs/a/m.safetensors"
	r.mkdir("runs/a")
	r.write("runs/a/m.pt", src)
	dir := r.find("runs/a")
	defer r.forget(dir)
	n, _, h, err := r.Create(dir, "m.safetensors", 0o644, unix.O_WRONLY, r.me)
	if err != nil {
		t.Fatal(err)
	}
	r.writeAt(h, []byte("real"), 0)
	r.release(h)
	r.forget(n)
	r.same(p, []byte("real"))
	if got := r.listing("runs/a"); len(got) != 2 {
		t.Errorf("names: %v", got)
	}
	r.unlink(p)
	if r.exists(p) {
		t.Error("it came back")
	}
	r.write("runs/a/m.pt", src)
	r.same(p, want)
	r.write("x", []byte("moved"))
	r.rename("x", p)
	r.same(p, []byte("moved"))
	r.rename(p, "x")
	if r.exists(p) {
		t.Error("it came back")
	}
}

func TestViewRefuses(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	r.write("runs/a/m.pt", fixture(t, "flat.pt"))
	wantErr(t, "rename", r.tryRename("runs/a/m.safetensors", "runs/a/n", 0), unix.EXDEV)
	n := r.find("runs/a/m.safetensors")
	defer r.forget(n)
	_, err := r.Link(n, r.names.Root(), "x")
	wantErr(t, "link", err, unix.EPERM)
	mode := uint32(0o600)
	if a, err := r.Setattr(n, &tree.SetAttr{Mode: &mode}); err != nil || a.Mode&0o777 != 0o600 ||
		r.stat("runs/a/m.pt").Mode&0o777 != 0o600 {
		t.Errorf("chmod: %o, source %o, %v", a.Mode, r.stat("runs/a/m.pt").Mode, err)
	}
	wantErr(t, "setxattr", r.SetXattr(n, "user.a", nil, 0), unix.EPERM)
	_, err = r.GetXattr(t.Context(), n, "user.a", nil)
	wantErr(t, "getxattr", err, unix.ENODATA)
	if k, err := r.ListXattr(n, make([]byte, 10), true); k != 0 || err != nil {
		t.Errorf("listxattr: %d, %v", k, err)
	}
	h := r.open("runs/a/m.safetensors", unix.O_RDONLY)
	defer r.release(h)
	_, err = h.Write([]byte("x"), 0)
	wantErr(t, "write", err, unix.EBADF)
	if err := h.Fsync(); err != nil {
		t.Errorf("fsync: %v", err)
	}
	if off, err := h.Seek(1, unix.SEEK_DATA); off != 1 || err != nil {
		t.Errorf("seek: %d, %v", off, err)
	}
}

// A view belongs to one generation of its source's bytes.
func TestViewOutdated(t *testing.T) {
	for _, state := range []string{resident, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			first, second := fixture(t, "flat.pt"), fixture(t, "adamw.pt")
			const p = "runs/a/m.safetensors"
			r.mkdir("runs/a")
			r.write("runs/a/m.pt", first)
			if state == packed {
				r.packOut("runs/a/m.pt")
			}
			old := r.find(p)
			oh, err := r.Open(old, unix.O_RDONLY)
			if err != nil {
				t.Fatal(err)
			}
			w := r.open("runs/a/m.pt", unix.O_WRONLY|unix.O_TRUNC)
			if r.exists(p) {
				t.Error("a view of a file that is being written")
			}
			_, err = oh.Read(make([]byte, 100), 0)
			wantErr(t, "a read of the old view", err, unix.ESTALE)
			_, err = r.Open(old, unix.O_RDONLY)
			wantErr(t, "an open of the old view", err, unix.ESTALE)
			r.writeAt(w, second, 0)
			r.release(w)

			now := r.find(p)
			if now == old {
				t.Error("the same node")
			}
			r.same(p, viewBytes(t, second))
			_, err = oh.Read(make([]byte, 100), 0)
			wantErr(t, "a read of the old view", err, unix.ESTALE)
			r.release(oh)
			r.forget(old)
			r.packOut("runs/a/m.pt")
			r.same(p, viewBytes(t, second))
			r.forget(now)
			r.onlyRoot()
		})
	}
}

// An open view reads on when its source is evicted, hydrated or unlinked.
func TestViewOpen(t *testing.T) {
	r := newRig(t)
	src := fixture(t, "views.pt")
	want := viewBytes(t, src)
	r.mkdir("runs/a")
	r.write("runs/a/m.pt", src)
	r.pack("runs/a/m.pt")
	h := r.open("runs/a/m.safetensors", unix.O_RDONLY)
	check := func(when string) {
		t.Helper()
		got, err := r.readHandle(h)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		r.equal(when, got, want)
	}
	if n := r.content.Count.Handles.Load(); n != 1 {
		t.Errorf("%d open files", n)
	}
	check("resident")
	r.evictAll()
	check("evicted")
	r.hydrateAll()
	check("hydrated")
	r.rename("runs/a/m.pt", "m.pt")
	check("renamed")
	if r.exists("runs/a/m.safetensors") {
		t.Error("the view of a file that moved away")
	}
	r.evictAll()
	r.unlink("m.pt")
	check("unlinked")
	r.release(h)
	if _, err := os.Stat(r.at("tree", "m.pt")); err == nil {
		t.Error("still there")
	}
	r.onlyRoot()
}

// sample is a file of formats/testdata.
func sample(t testing.TB, name string) []byte {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("../../formats/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A file gets its view in whatever way it came into a folder that was made just now.
func TestViewsInNewFolder(t *testing.T) {
	for how, come := range map[string]func(r *rig, src []byte){
		"create": func(r *rig, src []byte) { r.write("runs/new/m.pt", src) },
		"rename": func(r *rig, src []byte) { r.write("other/m", src); r.rename("other/m", "runs/new/m.pt") },
		"link":   func(r *rig, src []byte) { r.write("other/m", src); r.link("other/m", "runs/new/m.pt") },
		"exchange": func(r *rig, src []byte) {
			r.write("other/m", src)
			r.write("runs/new/m.pt", []byte("x"))
			if err := r.tryRename("other/m", "runs/new/m.pt", unix.RENAME_EXCHANGE); err != nil {
				r.t.Fatal(err)
			}
		},
		"the folder's name": func(r *rig, src []byte) {
			made := r.dirKept("other/new")
			defer r.forget(made)
			r.write("other/new/m.pt", src)
			r.rename("runs/new", "runs/old")
			r.rename("other/new", "runs/new")
		},
	} {
		r := newRig(t)
		src := fixture(t, "flat.pt")
		r.mkdir("runs")
		r.mkdir("other")
		made := r.dirKept("runs/new")
		if r.exists("runs/new/m.safetensors") {
			t.Errorf("%s: a view of nothing", how)
		}
		come(r, src)
		r.same("runs/new/m.safetensors", viewBytes(t, src))
		if r.exists("runs/new/n.safetensors") {
			t.Errorf("%s: a view of another name", how)
		}
		if made.MayHold(view.Mark("m.npz")) {
			t.Errorf("%s: names are looked for that are not there", how)
		}
		r.forget(made)
		r.close()
	}
}

// dirKept makes a folder. The kernel knows it until it is forgotten.
func (r *rig) dirKept(p string) *names.Node {
	r.t.Helper()
	dir, name := r.dirOf(p)
	defer r.forget(dir)
	n, _, err := r.Mkdir(dir, name, 0o755, r.me)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}
