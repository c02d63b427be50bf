package volume

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

var errStop = errors.New("stopped here")

// A transition that is cut off before any of its changes on the disk, by an error, a kill -9 or the power,
// leaves the file's bytes and times as they were, or as they were to be.
func TestCutOff(t *testing.T) {
	old := random(300<<10+17, 1)
	patched := append([]byte("new"), old[3:]...)
	writer := func(r *rig, flags uint32, off int64) error {
		h, err := r.openFile("f", flags)
		if err == nil {
			r.writeAt(h, []byte("new"), off)
			r.release(h)
		}
		return err
	}
	truncate := func(r *rig) error {
		h, err := r.openFile("f", unix.O_WRONLY|unix.O_TRUNC)
		if err == nil {
			r.release(h)
		}
		return err
	}
	byHand := func(do func(r *rig, n *names.Node) error) func(r *rig) error {
		return func(r *rig) error {
			n := r.find("f")
			defer r.forget(n)
			return do(r, n)
		}
	}
	for name, c := range map[string]struct {
		from string
		do   func(r *rig) error
		new  []byte // nil: as it was, with its times
	}{
		"pack": {resident, func(r *rig) error { return r.packQuietly("f") }, nil},
		"evict": {both,
			byHand(func(r *rig, n *names.Node) error { _, err := n.File().Evict(); return err }), nil},
		"hydrate": {packed,
			byHand(func(r *rig, n *names.Node) error { _, err := n.File().Hydrate(); return err }), nil},
		"write, resident":       {both, func(r *rig) error { return writer(r, unix.O_RDWR, 0) }, patched},
		"write, hollow":         {packed, func(r *rig) error { return writer(r, unix.O_RDWR, 0) }, patched},
		"truncate, resident":    {both, truncate, []byte{}},
		"truncate, hollow":      {packed, truncate, []byte{}},
		"truncate and write":    {packed, func(r *rig) error { return writer(r, unix.O_RDWR|unix.O_TRUNC, 0) }, []byte("new")},
		"touch, out of range":   {packed, byHand(touchFar), nil},
		"another name and back": {packed, func(r *rig) error { r.rename("f", "g"); r.rename("g", "f"); return nil }, nil},
	} {
		for k := 0; ; k++ {
			steps := 0
			t.Run(fmt.Sprintf("%s %d", name, k), func(t *testing.T) {
				r := newRig(t)
				var armed atomic.Bool
				r.content.Step = func(string) error {
					if !armed.Load() {
						return nil
					}
					if steps++; steps > k {
						return errStop
					}
					return nil
				}
				r.withoutPacking()
				r.write("f", old)
				mtime := unix.Timespec{Sec: 1234567890, Nsec: 987654321}
				r.setattr("f", &tree.SetAttr{Mtime: &mtime})
				if c.from != resident {
					if err := r.packQuietly("f"); err != nil {
						t.Fatal(err)
					}
				}
				if c.from == packed {
					r.evictAll()
				}
				r.want("f", c.from)
				before := r.stat("f")
				armed.Store(true)
				err := c.do(r)
				armed.Store(false)
				if steps > k && err != nil && !errors.Is(err, errStop) {
					t.Errorf("stopped with %v", err)
				}
				left := r.recordOf("f")
				check := func(r *rig, what string) {
					t.Helper()
					got, a := r.read("f"), r.stat("f")
					switch {
					case bytes.Equal(got, old):
						if name != "touch, out of range" && a.Mtime != before.Mtime {
							t.Errorf("%s: mtime %v, was %v", what, a.Mtime, before.Mtime)
						}
						if c.new == nil && name[0] != 't' && name[0] != 'a' && a.Ctime != before.Ctime &&
							left.Packed() {
							t.Errorf("%s: ctime %v, was %v", what, a.Ctime, before.Ctime)
						}
					case c.new == nil || !bytes.Equal(got, c.new):
						if c.new == nil || len(got) != 0 { // emptied, and not yet written
							r.equal(what, got, c.new)
						}
					}
					if a.Size != int64(len(got)) {
						t.Errorf("%s: size %d of %d bytes", what, a.Size, len(got))
					}
				}
				dir, boot := r.copyStore(), r.copyStore()
				check(r, "in the same process")
				check(openRig(t, dir), "killed")
				if left.Packed() {
					// After a power cut the bytes of a packed file are whatever they are.
					patchFile(t, filepath.Join(boot, "tree", "f"), make([]byte, 1000))
				}
				replace(t, filepath.Join(boot, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
				c := openRig(t, boot)
				check(c, "without power")
				c.sync()
				c.evictAll()
				check(c, "packed again")
				c.hydrateAll()
				check(c, "hydrated again")
			})
			if steps <= k {
				break // it ran to its end
			}
			if t.Failed() {
				return
			}
		}
	}
}

// touchFar sets a time that no record holds.
func touchFar(r *rig, n *names.Node) error {
	far := unix.Timespec{Sec: 10_000_000_000}
	_, err := r.Setattr(n, &tree.SetAttr{Mtime: &far})
	return err
}

// A time that no record holds makes a file plain, and keeps it so.
func TestFarTimes(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		r := newRig(t)
		want := random(300<<10, 1)
		r.write("f", want)
		r.bring("f", state)()
		far := unix.Timespec{Sec: 10_000_000_000}
		a := r.setattr("f", &tree.SetAttr{Mtime: &far})
		if a.Mtime != far {
			t.Skipf("the host has no such times: %+v", a)
		}
		r.sync()
		r.want("f", resident)
		r.same("f", want)
		near := unix.Timespec{Sec: 5}
		r.setattr("f", &tree.SetAttr{Mtime: &near})
		r.patch("f", want[:1], 0)
		r.pack("f")
	}
}

// What moves a file's change time does so in every state, and nothing else does.
func TestChangeTime(t *testing.T) {
	r := newRig(t)
	r.write("f", random(300<<10, 1))
	r.packOut("f")
	last := r.stat("f").Ctime
	mode, uid := uint32(0o600), r.me.UID
	for _, c := range []struct {
		what  string
		do    func()
		moves bool
	}{
		{"nothing", func() {}, false},
		{"hydrate", r.hydrateAll, false},
		{"read", func() { r.read("f") }, false},
		{"evict", r.evictAll, false},
		{"chmod", func() { r.setattr("f", &tree.SetAttr{Mode: &mode}) }, true},
		{"chown", func() { r.setattr("f", &tree.SetAttr{UID: &uid}) }, true},
		{"utimes", func() { ts := unix.Timespec{Sec: 5}; r.setattr("f", &tree.SetAttr{Mtime: &ts}) }, true},
		{"hydrate", r.hydrateAll, false},
		{"link", func() { r.link("f", "g") }, true},
		{"unlink", func() { r.unlink("g") }, true},
		{"rename", func() { r.rename("f", "g"); r.rename("g", "f") }, true},
		{"exchange", func() {
			r.write("h", nil)
			for range 2 {
				if err := r.tryRename("f", "h", unix.RENAME_EXCHANGE); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
		{"setxattr", func() {
			n := r.find("f")
			defer r.forget(n)
			if err := r.SetXattr(n, "user.a", []byte("b"), 0); err != nil {
				t.Skip(err)
			}
		}, true},
		{"evict", r.evictAll, false},
		{"start", func() { r = r.reopen() }, false},
	} {
		c.do()
		a := r.stat("f")
		if moved := a.Ctime != last; moved != c.moves {
			t.Errorf("%s: the change time was %v and is %v", c.what, last, a.Ctime)
		}
		last = a.Ctime
	}
}

// Nothing is written for a small file but the file: no record, whatever is done to it.
func TestSmallFilesHaveNoRecord(t *testing.T) {
	r := newRig(t)
	var ops int
	r.content.Step = func(string) error { ops++; return nil }
	for i := range 100 {
		p := fmt.Sprint("f", i)
		r.write(p, random(4<<10, uint64(i)))
		if i%2 == 0 {
			r.patch(p, []byte("x"), 1)
		}
		n := r.find(p)
		n.File().Lock()
		if n.File().StateLocked().Dirty {
			t.Errorf("%s is to be packed", p)
		}
		n.File().Unlock()
		if waiting := r.pendingPaths(); len(waiting) > 0 {
			t.Errorf("%q wait to be packed", waiting)
		}
		if a := r.stat(p); !a.Settled {
			t.Errorf("%+v", a)
		}
		r.forget(n)
		if names, err := unix.Listxattr(r.at("tree", p), nil); err != nil || names != 0 {
			t.Errorf("%s has attributes: %d, %v", p, names, err)
		}
	}
	r.sync()
	if ops != 0 {
		t.Errorf("%d steps", ops)
	}
	r = r.reopen()
	r.sync()
	for i := range 100 {
		if (r.recordOf(fmt.Sprint("f", i)) != tree.Record{}) {
			t.Errorf("f%d has a record", i)
		}
	}
}

// A writer gets a file when the disk knows that no manifest speaks for it any more: what it overwrites and
// makes durable by fdatasync would be lost else.
func TestRecordGoesDurably(t *testing.T) {
	r := newRig(t)
	r.write("f", random(300<<10, 1))
	r.packOut("f")
	var steps []string
	r.content.Step = func(what string) error {
		if what == "unpack: sync record" {
			if rec := r.recordOf("f"); rec.Packed() {
				t.Error("the record is there")
			}
		}
		steps = append(steps, what)
		return nil
	}
	h := r.open("f", unix.O_RDWR)
	defer r.release(h)
	if len(steps) == 0 || steps[len(steps)-1] != "unpack: sync record" {
		t.Errorf("%q", steps)
	}
}

// A file that is emptied under its readers, at the second attempt, is read by its new bytes from then on, in
// whatever state.
func TestEmptiedAtTheSecondAttempt(t *testing.T) {
	r := newRig(t)
	r.write("f", random(300<<10, 1))
	r.packOut("f")
	reader := r.open("f", unix.O_RDONLY)
	defer r.release(reader)
	r.content.Step = func(what string) error {
		if what == "empty: truncate" {
			return errStop
		}
		return nil
	}
	if _, err := r.openFile("f", unix.O_WRONLY|unix.O_TRUNC); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	r.content.Step = func(string) error { return nil }
	want := random(300<<10, 2)
	h := r.open("f", unix.O_WRONLY|unix.O_TRUNC)
	r.writeAt(h, want, 0)
	r.release(h)
	r.pack("f")
	r.evictAll()
	r.want("f", packed)
	got, err := r.readHandle(reader)
	if err != nil {
		t.Fatal(err)
	}
	r.equal("the reader", got, want)
}
