package volume

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	for _, p := range []string{"writing", "both"} { // the stubs say it too
		if st, err := os.Stat(c.at("tree", p)); err != nil || st.Size() != int64(len(files[p])) {
			t.Errorf("the stub of %s: %v, %v", p, st, err)
		}
	}
	c.sync()
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
		if got := c.names(""); len(got) != len(want) {
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
	content := func(dir string, id tree.ID) string { return tree.NewContent(dir).Path(id) }
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

	t.Run("a stub that its creation left without an attribute", func(t *testing.T) {
		_, want, dir := setup(t)
		write(t, filepath.Join(dir, "tree", "new"), nil)
		r := openRig(t, dir)
		r.same("new", nil)
		r.same("f", want)
		r.write("new", want)
		r.packOut("new")
		r.same("new", want)
	})
	t.Run("a stub of an empty file whose content never came", func(t *testing.T) {
		_, _, dir := setup(t)
		p := filepath.Join(dir, "tree", "new")
		write(t, p, nil)
		if err := tree.WriteRecord(p, &tree.Record{ID: tree.NewID()}); err != nil {
			t.Fatal(err)
		}
		r := openRig(t, dir)
		r.same("new", nil)
		r.patch("new", []byte("x"), 0)
		r.same("new", []byte("x"))
	})
	t.Run("content without a stub", func(t *testing.T) {
		_, want, dir := setup(t)
		full, empty := tree.NewID(), tree.NewID()
		write(t, content(dir, full), []byte("orphan"))
		write(t, content(dir, empty), nil)
		r := openRig(t, dir)
		r.same("f", want)
		if got, err := os.ReadFile(filepath.Join(dir, "lost+found", full.String())); string(got) != "orphan" {
			t.Errorf("%q, %v", got, err)
		}
		r.evictAll()
		if c := r.contents(); len(c) != 0 {
			t.Errorf("content: %v", c)
		}
		if lost, _ := os.ReadDir(filepath.Join(dir, "lost+found")); len(lost) != 1 {
			t.Errorf("lost+found: %v", lost)
		}
	})
	t.Run("a sparse content without a stub", func(t *testing.T) {
		_, _, dir := setup(t)
		id := tree.NewID()
		write(t, content(dir, id), nil)
		if err := os.Truncate(content(dir, id), 1<<20); err != nil {
			t.Fatal(err)
		}
		openRig(t, dir)
		if st, err := os.Stat(filepath.Join(dir, "lost+found", id.String())); err != nil || st.Size() != 1<<20 {
			t.Errorf("a file of a megabyte is gone: %v", err)
		}
	})
	t.Run("an incomplete copy", func(t *testing.T) {
		r, want, _ := setup(t)
		part := r.rawPath("f") + ".part"
		write(t, part, []byte("half"))
		r = r.crashed()
		r.same("f", want)
		r.awaitHydrator()
		for _, c := range r.contents() {
			if strings.HasSuffix(c, ".part") {
				t.Errorf("content: %v", c)
			}
		}
	})
	t.Run("a packed file's content in the same boot", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		c := r.crashed()
		c.want("f", both)
		c.same("f", want)
	})
	t.Run("a packed file's content of another boot", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		dir := r.copyStore()
		id := filepath.Base(r.rawPath("f"))
		// What the page cache had not written yet is zeros.
		write(t, filepath.Join(dir, "content", id[:2], id), make([]byte, len(want)))
		replace(t, filepath.Join(dir, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
		c := openRig(t, dir)
		c.want("f", packed)
		c.same("f", want)
	})
	t.Run("a second crash in the repair after a boot", func(t *testing.T) {
		r, want, _ := setup(t)
		r.hydrateAll()
		dir := r.copyStore()
		id := filepath.Base(r.rawPath("f"))
		write(t, filepath.Join(dir, "content", id[:2], id), make([]byte, len(want)))
		replace(t, filepath.Join(dir, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
		// Killed before it had looked at anything: all that it did is to take the lock.
		l, err := tree.Acquire(dir, time.Now())
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
		raw := r.rawPath("f")
		r.close() // syncs the filesystem before it calls the end clean, so that the cache outlives the boot
		replace(t, filepath.Join(r.dir, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
		c := openRig(t, r.dir)
		c.same("f", want)
		if _, err := os.Stat(raw); err != nil {
			t.Errorf("the cache is gone: %v", err)
		}
	})
	t.Run("a stray file", func(t *testing.T) {
		_, want, dir := setup(t)
		write(t, filepath.Join(dir, "content", ".probe12345"), nil)
		write(t, filepath.Join(dir, "content", "00", "stray"), []byte("x"))
		r := openRig(t, dir)
		r.same("f", want)
		if _, err := r.Stats(t.Context()); err != nil {
			t.Error(err)
		}
	})
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

// The index is derived: without it, or with rubbish in its place, it is made anew.
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
