package inout

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// newElsewhere fills a folder whose store is to be on another disk.
func newElsewhere(m *mounttest.Mount, disk string) *folder {
	f := newFolder(m)
	f.Store = filepath.Join(disk, "store")
	f.want["bad\xffname"] = []byte("x")
	f.put("bad\xffname", f.want["bad\xffname"])
	f.put("holes", append(make([]byte, 3<<20), 1))
	f.Must(os.Truncate(f.Path("holes"), 0))
	f.Must(os.Truncate(f.Path("holes"), 3<<20))
	f.want["holes"] = make([]byte, 3<<20)
	f.Must(unix.Setxattr(f.Path("small.json"), "user.tag", []byte("kept"), 0))
	return f
}

// in is the path of the store's tree.
func (f *folder) in() string { return filepath.Join(f.Store, "tree") }

// A folder is copied into a store on another disk, and stays. Its path is the mount's once that is asked for.
func TestElsewhere(t *testing.T) {
	disk := mounttest.MountDisk(t, "ext4", 300)
	f := newElsewhere(mounttest.Prepare(t, t.TempDir()), disk)
	f.Must(os.Chtimes(f.Path("hard"), time.Unix(1, 0), time.Unix(2, 3)))
	var was, is unix.Stat_t
	f.Must(unix.Stat(f.Path("hard"), &was))
	args := []string{"adopt", "--store", f.Store, f.Dir}
	out := f.Run(args...)
	mounttest.WantSaid(t, out, "has all of "+f.Dir, "the original is kept, "+f.Dir, "--replace")
	f.plainBut("copied", f.Dir, "user.tag")
	f.same("in the store", f.in())
	f.Must(unix.Stat(filepath.Join(f.in(), "runs/link"), &is))
	if is.Mtim != was.Mtim || is.Mode != was.Mode || is.Nlink != 2 {
		t.Errorf("the copy is another: %+v, was %+v", is, was)
	}
	if _, err := os.Lstat(filepath.Join(f.Store, "arriving")); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}

	// What the store has, packed or not, is compared again and not copied.
	at := &mounttest.Mount{T: t, Daemon: &daemon.Daemon{Bin: f.Bin, Store: f.Store, Dir: t.TempDir()}}
	f.Run("mount", at.Store, at.Dir)
	at.Sync()
	at.EvictAll()
	f.same("evicted", at.Dir)
	mounttest.WantSaid(t, f.Run(args...), "has all of "+f.Dir)
	f.put("later", []byte("later"))
	out, code := f.RunFails(args...)
	if code != 8 || !strings.Contains(out, f.Path("later")) || strings.Contains(out, "small.json") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.Must(os.WriteFile(at.Path("later"), []byte("later"), 0o600))
	f.Run("umount", at.Dir)

	replace := append([]string{"adopt", "--replace"}, args[1:]...)
	log, err := os.OpenFile(f.Path("later"), os.O_WRONLY|os.O_APPEND, 0)
	f.Must(err)
	out, code = f.RunFails(replace...)
	if code != 4 || !strings.Contains(out, f.Path("later")) {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.Must(log.Close())
	original := f.Dir + ".original"
	mounttest.WantSaid(t, f.Run(replace...), "is a mount of the store now", original)
	if !f.Mounted() {
		t.Fatal("it is not mounted")
	}
	f.same("replaced", f.Dir)
	f.same("kept", original)
	f.Must(f.Stop())
	mounttest.WantSaid(t, f.Run(args...), "is a mount of "+f.Store, original)
	f.Must(os.RemoveAll(original))
	f.same("without the original", f.Dir)
}

// plainBut fails unless a folder has its files, and no attributes but one.
func (f *folder) plainBut(when, dir, attr string) {
	f.T.Helper()
	f.same(when, dir)
	for name := range f.want {
		b := make([]byte, 1<<10)
		n, err := unix.Getxattr(filepath.Join(dir, name), "user.ckptfs", b)
		if err == nil {
			f.T.Errorf("%s: %s has %q, beside %s", when, name, b[:n], attr)
		}
	}
}

// A folder is copied to a path in a mounted store on another disk.
func TestElsewhereInto(t *testing.T) {
	disk := mounttest.MountDisk(t, "ext4", 300)
	m := mounttest.Prepare(t, t.TempDir())
	m.Store = filepath.Join(disk, "store")
	m.Must(m.Start())
	dir := filepath.Join(filepath.Dir(m.Dir), "folder")
	m.Must(os.Mkdir(dir, 0o755))
	from := newElsewhere(&mounttest.Mount{T: t, Daemon: &daemon.Daemon{Dir: dir}}, t.TempDir())
	m.Must(os.Mkdir(m.Path("runs"), 0o755))
	to := m.Path("runs", "b")
	mounttest.WantSaid(t, m.Run("adopt", dir, "--into", to), to+" has all of "+dir, "the original is kept, "+dir)
	from.same("kept", dir)
	from.same("copied", to)
	m.Sync()
	m.EvictAll()
	from.same("evicted", to)
	mounttest.WantSaid(t, m.Run("adopt", dir, "--into", to), to+" has all of "+dir)
	from.put("later", []byte("later"))
	if out, code := m.RunFails("adopt", dir, "--into", to); code != 8 || !strings.Contains(out, "later") {
		t.Errorf("exit code %d: %s", code, out)
	}
	m.Must(m.Stop())
	m.Must(m.Start())
	delete(from.want, "later")
	from.same("mounted again", to)
}

// Where the store's disk has no room nothing is begun; what cannot be copied is named.
func TestElsewhereRefused(t *testing.T) {
	disk := mounttest.MountDisk(t, "tmpfs", 40)
	f := newElsewhere(mounttest.Prepare(t, t.TempDir()), disk)
	if err := unix.Setxattr(disk, "user.test", []byte("x"), 0); err != nil {
		t.Skip("no attributes on tmpfs here: ", err)
	}
	f.put("big", mounttest.Noise(1, 50<<20))
	out, code := f.RunFails("adopt", "--store", f.Store, f.Dir)
	if code != 1 || !strings.Contains(out, "has ") || !strings.Contains(out, "free") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, err := os.Lstat(f.Store); !os.IsNotExist(err) {
		t.Errorf("a store was made: %v", err)
	}
	f.same("no room", f.Dir)
	f.Must(os.Remove(f.Path("big")))
	delete(f.want, "big")
	f.Must(os.Mkdir(f.Dir+".original", 0o755))
	f.Must(os.WriteFile(f.Dir+".original/x", nil, 0o600))
	out, code = f.RunFails("adopt", "--replace", "--store", f.Store, f.Dir)
	if code != 8 || !strings.Contains(out, ".original") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.Must(unix.Mkfifo(f.Path("pipe"), 0o600))
	out, code = f.RunFails("adopt", "--store", f.Store, f.Dir)
	if code != 7 || !strings.Contains(out, f.Path("pipe")) {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.same("copied", f.in())
	f.same("kept", f.Dir)
	p := mounttest.Begin(t, "", f.Bin, "adopt", "--store", f.Store, f.Dir) // compares
	for _, words := range []string{"level=", "repairing"} {
		if p.Code() != 7 || strings.Contains(p.Text(), words) {
			t.Errorf("exit code %d: %s", p.Code(), p.Text())
		}
	}
	mounttest.WantSaid(t, p.Text(), f.Path("pipe")+": left as it is: no file")

	// A disk is copied if that is asked for, and else not.
	f.Must(os.Remove(f.Path("pipe")))
	out, code = f.RunFails("adopt", disk)
	if code != 8 || !strings.Contains(out, "is a mountpoint") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.Must(os.RemoveAll(f.Store))
	f.Must(os.WriteFile(filepath.Join(disk, "file"), []byte("of a disk"), 0o600))
	store := filepath.Join(t.TempDir(), "store")
	f.Run("adopt", "--store", store, disk)
	if b, err := os.ReadFile(filepath.Join(store, "tree", "file")); string(b) != "of a disk" {
		t.Errorf("%q, %v", b, err)
	}
}

// A mount that fails leaves the original where it was, with what was made there meanwhile.
func TestElsewherePutBack(t *testing.T) {
	disk := mounttest.MountDisk(t, "ext4", 300)
	f := newElsewhere(mounttest.Prepare(t, t.TempDir()), disk)
	out, code := f.RunFails("adopt", "--replace", "-o", "log_file=/proc/none/log", "--store", f.Store, f.Dir)
	if code == 0 || !strings.Contains(out, "which is as it was") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.plainBut("put back", f.Dir, "user.tag")
	if _, err := os.Lstat(f.Dir + ".original"); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
	f.Run("adopt", "--replace", "--store", f.Store, f.Dir)
	f.same("replaced then", f.Dir)
}

// either is where the original is, whole: at its path, or beside it once the store has all of it. The store
// has all of it, or nothing.
func (f *folder) either(when string) (original string) {
	f.T.Helper()
	in := func(dir string) int {
		all, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			f.T.Fatal(err)
		}
		return len(all)
	}
	original = f.Dir
	if in(f.Dir) == 0 {
		original += ".original"
		if in(f.in()) == 0 {
			f.T.Fatalf("%s: the original is moved, and the store has nothing", when)
		}
	} else if n := in(f.Dir + ".original"); n > 0 {
		f.T.Fatalf("%s: %d names are where the original is to go", when, n)
	}
	absolute := f.want["absolute"]
	delete(f.want, "absolute") // leads to the folder's path
	f.same(when, original)
	f.want["absolute"] = absolute
	if in(f.in()) > 0 {
		for name := range f.want {
			if _, err := os.Lstat(filepath.Join(f.in(), name)); err != nil {
				f.T.Fatalf("%s: %v", when, err)
			}
		}
	}
	return original
}

// again ends what was begun, looks at it, and has the folder as it was, without a store.
func (f *folder) again(replace bool) {
	f.T.Helper()
	args := []string{"adopt", "--store", f.Store, f.Dir}
	if replace {
		args = append([]string{"adopt", "--replace"}, args[1:]...)
	}
	f.Run(args...)
	if replace != f.Mounted() {
		f.T.Fatalf("%v: mounted: %v", args, !replace)
	}
	if replace {
		f.same("replaced", f.Dir)
		f.Must(f.Stop())
		if f.either("replaced") == f.Dir {
			f.T.Fatal("the original is not beside the mountpoint")
		}
	} else {
		f.same("copied", f.in())
	}
	f.restore()
}

// restore removes the store, and has the original where it was.
func (f *folder) restore() {
	f.T.Helper()
	if f.either("before it is restored") != f.Dir {
		f.Must(os.Remove(f.Dir))
		f.Must(os.Rename(f.Dir+".original", f.Dir))
	}
	f.Must(os.RemoveAll(f.Store))
}

// An adoption from another disk is killed, with all of its processes, before one of the changes that it
// makes. The original is whole, the store has all of it or nothing, and the next run ends what was begun.
func TestElsewhereKilled(t *testing.T) {
	mounttest.NeedRoot(t, "mounts")
	disk := mounttest.MountDisk(t, "ext4", 300)
	f := newElsewhere(mounttest.PrepareFor(t, t.TempDir(), time.Hour), disk)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills, bound := 0, map[bool]int{false: 200, true: 260}
	for kills < times("CKPTFS_KILLS", 8) {
		replace := rng.IntN(2) == 0
		args := []string{"adopt", "--store", f.Store, f.Dir}
		if replace {
			args = append([]string{"adopt", "--replace"}, args[1:]...)
		}
		for range 1 + rng.IntN(3) { // what is killed is killed again when it goes on
			n := rng.IntN(bound[replace])
			when, killed := f.strike(n, args...)
			t.Logf("%v: %s", replace, when)
			if f.either(when) != f.Dir && !replace {
				t.Fatalf("%s: the original was moved", when)
			}
			if !killed {
				bound[replace] = max(n, 10)
				break
			}
			kills++
			bound[replace] = max(bound[replace], n+n/4)
		}
		f.again(replace || f.either("before the next run") != f.Dir)
	}
	t.Logf("%d kills", kills)
}

// The power of the store's disk is cut while a folder is copied to it. The original is whole, the store has
// all of it or nothing, and the next run ends what was begun.
func TestElsewherePowerCut(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			d := mounttest.NewDisk(t, fstype, 1<<30)
			f := newElsewhere(mounttest.PrepareOn(d), d.Dir)
			f.syncDisk(d)
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
			for range times("CKPTFS_POWERCUTS", 2) {
				replace := rng.IntN(2) == 0
				args := []string{"adopt", "--store", f.Store, f.Dir}
				if replace {
					args = append([]string{"adopt", "--replace"}, args[1:]...)
				}
				when := f.cutShort(d, rng, args...)
				t.Logf("%s: it is in %s", when, f.either(when))
				f.again(replace || f.either(when) != f.Dir)
				f.syncDisk(d)
			}
		})
	}
}
