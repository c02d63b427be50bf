package volume

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// chown(2) of neither owner nor group moves the change time and takes set-user-id away. A write by a user
// outside of the group takes set-group-id of a file that is no executable.
func TestSetattrOfNothing(t *testing.T) {
	r := newRig(t)
	for _, packed := range []bool{false, true} {
		p := fmt.Sprint("f", packed)
		r.write(p, random(100<<10, 1))
		mode := uint32(0o6745)
		r.setattr(p, &tree.SetAttr{Mode: &mode})
		if packed {
			r.packOut(p)
		}
		before := r.stat(p)
		time.Sleep(20 * time.Millisecond) // a tick of the host's clock
		after := r.setattr(p, &tree.SetAttr{})
		if after.Ctime == before.Ctime || after.Mtime != before.Mtime || after.Mode&unix.S_ISUID != 0 {
			t.Errorf("packed %v: mode %o, ctime %v, before %v", packed, after.Mode, after.Ctime, before.Ctime)
		}
		if os.Geteuid() == 0 && after.Mode&unix.S_ISGID == 0 {
			t.Errorf("packed %v: root lost set-group-id: %o", packed, after.Mode)
		}
		a := r.setattr(p, &tree.SetAttr{KillSUID: true, By: &tree.Caller{UID: 1000, GID: before.GID + 1}})
		if a.Mode&unix.S_ISGID != 0 {
			t.Errorf("packed %v: after a write by another: %o", packed, a.Mode)
		}
	}
}

// Reading a hollow file moves its access time as the host's mount with relatime would: not twice, and not for
// O_NOATIME.
func TestAccessTime(t *testing.T) {
	r := newRig(t)
	r.write("f", random(100<<10, 1))
	old := unix.Timespec{Sec: 1_000_000_000}
	r.setattr("f", &tree.SetAttr{Atime: &old, Mtime: &unix.Timespec{Sec: 1_100_000_000}})
	r.packOut("f")
	before := r.stat("f")
	buf := make([]byte, 1000)
	read := func(flags uint32) unix.Timespec {
		t.Helper()
		h := r.open("f", flags)
		defer r.release(h)
		if _, err := h.Read(buf, 0); err != nil {
			t.Fatal(err)
		}
		return r.stat("f").Atime
	}
	if at := read(unix.O_NOATIME); at != old {
		t.Errorf("with O_NOATIME it moved to %v", at)
	}
	first := read(unix.O_RDONLY)
	if first == old {
		t.Error("it stays")
	}
	after := r.stat("f")
	if after.Mtime != before.Mtime || after.Ctime != before.Ctime {
		t.Errorf("other times moved: %v %v, before %v %v", after.Mtime, after.Ctime, before.Mtime, before.Ctime)
	}
	time.Sleep(20 * time.Millisecond)
	r.evictAll()
	if at := read(unix.O_RDONLY); at != first {
		t.Errorf("the next read moved it again, from %v to %v", first, at)
	}
}

// A time that the host cannot hold is shown as the host holds it, packed or not.
func TestTimesAreTheHosts(t *testing.T) {
	r := newRig(t)
	r.write("a", random(100<<10, 1))
	r.write("b", random(100<<10, 1))
	r.packOut("b")
	for _, ts := range []unix.Timespec{{Sec: -1 << 31, Nsec: 5}, {Sec: -1<<31 - 5, Nsec: 5},
		{Sec: -1, Nsec: 5}, {Sec: 1 << 32, Nsec: 7}, {Sec: 8 << 30, Nsec: 999_999_999}} {
		a, b := r.setattr("a", &tree.SetAttr{Mtime: &ts}), r.setattr("b", &tree.SetAttr{Mtime: &ts})
		if a.Mtime != b.Mtime {
			t.Errorf("%v is %v, packed %v", ts, a.Mtime, b.Mtime)
		}
	}
}

// Who removes or moves model.safetensors wants it gone: the view that it hid does not come back.
func TestRemovedFileLeavesNoView(t *testing.T) {
	r := newRig(t)
	for i, take := range []func(p string){
		r.unlink,
		func(p string) { r.rename(p, "elsewhere") },
	} {
		dir := fmt.Sprint("runs/", i)
		r.mkdir(dir)
		r.write(dir+"/m.safetensors", []byte("mine"))
		r.write(dir+"/m.pt", fixture(t, "flat.pt"))
		take(dir + "/m.safetensors")
		if r.exists(dir + "/m.safetensors") {
			t.Errorf("%d: the view came back", i)
		}
		r.write(dir+"/m.pt", fixture(t, "flat.pt")) // another checkpoint has its view
		if !r.exists(dir + "/m.safetensors") {
			t.Errorf("%d: the next file has no view", i)
		}
	}
}

// The daemon's own looking around leaves directories' access times alone.
func TestWalkIsQuiet(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("d/f", random(100<<10, 1))
	old := unix.Timespec{Sec: 1_000_000_000}
	r.setattr("d", &tree.SetAttr{Atime: &old})
	r.sync()
	r.evictAll()
	r = r.reopen()
	r.stats()
	if at := r.stat("d").Atime; at != old {
		t.Errorf("it moved to %v", at)
	}
}
