package volume

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// After a kill -9 every file has the bytes it had, in whatever state it was, and what was not packed is.
func TestCrash(t *testing.T) {
	r := newRig(t)
	files := map[string][]byte{}
	add := func(p string, data []byte) { r.write(p, data); files[p] = data }
	r.mkdir("runs/a")
	add("runs/a/m.pt", fixture(t, "flat.pt"))
	add("evicted", random(300<<10, 1))
	r.packOut("evicted")
	add("both", random(300<<10, 2))
	add("empty", nil)
	add("small", []byte("x"))
	r.sync()
	r.withoutPacking()
	add("queued", random(300<<10, 3))
	r.link("queued", "linked")
	files["linked"] = files["queued"]
	// A writer that was cut off: what write(2) took is there, since the kernel has it.
	h := r.open("writing", unix.O_WRONLY|unix.O_CREAT)
	files["writing"] = random(500<<10, 4)
	r.writeAt(h, files["writing"], 0)
	// One in the middle of a rewrite of a packed file.
	w := r.open("both", unix.O_RDWR)
	r.writeAt(w, []byte("new"), 100)
	copy(files["both"][100:], "new")
	mtime := r.stat("both").Mtime

	c := r.crashed()
	if !c.log.has("not closed in order") {
		t.Errorf("reported: %s", c.log)
	}
	check := func() {
		t.Helper()
		for p, want := range files {
			c.same(p, want)
		}
		if c.stat("linked").Ino != c.stat("queued").Ino {
			t.Error("two files of two names")
		}
		c.same("runs/a/m.safetensors", viewBytes(t, files["runs/a/m.pt"]))
		if got := c.stat("both").Mtime; got != mtime {
			t.Errorf("mtime %v, want %v", got, mtime)
		}
	}
	check()
	c.sync()
	c.awaitHydrator() // what was read above, and was evicted with the others
	for _, p := range []string{"queued", "linked", "writing", "both", "runs/a/m.pt"} {
		c.want(p, both)
	}
	c.evictAll()
	check()
	if lost, _ := os.ReadDir(c.at("lost+found")); len(lost) != 0 {
		t.Errorf("lost+found: %v", lost)
	}
	c = c.reopen()
	if c.log.has("not closed in order") {
		t.Error("recovered after a clean end")
	}
	check()
	r.release(h)
	r.release(w)
}

// The same at many moments of a life, one after the other.
func TestCrashAnywhere(t *testing.T) {
	r := newRig(t)
	data := func(i int) []byte { return random(100<<10, uint64(i)) }
	want := map[string][]byte{}
	steps := []func(){
		func() { r.write("a", data(1)); want["a"] = data(1) },
		func() { r.pack("a") },
		func() { r.evictAll() },
		func() { r.hydrateAll() },
		func() { r.patch("a", []byte("new"), 5); want["a"] = slicesReplace(data(1), 5, "new") },
		func() { r.packOut("a") },
		func() { r.write("b", data(2)); want["b"] = data(2) },
		func() { r.rename("b", "a"); want["a"] = want["b"]; delete(want, "b") },
		func() { r.packOut("a") },
		func() { r.link("a", "c"); want["c"] = want["a"] },
		func() { r.unlink("a"); delete(want, "a") },
		func() { r.write("c", data(3)); want["c"] = data(3) },
		func() { r.truncate("c", 70<<10); want["c"] = data(3)[:70<<10] },
		func() { r.packOut("c") },
		func() { r.truncate("c", 0); want["c"] = nil },
		func() { r.unlink("c"); delete(want, "c") },
	}
	for i, step := range steps {
		step()
		c := r.crashed()
		for p, data := range want {
			c.same(p, data)
		}
		if got := c.listing(""); len(got) != len(want) {
			t.Errorf("names: %v", got)
		}
		c.sync()
		c.evictAll()
		for p, data := range want {
			c.same(p, data)
		}
		c.close()
		if lost, _ := os.ReadDir(c.at("lost+found")); len(lost) != 0 {
			t.Errorf("lost+found: %v", lost)
		}
		if t.Failed() {
			t.Fatalf("after step %d", i)
		}
	}
}

func slicesReplace(p []byte, off int, s string) []byte {
	copy(p[off:], s)
	return p
}

// Repairs after an unclean end, each on what a crash at its moment leaves.
func TestRepairs(t *testing.T) {
	write := func(t *testing.T, path string, p []byte) {
		t.Helper()
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	setup := func(t *testing.T) (r *rig, want []byte, dir string) {
		r = newRig(t)
		want = random(300<<10, 1)
		r.write("f", want)
		r.packOut("f")
		return r, want, r.copyStore()
	}

	otherBoot := func(t *testing.T, dir string) {
		t.Helper()
		replace(t, filepath.Join(dir, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
	}

	t.Run("an empty file", func(t *testing.T) {
		_, want, dir := setup(t)
		write(t, filepath.Join(dir, "tree", "new"), nil)
		r := openRig(t, dir)
		r.same("new", nil)
		r.same("f", want)
		r.write("new", want)
		r.packOut("new")
		r.same("new", want)
	})
	t.Run("emptying was cut off", func(t *testing.T) {
		_, want, dir := setup(t)
		p := filepath.Join(dir, "tree", "new")
		write(t, p, want)
		if err := tree.WriteRecord(p, &tree.Record{Emptying: true}); err != nil {
			t.Fatal(err)
		}
		r := openRig(t, dir)
		r.same("new", nil)
		r.patch("new", []byte("x"), 0)
		r.same("new", []byte("x"))
		r.reopen().same("new", []byte("x"))
	})
	t.Run("hydration was cut off", func(t *testing.T) {
		r, want, dir := setup(t)
		mtime := r.stat("f").Mtime
		patchFile(t, filepath.Join(dir, "tree", "f"), make([]byte, 200<<10))
		c := openRig(t, dir)
		c.want("f", packed)
		c.hollow("f")
		c.same("f", want)
		if got := c.stat("f").Mtime; got != mtime {
			t.Errorf("mtime %v, want %v", got, mtime)
		}
		c.patch("f", []byte("x"), 0)
		copy(want, "x")
		c.same("f", want)
	})
	t.Run("packed, in the same boot", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		c := r.crashed()
		c.want("f", both)
		c.same("f", want)
	})
	// what the page cache had not written yet is zeros, or missing
	for _, left := range []int{300 << 10, 100 << 10, 0} {
		t.Run(fmt.Sprintf("packed, in another boot, %d bytes left", left), func(t *testing.T) {
			r, want, _ := setup(t)
			r.hydrateAll()
			mtime := r.stat("f").Mtime
			dir := r.copyStore()
			write(t, filepath.Join(dir, "tree", "f"), make([]byte, left))
			otherBoot(t, dir)
			c := openRig(t, dir)
			c.want("f", packed)
			c.hollow("f")
			c.same("f", want)
			if got := c.stat("f").Mtime; got != mtime {
				t.Errorf("mtime %v, want %v", got, mtime)
			}
		})
	}
	t.Run("packed, after another mount", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		dir := r.copyStore()
		write(t, filepath.Join(dir, "tree", "f"), make([]byte, len(want)))
		replace(t, filepath.Join(dir, "lock"), fmt.Sprintf(`"mount":%d`, tree.MountID(dir)), `"mount":7`)
		c := openRig(t, dir)
		c.want("f", packed)
		c.same("f", want)
	})
	t.Run("a second crash in the repair after a boot", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		dir := r.copyStore()
		write(t, filepath.Join(dir, "tree", "f"), make([]byte, len(want)))
		otherBoot(t, dir)
		// Killed before it had looked at anything: all that it did is to take the lock.
		d, err := tree.OpenStore(dir, false)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		l, err := tree.Acquire(d, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadFile(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(false); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "lock"), left)
		c := openRig(t, dir)
		c.same("f", want)
	})
	t.Run("a torn lock line", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		dir := r.copyStore()
		write(t, filepath.Join(dir, "lock"), []byte(`{"host":"h","pi`))
		c := openRig(t, dir)
		c.same("f", want)
		if !c.log.has("not closed in order") {
			t.Errorf("reported: %s", c.log)
		}
	})
	t.Run("a clean end in another boot", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		r.close() // syncs the filesystem before it calls the end clean, so that the bytes outlive the boot
		otherBoot(t, r.dir)
		c := openRig(t, r.dir)
		c.same("f", want)
		c.want("f", both)
	})
}

// patchFile writes over the first bytes of a file past the volume.
func patchFile(t *testing.T, path string, p []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(p)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A store that was copied without attributes has files that are not what they seem. To open one is an error,
// which is logged. The header of each file keeps what it was.
func TestCopiedWithoutAttributes(t *testing.T) {
	r := newRig(t)
	want := random(300<<10, 1)
	r.write("f", want)
	r.write("whole", want)
	r.packOut("f")
	r.evictAll()
	if _, err := r.Hydrate(t.Context(), "whole", nil); err != nil {
		t.Fatal(err)
	}
	rec := r.recordOf("f")
	r.close()
	for _, p := range []string{"f", "whole"} {
		if err := unix.Removexattr(r.at("tree", p), tree.XattrName); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // by the open, and by the packing that comes first
		r = r.reopen()
		r.same("whole", want) // it is resident
		for _, flags := range []uint32{unix.O_RDONLY, unix.O_RDWR} {
			_, err := r.openFile("f", flags)
			wantErr(t, "open", err, unix.EIO)
		}
		r.sync()
		if !r.log.has("damaged", "path f ", "xattrs") {
			t.Errorf("reported: %s", r.log)
		}
		if r.recordOf("f") != (tree.Record{}) {
			t.Error("it has a record")
		}
	}
	b, err := os.ReadFile(r.at("tree", "f"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := tree.DecodeHeader(b)
	if err != nil || h.Record != rec || h.Size != int64(len(want)) || h.Store != r.content.ID {
		t.Fatalf("%+v, %v", h, err)
	}
	r.close()
	if err := tree.WriteRecord(r.at("tree", "f"), &h.Record); err != nil {
		t.Fatal(err)
	}
	r = r.reopen()
	r.same("f", want)
}

// A program may write what a hollow file looks like.
func TestLiteralHeader(t *testing.T) {
	for _, size := range []int{tree.HeaderSize, 5000, 100 << 10, 300 << 10} {
		r := newRig(t)
		h := tree.Header{Store: r.content.ID, Record: tree.Record{Manifest: [32]byte{1}, Hollow: true},
			Size: int64(size)}
		head := h.Encode()
		want := append(head[:], random(size, 1)...)[:size]
		r.write("f", want)
		r.same("f", want)
		r.sync()
		for range 2 {
			r.same("f", want)
			r = r.reopen()
			r.sync()
		}
		r.evictAll()
		r.same("f", want)
		r.patch("f", []byte("other"), 0)
		copy(want, "other")
		r.sync()
		r = r.reopen()
		r.same("f", want)
		if rec := r.recordOf("f"); size < 64<<10 && rec != (tree.Record{}) { // it stays as it is
			t.Errorf("%d bytes: %+v", size, rec)
		}
	}
}

// recordOf is what the file's attribute says.
func (r *rig) recordOf(p string) tree.Record {
	r.t.Helper()
	rec, err := tree.ReadRecord(r.at("tree", p))
	if err != nil && !errors.Is(err, tree.ErrNoRecord) {
		r.t.Fatal(err)
	}
	return rec
}

func replace(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		t.Fatalf("no %q in %q", old, b)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte(old), []byte(new)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The index is derived: when it is missing or rubbish, it is made again.
func TestIndexDeleted(t *testing.T) {
	for _, how := range []string{"deleted", "rubbish", "empty", "deleted after a crash"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			var want [5][]byte
			for i := range want {
				want[i] = random(300<<10, uint64(i))
				r.write(fmt.Sprint("f", i), want[i])
				r.packOut(fmt.Sprint("f", i))
			}
			dir := r.dir
			if how == "deleted after a crash" {
				dir = r.copyStore()
			} else {
				r.close()
			}
			path := filepath.Join(dir, "index.db")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			switch how {
			case "rubbish":
				replaceFile(t, path, random(64<<10, 9))
			case "empty":
				replaceFile(t, path, nil)
			}
			r = openRig(t, dir)
			for i := range want {
				r.same(fmt.Sprint("f", i), want[i])
			}
			r.write("again", want[2])
			r.packOut("again")
			s, err := r.Stats(t.Context())
			if err != nil || s.UniqueBytes != 5*300<<10 {
				t.Errorf("stored twice: %+v, %v", s, err)
			}
		})
	}
}

func replaceFile(t *testing.T, path string, p []byte) {
	t.Helper()
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
}

// After another boot a local copy is not believed. It stays as long as nothing else is left of the file.
func TestBytesWithoutManifestStay(t *testing.T) {
	r := newRig(t)
	data := random(300<<10, 1)
	r.write("f", data)
	r.pack("f")
	h, _ := r.manifestOf("f")
	r.damage(h)
	dir := r.copyStore()
	replace(t, filepath.Join(dir, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
	after := openRig(t, dir)
	after.want("f", packed)
	if _, err := after.openFile("f", unix.O_RDONLY); err == nil {
		t.Error("opened")
	}
	got, err := os.ReadFile(after.at("tree/f"))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("the bytes went: %v", err)
	}
}

// A file whose truncation was cut off is empty for readers of a store that is open for reading only.
func TestEmptyingReadOnly(t *testing.T) {
	r := newRig(t)
	r.write("f", random(300<<10, 1))
	r.packOut("f")
	fail := true
	r.content.Step = func(what string) error {
		if what == "empty: truncate" && fail {
			return errStop
		}
		return nil
	}
	_, err := r.openFile("f", unix.O_WRONLY|unix.O_TRUNC)
	wantErr(t, "open", err, errStop)
	r.close()
	if rec := r.recordOf("f"); !rec.Emptying {
		t.Fatalf("%+v", rec)
	}
	ro := openRig(t, r.dir, func(o *Options) { o.ReadOnly, o.Create = true, false })
	<-ro.surveyed
	if a := ro.stat("f"); a.Size != 0 || a.Blocks != 0 {
		t.Errorf("%+v", a)
	}
	ro.same("f", nil)
	ro.close()
	if rec := r.recordOf("f"); !rec.Emptying {
		t.Errorf("a reader finished it: %+v", rec)
	}
	w := openRig(t, r.dir)
	w.same("f", nil)
	w.sync()
	if rec := w.recordOf("f"); rec != (tree.Record{}) {
		t.Errorf("%+v", rec)
	}
}
