package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// A daemon without privileges keeps files whose modes deny their owner, which is the daemon's user. Root is
// denied nothing, so root runs this as the user nobody.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t, "^TestUnprivileged$")
		return
	}
	for _, mode := range []uint32{0, 0o444, 0o200, 0o077} {
		t.Run(fmt.Sprintf("%04o", mode), func(t *testing.T) {
			r := newRig(t)
			want := random(300<<10, 1)
			r.mkdir("d")
			h := r.open("d/f", unix.O_RDWR|unix.O_CREAT)
			r.writeAt(h, want, 0)
			r.setattr("d/f", &tree.SetAttr{Mode: &mode})
			check := func(when string) {
				t.Helper()
				r.same("d/f", want) // the kernel would ask for permissions first
				if a := r.stat("d/f"); a.Mode != unix.S_IFREG|mode {
					t.Errorf("%s: mode %o", when, a.Mode)
				}
				if t.Failed() {
					t.Fatal(when)
				}
			}
			check("being written")
			r.release(h)
			r.pack("d/f")
			check("packed")
			r.evictAll()
			check("evicted")
			r.truncate("d/f", 200<<10)
			want = want[:200<<10]
			r.packOut("d/f")
			ts := unix.Timespec{Sec: 5, Nsec: 7}
			if a := r.setattr("d/f", &tree.SetAttr{Mtime: &ts}); a.Mtime != ts {
				t.Errorf("%+v", a)
			}
			r = r.reopen()
			check("reopened")
			r.withoutPacking()
			r.write("d/g", want) // not packed, and denied
			r.setattr("d/g", &tree.SetAttr{Mode: &mode})
			r = r.reopenUnclean()
			check("after a crash")
			r.same("d/g", want)
			r.rename("d/f", "d/h")
			r.link("d/h", "d/i")
			r.unlink("d/h")
			r.same("d/i", want)
			r.unlink("d/i")
			r.unlink("d/g")
			r.onlyRoot()
		})
	}
}

// A directory that its owner may not read costs nothing but itself: the store opens, also after a crash.
func TestUnreadableDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t, "^TestUnreadableDirectory$")
		return
	}
	r := newRig(t)
	want := random(300<<10, 1)
	r.mkdir("d/e")
	r.write("d/e/f", want)
	r.write("g", want)
	r.sync()
	none, all := uint32(0), uint32(0o755)
	for _, reopen := range []func() *rig{func() *rig { return r.reopen() },
		func() *rig { return r.reopenUnclean() }} {
		r.setattr("d", &tree.SetAttr{Mode: &none})
		r = reopen()
		r.same("g", want)
		r.Stats(t.Context()) // whatever it says
		r.setattr("d", &tree.SetAttr{Mode: &all})
		r.same("d/e/f", want)
		if lost, _ := os.ReadDir(r.at("lost+found")); len(lost) != 0 {
			t.Errorf("lost+found: %v", lost)
		}
	}
}

// The same after a boot: what could not be looked at then is not believed later.
func TestUnreadableCaches(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t, "^TestUnreadableCaches$")
		return
	}
	r := newRig(t)
	want := random(300<<10, 1)
	r.mkdir("d")
	r.write("d/f", want)
	r.pack("d/f")
	all := uint32(0o755)
	r.close()
	// it had not reached the disk
	if err := os.WriteFile(r.rawPath("d/f"), make([]byte, len(want)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.rawPath("d"), 0); err != nil {
		t.Fatal(err)
	}
	replace(t, r.at("lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
	r = r.reopenUnclean()
	r = r.reopen()
	r.setattr("d", &tree.SetAttr{Mode: &all})
	r.same("d/f", want)
}

// reopenUnclean opens the store again as if it had not been closed in order.
func (r *rig) reopenUnclean(set ...func(*Options)) *rig {
	r.t.Helper()
	r.close()
	path := r.at("lock")
	b, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`"clean":true`), []byte(`"clean":false`), 1)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	n := openRig(r.test, r.dir, set...)
	if !n.log.has("not closed in order") {
		r.t.Errorf("reported: %s", n.log)
	}
	return n
}

// asNobody runs tests of this binary without privileges.
func asNobody(t *testing.T, run string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptfs-nobody") // TempDir's parents are root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "test")
	if err := errors.Join(os.Chmod(dir, 0o777), copyFile(exe, bin)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.run="+run, "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip("root may not become nobody here")
	}
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
