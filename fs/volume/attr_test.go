package volume

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// What stat(2) shows stays over packing, eviction, hydration, forgetting and a new start. Blocks may differ:
// there are some as long as the file has bytes.
func TestStatStays(t *testing.T) {
	r := newRig(t)
	r.write("f", random(300<<10, 1))
	mtime := unix.Timespec{Sec: 1234567890, Nsec: 123456789}
	r.setattr("f", &tree.SetAttr{Mtime: &mtime, Atime: &mtime})
	mode := uint32(0o640)
	r.setattr("f", &tree.SetAttr{Mode: &mode})
	first := r.stat("f")
	if first.Mtime != mtime || first.Atime != mtime || first.Mode != unix.S_IFREG|mode ||
		first.Size != 300<<10 || first.Nlink != 1 {
		t.Fatalf("%+v", first)
	}
	check := func(when string) {
		t.Helper()
		a := r.stat("f")
		if a.Blocks == 0 {
			t.Errorf("%s: no blocks", when)
		}
		if a.Ino != first.Ino || a.Size != first.Size || a.Mode != first.Mode || a.Nlink != first.Nlink ||
			a.UID != first.UID || a.GID != first.GID || a.Mtime != first.Mtime || a.Atime != first.Atime ||
			a.Ctime != first.Ctime {
			t.Errorf("%s: %+v, was %+v", when, a, first)
		}
	}
	r.pack("f")
	check("packed")
	if !r.stat("f").Settled {
		t.Error("a packed file is not settled")
	}
	r.evictAll()
	check("evicted")
	r.hydrateAll()
	check("hydrated")
	r.release(r.open("f", unix.O_RDWR))
	first.Ctime = r.stat("f").Ctime // the record went
	check("opened for writing and not written")
	r.packOut("f")
	check("packed again")
	r = r.reopen()
	check("reopened")
	r = r.crashed()
	first.Ino = r.stat("f").Ino // of the copy
	check("after a crash")
}

func (r *rig) setattr(p string, s *tree.SetAttr) tree.Attr {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	a, err := r.Setattr(n, s)
	if err != nil {
		r.t.Fatalf("setattr %s: %v", p, err)
	}
	return a
}

// Times are kept to the nanosecond in every state, also once the file is written again.
func TestTimes(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			r.write("f", random(300<<10, 1))
			done := r.bring("f", state)
			ts := unix.Timespec{Sec: 987654321, Nsec: 987654321}
			if a := r.setattr("f", &tree.SetAttr{Mtime: &ts}); a.Mtime != ts {
				t.Errorf("%+v", a)
			}
			done()
			if a := r.stat("f"); a.Mtime != ts {
				t.Errorf("%+v", a)
			}
			h := r.open("f", unix.O_RDWR)
			if a := r.stat("f"); a.Mtime != ts {
				t.Errorf("opened for writing: %+v", a)
			}
			before := time.Now().Add(-time.Second)
			r.writeAt(h, []byte("x"), 0)
			if a := r.stat("f"); time.Unix(a.Mtime.Unix()).Before(before) {
				t.Errorf("written: %+v", a)
			}
			r.release(h)
			now := unix.Timespec{Nsec: unix.UTIME_NOW}
			r.setattr("f", &tree.SetAttr{Mtime: &ts})
			if a := r.setattr("f", &tree.SetAttr{Atime: &now}); a.Mtime != ts ||
				time.Unix(a.Atime.Unix()).Before(before) {
				t.Errorf("%+v", a)
			}
			r.packOut("f")
			if a := r.stat("f"); a.Mtime != ts {
				t.Errorf("packed: %+v", a)
			}
		})
	}
}

func TestModes(t *testing.T) {
	r := newRig(t)
	want := random(100<<10, 1)
	for _, mode := range []uint32{0, 0o444, 0o200, 0o7777} {
		h := r.open("f", unix.O_RDWR|unix.O_CREAT)
		r.writeAt(h, want, 0)
		r.setattr("f", &tree.SetAttr{Mode: &mode}) // before it is packed
		r.release(h)
		r.packOut("f")
		r.same("f", want)
		if a := r.stat("f"); a.Mode != unix.S_IFREG|mode {
			t.Errorf("mode %o, want %o", a.Mode, mode)
		}
		r = r.reopen()
		r.same("f", want)
		if a := r.stat("f"); a.Mode != unix.S_IFREG|mode {
			t.Errorf("mode %o, want %o", a.Mode, mode)
		}
		r.unlink("f")
	}
}

func TestChown(t *testing.T) {
	r := newRig(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	want := random(100<<10, 1)
	r.write("f", want)
	uid, gid := uint32(1234), uint32(1235)
	if a := r.setattr("f", &tree.SetAttr{UID: &uid}); a.UID != uid || a.GID != r.me.GID {
		t.Errorf("%+v", a)
	}
	r.packOut("f")
	if a := r.setattr("f", &tree.SetAttr{GID: &gid}); a.UID != uid || a.GID != gid {
		t.Errorf("%+v", a)
	}
	r.same("f", want)
}

func TestXattrs(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("f", random(100<<10, 1))
	n := r.find("f")
	set := func(name, value string, flags int) error { return r.SetXattr(n, name, []byte(value), flags) }
	get := func(name string) string {
		t.Helper()
		var b [100]byte
		k, err := r.GetXattr(t.Context(), n, name, b[:])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return string(b[:max(k, 0)])
	}
	if err := set("user.metric.loss", "0.31", 0); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "XATTR_CREATE", set("user.metric.loss", "", unix.XATTR_CREATE), unix.EEXIST)
	wantErr(t, "XATTR_REPLACE", set("user.other", "", unix.XATTR_REPLACE), unix.ENODATA)
	r.packOut("f")
	if got := get("user.metric.loss"); got != "0.31" {
		t.Errorf("%q", got)
	}
	if k, err := r.GetXattr(t.Context(), n, "user.metric.loss", nil); k != 4 || err != nil {
		t.Errorf("length: %d, %v", k, err)
	}
	_, err := r.GetXattr(t.Context(), n, "user.metric.loss", make([]byte, 1))
	wantErr(t, "too little room", err, unix.ERANGE)

	var list [100]byte
	k, err := r.ListXattr(n, list[:], true)
	if got := string(list[:max(k, 0)]); err != nil || got != "user.metric.loss\x00" {
		t.Errorf("%q, %v", got, err)
	}
	if k, err := r.ListXattr(n, nil, true); k != 17 || err != nil {
		t.Errorf("length of the list: %d, %v", k, err)
	}
	_, err = r.ListXattr(n, list[:1], true)
	wantErr(t, "too little room", err, unix.ERANGE)

	for _, name := range []string{"user.ckptfs", "user.ckptfs.x", "trusted.ckptfs"} {
		_, err := r.GetXattr(t.Context(), n, name, nil)
		wantErr(t, name, err, unix.ENODATA)
		wantErr(t, name, set(name, "x", 0), unix.EPERM)
		wantErr(t, name, r.RemoveXattr(n, name), unix.EPERM)
	}
	for _, name := range []string{"security.selinux", "security.capability", "system.posix_acl_access"} {
		_, err := r.GetXattr(t.Context(), n, name, nil)
		wantErr(t, name, err, unix.EOPNOTSUPP)
		wantErr(t, name, set(name, "x", 0), unix.EOPNOTSUPP)
		wantErr(t, name, r.RemoveXattr(n, name), unix.EOPNOTSUPP)
	}
	h := r.open("f", unix.O_RDONLY)
	r.unlink("f")
	if got := get("user.metric.loss"); got != "0.31" {
		t.Errorf("unlinked: %q", got)
	}
	if err := r.RemoveXattr(n, "user.metric.loss"); err != nil {
		t.Error(err)
	}
	_, err = r.GetXattr(t.Context(), n, "user.metric.loss", nil)
	wantErr(t, "removed", err, unix.ENODATA)
	r.release(h)
	r.forget(n)

	n = r.find("d")
	defer r.forget(n)
	if err := set("user.parent", "runs/a/3", 0); err != nil || get("user.parent") != "runs/a/3" {
		t.Errorf("a directory's: %v", err)
	}
}

// Attributes of no kind but user.* and trusted.* reach the host, whose own of system.* it takes from root.
func TestXattrKinds(t *testing.T) {
	r := newRig(t)
	r.write("f", nil)
	n := r.find("f")
	defer r.forget(n)
	if err := os.Remove(r.at("tree/f")); err != nil { // what reaches the host finds nothing
		t.Fatal(err)
	}
	for name, want := range map[string]error{"user.a": unix.ENOENT, "trusted.a": unix.ENOENT,
		"system.nfs4_acl": unix.EOPNOTSUPP, "system.foo": unix.EOPNOTSUPP, "security.foo": unix.EOPNOTSUPP,
		"system.posix_acl_default": unix.EOPNOTSUPP, "foo": unix.EOPNOTSUPP, "user": unix.EOPNOTSUPP} {
		_, err := r.GetXattr(t.Context(), n, name, nil)
		wantErr(t, "get "+name, err, want)
		wantErr(t, "set "+name, r.SetXattr(n, name, []byte("x"), 0), want)
		wantErr(t, "remove "+name, r.RemoveXattr(n, name), want)
	}
}
