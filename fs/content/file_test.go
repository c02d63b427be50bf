package content

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What the parts of a volume are told while a file is written, packed, evicted, read and written again.
func TestEvents(t *testing.T) {
	r := newRig(t)
	told := func(after string, told ...string) {
		t.Helper()
		r.events.want(t, after, told...)
	}
	data := random(100<<10, 1)
	w := r.open("f", unix.O_RDWR)
	told("the first writer", "f writing true")
	w2 := r.open("f", unix.O_WRONLY)
	told("the second writer")
	if _, err := w.Write(data, 0); err != nil {
		t.Fatal(err)
	}
	w2.Release()
	told("not the last close")
	w.Release()
	told("the last close", "f writing false", "f dirty", "f idle")
	r.pack("f")
	told("packed", "f resident 102400", "f packed")
	r.same("f", data)
	told("read", "f opened 1", "f idle")
	if skip, err := r.file("f").Evict(); skip != "" || err != nil {
		t.Fatal(skip, err)
	}
	told("evicted", "f resident 0")
	r.same("f", data)
	told("read packed", "f opened 2", "f closed 102400", "f idle")
	if n, err := r.file("f").Hydrate(); n != 100<<10 || err != nil {
		t.Fatal(n, err)
	}
	told("hydrated", "f resident 102400")
	r.open("f", unix.O_WRONLY).Release()
	told("opened for writing", "f unpacked", "f resident 0", "f writing true", "f writing false", "f dirty", "f idle")
	r.want("f", "plain")
	r.same("f", data)
	told("read plain", "f idle")
}

// A file that was made plain for a writer that could not come has no last close: it is packed all the same.
// One that could not be made plain durably is packed still.
func TestWriterThatFails(t *testing.T) {
	unsynced := func(r *rig) {
		r.Step = func(what string) error {
			if what == "unpack: sync record" {
				return unix.EMFILE
			}
			return nil
		}
	}
	open := func(f *File) error { _, err := f.Open(unix.O_RDWR, 0); return err }
	for name, c := range map[string]struct {
		fail func(r *rig)
		do   func(f *File) error
		is   string // what it is then
	}{
		"opened":       {unsynced, open, "packed"},
		"opened again": {func(r *rig) { r.known["f"].unwritable.Store(true) }, open, "plain"},
		"truncated": {unsynced, func(f *File) error {
			f.Lock()
			defer f.Unlock()
			return f.ResizeLocked(70 << 10)
		}, "packed"},
	} {
		r := newRig(t)
		r.write("f", random(100<<10, 1))
		r.pack("f")
		r.events.told = nil
		c.fail(r)
		if err := c.do(r.file("f")); err != unix.EMFILE {
			t.Errorf("%s: %v", name, err)
		}
		told := []string{"f unpacked", "f resident 0"}
		if c.is == "plain" {
			told = append(told, "f dirty")
		}
		r.events.want(t, name, told...)
		r.want("f", c.is)
	}
}

// A file that is small and no checkpoint stays as it is, from the limit on it is packed.
func TestSmallFile(t *testing.T) {
	for _, c := range []struct {
		size int
		told string
	}{{smallFile - 1, "f plain"}, {smallFile, "f dirty"}} {
		r := newRig(t)
		r.write("f", random(c.size, 1))
		r.events.want(t, "written", "f writing true", "f writing false", c.told, "f idle")
		if packed, want := r.pack("f"), c.size >= smallFile; packed != want {
			t.Errorf("%d bytes: packed: %v", c.size, packed)
		}
	}
}
