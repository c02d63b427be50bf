package volume

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/formats/detect"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// sameID is the id of the files of formats/testdata/same, by another implementation.
func sameID(t testing.TB) string {
	t.Helper()
	var ids map[string]struct{ ID string }
	if err := json.Unmarshal(sample(t, "ids.json"), &ids); err != nil {
		t.Fatal(err)
	}
	return ids["same"].ID
}

// artifact reads the attribute.
func (r *rig) artifact(p string) (string, error) {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	buf := make([]byte, 200)
	k, err := r.GetXattr(r.test.Context(), n, XattrArtifact, buf)
	if err != nil {
		return "", err
	}
	if long, err := r.GetXattr(r.test.Context(), n, XattrArtifact, nil); long != k || err != nil {
		r.t.Errorf("%s: the attribute has %d bytes, stated are %d, %v", p, k, long, err)
	}
	_, err = r.GetXattr(r.test.Context(), n, XattrArtifact, buf[:k-1])
	wantErr(r.test, "into too little", err, unix.ERANGE)
	return string(buf[:k]), nil
}

const artifactsDir = ".ckptfs/artifacts/"

func TestArtifact(t *testing.T) {
	want := sameID(t)
	src := sample(t, "same/model.safetensors")
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := view.Safetensors(l.Regions, l.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	canon := make([]byte, plan.Size())
	if _, err := plan.ReadAt(bytes.NewReader(src), canon, 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.safetensors", "model.pt", "model.npz", "reversed.safetensors", "shuffled.safetensors"} {
		for _, state := range []string{resident, both, packed} {
			t.Run(name+" "+state, func(t *testing.T) {
				r := newRig(t)
				r.mkdir("runs/a")
				p := "runs/a/" + name
				if state == resident {
					r.withoutPacking()
				}
				r.write(p, sample(t, "same/"+name))
				if state != resident {
					r.bring(p, state)
				}
				if r.exists(artifactsDir + want + ".safetensors") {
					t.Error("there before a program asked")
				}
				if got, err := r.artifact(p); got != want || err != nil {
					t.Fatalf("%q, %v, want %q", got, err, want)
				}
				r.same(artifactsDir+want+".safetensors", canon)
				r = r.reopen()
				if state == resident { // nothing was kept, but packing goes on
					if got, err := r.artifact(p); got != want || err != nil {
						t.Errorf("again: %q, %v", got, err)
					}
					r.pack(p)
					r = r.reopen()
				}
				before := r.asm.Stats().Fetched
				r.rename(p, "moved")
				if got := r.listing(artifactsDir); !slices.Equal(got, []string{want + ".safetensors"}) {
					t.Errorf("artifacts lists %q", got)
				}
				if got, err := r.artifact("moved"); got != want || err != nil ||
					r.asm.Stats().Fetched != before {
					t.Errorf("%q, %v; or computed again", got, err)
				}
				r.same(artifactsDir+want+".safetensors", canon)
				if f, err := r.Show(t.Context(), "moved", nil); err != nil || f.Artifact != want {
					t.Errorf("show: %+v, %v", f, err)
				}
				r.unlink("moved")
				if r.exists(artifactsDir + want + ".safetensors") {
					t.Error("there though the file is gone")
				}
				// A search that took long is followed by a rest.
				r.eventually("it is not listed any more", func() bool {
					return !r.exists(artifactsDir+want+".safetensors") && len(r.listing(artifactsDir)) == 0
				})
				r.onlyRoot()
			})
		}
	}
}

// Of two files of one id the other is found when one goes.
func TestArtifactOfTwo(t *testing.T) {
	r := newRig(t)
	id := sameID(t)
	r.write("a.pt", sample(t, "same/model.pt"))
	r.write("b.npz", sample(t, "same/model.npz"))
	r.sync()
	for _, p := range []string{"a.pt", "b.npz"} {
		if got, err := r.artifact(p); got != id || err != nil {
			t.Fatal(got, err)
		}
	}
	h := r.open(artifactsDir+id+".safetensors", unix.O_RDONLY)
	want, err := r.readHandle(h)
	if err != nil {
		t.Fatal(err)
	}
	r.release(h)
	r.unlink("a.pt")
	r.same(artifactsDir+id+".safetensors", want)
	r.write("b.npz", sample(t, "numpy/several.npz"))
	if r.exists(artifactsDir + id + ".safetensors") {
		t.Error("there though its tensors are gone")
	}
}

// Files that have no id; and no program may set one.
func TestNoArtifact(t *testing.T) {
	r := newRig(t)
	for p, data := range map[string][]byte{
		"text": []byte("no tensors"), "mixed.npz": sample(t, "numpy/mixed.npz"), "empty": nil,
		"noise": random(100<<10, 1),
	} {
		r.write(p, data)
		_, err := r.artifact(p)
		wantErr(t, p, err, unix.ENODATA)
		n := r.find(p)
		_, err = r.GetXattr(t.Context(), n, XattrArtifact, nil)
		wantErr(t, p+": length", err, unix.ENODATA)
		r.forget(n)
	}
	_, err := r.artifact("")
	wantErr(t, "a folder", err, unix.ENODATA)
	r.write("m.pt", sample(t, "same/model.pt"))
	n := r.find("m.pt")
	defer r.forget(n)
	wantErr(t, "set", r.SetXattr(n, XattrArtifact, []byte("x"), 0), unix.EPERM)
	wantErr(t, "remove", r.RemoveXattr(n, XattrArtifact), unix.EPERM)
	buf := make([]byte, 1000)
	if k, err := r.ListXattr(n, buf, true); err != nil || strings.Contains(string(buf[:k]), "ckptfs") {
		t.Errorf("%q, %v", buf[:k], err)
	}
	w := r.open("m.pt", unix.O_WRONLY)
	_, err = r.artifact("m.pt")
	wantErr(t, "while it is written", err, unix.ENODATA)
	r.writeAt(w, []byte{'P'}, 0)
	r.release(w)
	if got, err := r.artifact("m.pt"); got != sameID(t) || err != nil {
		t.Error(got, err)
	}
}

// An id has the permissions of its file, and is there for those alone who reach that file by its folders; of
// two files of an id, by the folders of either.
func TestArtifactPermissions(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"a/m.pt", "b/m.pt"} {
		r.mkdir(path.Dir(p))
		r.write(p, sample(t, "same/model.pt"))
	}
	r.sync()
	id, err := r.artifact("a/m.pt")
	if err != nil {
		t.Fatal(err)
	}
	mode := func(p string, mode uint32) { r.setattr(p, &tree.SetAttr{Mode: &mode}) }
	stranger := visitor{r, person{"stranger", 3000, []uint32{3000}}, tree.Caller{UID: 3000, GID: 3000}}
	want := func(what string, want error) {
		t.Helper()
		n, a, err := stranger.walk(artifactsDir + id + ".safetensors")
		wantErr(t, what, err, want)
		if err == nil {
			if a.Mode != unix.S_IFREG|0o444 {
				t.Errorf("mode %o", a.Mode)
			}
			r.forget(n)
		}
	}
	want("two files", nil)
	mode("a", 0o700)
	mode("b/m.pt", 0o640)
	want("none that can be read", unix.ENOENT)
	mode("b/m.pt", 0o644)
	forget := r.known("b/m.pt")
	if _, err := r.artifact("b/m.pt"); err != nil { // it is known where it lies
		t.Fatal(err)
	}
	want("one of two", nil)
	forget()
	// It moves, in a store that knows neither: the search is nobody's to wait for.
	r.rename("b/m.pt", "c.pt")
	r = r.reopen()
	stranger.rig = r
	mode("c.pt", 0o600)
	for range 3 {
		want("moved, and private", unix.ENOENT)
	}
	mode("c.pt", 0o644)
	r.unlink("a/m.pt")
	r.eventually("it is found", func() bool {
		n, _, err := stranger.walk(artifactsDir + id + ".safetensors")
		if err == nil {
			r.forget(n)
		} else if err != unix.ENOENT {
			t.Error(err)
		}
		return err == nil
	})
}

// A prune forgets the ids of manifests that are gone.
func TestArtifactPruned(t *testing.T) {
	r := newRig(t)
	r.write("a", sample(t, "same/model.pt"))
	r.write("b", sample(t, "numpy/several.npz"))
	r.sync()
	for _, p := range []string{"a", "b"} {
		if _, err := r.artifact(p); err != nil {
			t.Fatal(err)
		}
	}
	r.unlink("a")
	r = r.reopen(func(o *Options) { o.Now = func() time.Time { return time.Now().Add(100 * time.Hour) } })
	if _, err := r.Prune(t.Context(), control.PruneOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.listing(artifactsDir); len(got) != 1 {
		t.Errorf("artifacts lists %q", got)
	}
}

// An index that is lost takes nothing with it: the id is computed again.
func TestArtifactWithoutIndex(t *testing.T) {
	r := newRig(t)
	r.write("m.pt", sample(t, "same/model.pt"))
	r.packOut("m.pt")
	want, err := r.artifact("m.pt")
	if err != nil {
		t.Fatal(err)
	}
	r = r.withoutIndex()
	if got, err := r.artifact("m.pt"); got != want || err != nil {
		t.Error(got, err)
	}
	r = r.reopen(func(o *Options) { o.ReadOnly, o.Create = true, false })
	if got, err := r.artifact("m.pt"); got != want || err != nil {
		t.Error(got, err)
	}
	r.exists(artifactsDir + want + ".safetensors")
}

// A file that a program may still write, by a mapping that outlived its descriptor, has no id: it would be
// another's bytes'.
func TestArtifactOfMapped(t *testing.T) {
	r := newRig(t)
	r.write("m.pt", sample(t, "same/model.pt"))
	f, err := os.OpenFile(r.at("tree", "m.pt"), os.O_RDWR, 0) // as the kernel has it for a mapping
	if err != nil {
		t.Fatal(err)
	}
	ro, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	leases := errors.Is(tree.NoWriters(int(ro.Fd())), tree.ErrInUse)
	ro.Close()
	_, err = r.artifact("m.pt")
	if leases {
		wantErr(r.test, "mapped", err, unix.ENODATA)
	}
	f.Close()
	if id, err := r.artifact("m.pt"); err != nil || id != sameID(t) {
		t.Errorf("%q, %v", id, err)
	}
}
