package inout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
	"ckptfs/integration/recipe"
)

// immutable sets the flag of a file that nobody may change, or takes it away.
func (f *folder) immutable(path string, is bool) error {
	file, err := os.Open(path)
	f.Must(err)
	defer file.Close()
	flags := 0
	if is {
		flags = 0x10 // FS_IMMUTABLE_FL
	}
	return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// A file that nobody may change goes in and out with the others.
func TestImmutable(t *testing.T) {
	mounttest.NeedRoot(t, "makes a file immutable")
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	if err := f.immutable(f.Path("small.json"), true); err != nil {
		t.Skip("no immutable files here: ", err)
	}
	t.Cleanup(func() {
		for _, dir := range []string{f.Dir, filepath.Join(f.Store, "tree")} {
			if _, err := os.Lstat(filepath.Join(dir, "small.json")); err == nil {
				_ = f.immutable(filepath.Join(dir, "small.json"), false)
			}
		}
	})
	f.Must(f.adopt())
	_, _ = f.CLI("sync", f.Dir)
	f.Run("leave", f.Dir)
	f.plain("left")
}

// Somebody who is not root gets back files whose modes deny their owner.
func TestLeaveDenied(t *testing.T) {
	m := mounttest.NewFor(t, mounttest.Nobody)
	m.ShAsUser("dd if=/dev/urandom of=a bs=100k count=5 status=none; cp a none; cp a read; cp a small; chmod 0 none small; chmod 400 read")
	m.Sync()
	out, err := m.CLI("leave", m.Dir)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, mode := range map[string]os.FileMode{"a": 0o644, "none": 0, "read": 0o400} {
		st, err := os.Lstat(m.Path(name))
		if err != nil || st.Mode() != mode || st.Size() != 500<<10 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

// Names that a mount covered are not mixed with those of the store.
func TestLeaveCovered(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Must(f.Stop())
	f.Must(os.WriteFile(f.Path("small.json"), []byte("covered"), 0o600))
	f.Run("mount", "--non-empty", f.Store, f.Dir)
	out, code := f.RunFails("leave", f.Dir)
	if code != 8 || !f.Mounted() {
		t.Errorf("exit code %d: %s", code, out)
	}
	mounttest.WantSaid(t, out, "is not empty", f.Store)
	f.same("refused", f.Dir)
	f.Must(f.Stop())
	if b, err := os.ReadFile(f.Path("small.json")); string(b) != "covered" {
		t.Errorf("%q: %v", b, err)
	}
	f.Must(os.Remove(f.Path("small.json")))
	f.Run("leave", f.Store, f.Dir)
	f.plain("left")
}

// journal writes the one of a move that was cut short.
func (f *folder) journal(way string) { f.T.Helper(); f.journalOf(way, f.Dir) }

// journalOf is journal of a folder that is there now.
func (f *folder) journalOf(way, at string) {
	f.T.Helper()
	var st unix.Statx_t
	f.Must(unix.Statx(unix.AT_FDCWD, at, 0, unix.STATX_INO|unix.STATX_BTIME, &st))
	var now unix.Timespec
	f.Must(unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now))
	born := st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	s := fmt.Sprintf(`{"way":%q,"dir":%q,"ino":%d,"born":%d,"begun":%d}`, way, f.Dir, st.Ino, born, now.Nano())
	f.Must(os.WriteFile(filepath.Join(f.Store, "moving"), []byte(s), 0o600))
}

// A store that was written to after the folder had left, and before that was over, is not said to be empty.
func TestLeaveThenWritten(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Run("leave", f.Dir)
	f.journal("leave")
	at := &mounttest.Mount{T: t, Daemon: &daemon.Daemon{Bin: f.Bin, Store: f.Store, Dir: t.TempDir()}}
	f.Run("mount", at.Store, at.Dir)
	f.Must(os.WriteFile(at.Path("new"), []byte("new"), 0o600))
	f.Run("umount", at.Dir)
	out, code := f.RunFails("leave", f.Store)
	if code == 0 || !strings.Contains(out, `"new" is one`) || strings.Contains(out, "rm -r") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.plain("left")
	f.Run("leave", f.Store, at.Dir)
	if b, err := os.ReadFile(at.Path("new")); string(b) != "new" {
		t.Errorf("%q: %v", b, err)
	}
}

// A folder that was about to be adopted is looked at again.
func TestAdoptBegun(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Run("leave", f.Dir)
	f.journal("adopt")
	outside := filepath.Join(filepath.Dir(f.Dir), "outside")
	f.Must(os.Link(f.Path("hard"), outside))
	out, code := f.RunFails("adopt", "--store", f.Store, f.Dir)
	if code != 8 || !strings.Contains(out, "names outside of the folder") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.same("refused", f.Dir)
	f.Must(os.Remove(outside))
	f.Must(os.Rename(f.Dir, f.Dir+".copied")) // another folder by now
	f.Must(os.CopyFS(f.Dir, os.DirFS(f.Dir+".copied")))
	f.Must(os.RemoveAll(f.Dir + ".copied"))
	f.Must(f.adopt())
	f.same("adopted", f.Dir)
}

// A copy does not go into what is copied.
func TestCopyIntoItself(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	segments := filepath.Join(f.Store, "segments", "x")
	for _, to := range []string{f.Path("copy"), f.Dir, filepath.Join(f.Store, "copy"), segments} {
		for _, from := range []string{f.Dir, f.Store} {
			out, code := f.RunFails("leave", from, "--copy", to)
			if code != 8 {
				t.Errorf("%s: exit code %d: %s", to, code, out)
			}
			mounttest.WantSaid(t, out, to+" lies in the store "+f.Store+": name a folder outside of it")
		}
	}
	for _, to := range []string{f.Path("runs", "copy"), segments} {
		out, code := f.RunFails("cp", "-r", f.Dir, to)
		if code == 0 || code == 124 {
			t.Errorf("%s: exit code %d: %s", to, code, out)
		}
	}
	f.same("copied", f.Path("runs", "copy"))
	f.same("copied", f.Dir)
}

// What is no file is left out of a copy, which is no damage.
func TestLeaveCopyPipes(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(unix.Mkfifo(f.Path("pipe"), 0o600))
	f.Must(f.adopt())
	to := filepath.Join(t.TempDir(), "copy")
	out, code := f.RunFails("leave", f.Dir, "--copy", to)
	if code != 7 || !strings.Contains(out, "pipe") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.same("copied", to)
}

// A copy has the attributes that programs gave the files. Those that its disk cannot hold are named.
func TestLeaveCopyAttributes(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	delete(f.want, "absolute")
	model := "runs/a/0/model-" + fmt.Sprint(recipe.Kinds[0])
	f.Must(f.adopt())
	f.Must(unix.Setxattr(f.Path("small.json"), "user.tag\xff", []byte("kept\x00\xff"), 0))
	f.Must(unix.Setxattr(f.Path("runs"), "user.metric", []byte("0.5"), 0))
	f.Must(os.Chmod(f.Path(model), 0o440))
	f.Must(unix.Setxattr(f.Path(model), "user.empty", nil, 0))
	f.Must(unix.Setxattr(f.Path(model), "user.long", []byte(strings.Repeat("x", 2000)), 0))
	ofRoot := map[string]string{}
	if os.Geteuid() == 0 {
		ofRoot["trusted.tag"] = "root's"
		f.Must(unix.Setxattr(f.Path("hard"), "trusted.tag", []byte("root's"), 0))
	}
	f.EvictAll()
	to := filepath.Join(t.TempDir(), "copy")
	for _, from := range []string{f.Dir, f.Dir, f.Store} {
		if from == f.Store {
			f.Must(f.Stop())
		}
		f.Run("leave", from, "--copy", to)
		for path, want := range map[string]map[string]string{
			"small.json": {"user.tag\xff": "kept\x00\xff"}, "runs": {"user.metric": "0.5"},
			model: {"user.empty": "", "user.long": strings.Repeat("x", 2000)}, "hard": ofRoot,
		} {
			b := make([]byte, 8<<10)
			n, err := unix.Listxattr(filepath.Join(to, path), b)
			f.Must(err)
			if got := strings.Count(string(b[:n]), "\x00"); got != len(want) {
				t.Errorf("%s has %q", path, b[:n])
			}
			for name, value := range want {
				n, err := unix.Getxattr(filepath.Join(to, path), name, b)
				if err != nil || string(b[:n]) != value {
					t.Errorf("%s: %s: %q, %v", path, name, b[:max(n, 0)], err)
				}
			}
		}
		f.same("copied", to)
		f.Must(unix.Removexattr(filepath.Join(to, "small.json"), "user.tag\xff")) // as an older copy had it
	}
	mounttest.NeedRoot(t, "mounts")
	none := t.TempDir()
	f.Must(unix.Mount("none", none, "ramfs", 0, ""))
	t.Cleanup(func() { unix.Unmount(none, unix.MNT_DETACH) })
	for range 2 {
		out, code := f.RunFails("leave", f.Store, "--copy", filepath.Join(none, "copy"))
		if code != 7 {
			t.Errorf("exit code %d: %s", code, out)
		}
		mounttest.WantSaid(t, out, "runs: left as it is: the other filesystem has no room for its user.metric")
	}
}

// A mount that is bound elsewhere, too, stays.
func TestLeaveBound(t *testing.T) {
	mounttest.NeedRoot(t, "mounts")
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	at := t.TempDir()
	f.Must(unix.Mount(f.Dir, at, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	if out, code := f.RunFails("leave", f.Dir); code != 4 || !strings.Contains(out, at) {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.same("refused", f.Dir)
	f.Must(unix.Unmount(at, 0))
	f.Run("leave", f.Dir)
	f.plain("left")
}

// Where a folder cannot go, the message says why.
func TestIntoNowhere(t *testing.T) {
	m := mounttest.New(t)
	dir := filepath.Join(filepath.Dir(m.Dir), "folder")
	m.Must(os.Mkdir(dir, 0o755))
	for to, says := range map[string]string{
		m.Dir:               "is there already",
		m.Path("no", "dir"): m.Path("no") + " does not exist: `mkdir -p " + m.Path("no") + "` makes it",
	} {
		if out, code := m.RunFails("adopt", dir, "--into", to); code == 0 || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d: %s", to, code, out)
		}
	}
	if _, err := os.Lstat(dir); err != nil {
		t.Error(err)
	}
}

// What a repair moved aside is no file of the folder, and is not removed unseen.
func TestLeaveAside(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Must(f.Stop())
	aside := filepath.Join(f.Store, "lost+found")
	f.Must(os.MkdirAll(filepath.Join(aside, "tree"), 0o700))
	f.Must(os.WriteFile(filepath.Join(aside, "tree", "x"), []byte("x"), 0o600))
	if out := f.Run("leave", f.Store, f.Dir); !strings.Contains(out, aside) {
		t.Error(out)
	}
	f.plain("left")
}

// What is in a store already is not adopted, and the message says what it is.
func TestAdoptStored(t *testing.T) {
	m := mounttest.New(t)
	m.Must(os.Mkdir(m.Path("runs"), 0o755))
	for dir, says := range map[string]string{
		m.Store:        "is a store: `ckptfs mount " + m.Store + " MOUNTPOINT` mounts it",
		m.Path("runs"): "is in the store " + m.Dir + " already",
	} {
		if out, code := m.RunFails("adopt", dir); code != 8 || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d: %s", dir, code, out)
		}
	}
}

// A folder that has what a mount has itself by that name is not adopted, since it would hide the mount's own.
// Into a folder of a store it may go. A store that has it all the same says so when it is mounted.
func TestAdoptOwnName(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.put(".ckptfs/a", []byte("a"))
	if out, code := f.RunFails("adopt", "--store", f.Store, f.Dir); code != 8 ||
		!strings.Contains(out, "rename it first: "+f.Path(".ckptfs")) {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.plain("refused")

	m := mounttest.New(t, "--no-views")
	m.Must(os.Mkdir(m.Path(".ckptfs"), 0o755))
	m.Run("adopt", "--into", m.Path("in"), f.Dir)
	if _, err := os.Stat(m.Path("in/.ckptfs/a")); err != nil {
		t.Error(err)
	}
	m.Flags = slices.DeleteFunc(m.Flags, func(s string) bool { return s == "--no-views" })
	m.Remount()
	const hidden = "by the name of the mount's own"
	if log := m.LogText(); !strings.Contains(log, hidden) {
		t.Errorf("the log: %s", log)
	}
}

// A store in another one's mount or folder could not pack: it is neither made nor mounted.
func TestStoreInStore(t *testing.T) {
	m := mounttest.New(t)
	up := filepath.Dir(m.Dir)
	m.Must(os.Mkdir(filepath.Join(up, "folder"), 0o755))
	for store, says := range map[string]string{
		m.Path("new"):                         m.Path("new") + " lies in " + m.Dir + ", where the store " + m.Store + " is mounted",
		filepath.Join(m.Store, "tree", "new"): "lies in the folder of the store " + m.Store,
	} {
		for _, args := range [][]string{
			{"adopt", "--store", store, filepath.Join(up, "folder")},
			{"mount", "--mkdir", store, filepath.Join(up, "at")},
		} {
			out, code := m.RunFails(args...)
			if code != 8 && code != 3 {
				t.Errorf("%s: exit code %d: %s", args, code, out)
			}
			mounttest.WantSaid(t, out, says, "give a folder outside")
			if _, err := os.Lstat(store); !os.IsNotExist(err) {
				t.Errorf("%s: %v", args, err)
			}
		}
	}
}

// A copy that cannot be written names its place, and what to do on a full disk.
func TestLeaveCopyFails(t *testing.T) {
	mounttest.NeedRoot(t, "mounts")
	m, small := mounttest.New(t), t.TempDir()
	m.Write("a", mounttest.Noise(1, 4<<20))
	m.Sync()
	m.Must(unix.Mount("none", small, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
	few := t.TempDir()
	m.Must(unix.Mount("none", few, "tmpfs", 0, "size=9m,nr_inodes=2"))
	t.Cleanup(func() { unix.Unmount(few, unix.MNT_DETACH) })
	for to, says := range map[string]string{
		"/proc/copy":  "copy to /proc/copy: ",
		small + "/to": "take 4.00 MiB, and the disk of " + small + "/to has 1.00 MiB free: free 3.00 MiB there",
		small:         "take 4.00 MiB, and the disk of " + small + " has 1.00 MiB free",
		few + "/to":   "no space left on device; free room there, and run the command again: it goes on",
	} {
		if out, _ := m.RunFails("leave", m.Dir, "--copy", to); !strings.Contains(out, says) {
			t.Errorf("%s: %s", to, out)
		}
	}
	for _, dir := range []string{small, few} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
	// Of what is copied no room is counted again.
	m.Must(unix.Mount("none", small, "tmpfs", unix.MS_REMOUNT, "size=6m"))
	m.Run("leave", m.Dir, "--copy", small+"/to")
	m.Write("b", mounttest.Noise(2, 1<<20))
	m.Run("leave", m.Dir, "--copy", small+"/to")
}

// A store that a process has which is about to end is waited for.
func TestLeaveAfterKill(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Must(f.Stop())
	d, err := disk.OpenFolder(f.Store)
	f.Must(err)
	defer d.Close()
	lock, err := tree.Acquire(d, time.Now())
	f.Must(err)
	p := mounttest.Begin(t, "", f.Bin, "leave", f.Store, f.Dir)
	p.Awaits("waiting for it to end")
	f.Must(lock.Release(true))
	if p.Code() != 0 {
		t.Fatal(p.Text())
	}
	f.plain("left")
}

// While a store's files are copied nobody moves them away, and a copy does not begin while they move.
func TestLeaveDuringCopy(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	d, err := disk.OpenFolder(f.Store)
	f.Must(err)
	defer d.Close()
	to := filepath.Join(t.TempDir(), "copy")
	for _, c := range []struct {
		claim func(*disk.Folder) (*os.File, error)
		says  string
		args  []string
	}{
		{inplace.Claim, "is moving its folder; waiting", []string{"leave", f.Dir, "--copy", to}},
		{inplace.Share, "copies its files; waiting", []string{"leave", f.Dir}},
	} {
		held, err := c.claim(d)
		f.Must(err)
		p := mounttest.Begin(t, "", f.Bin, c.args...)
		p.Awaits(c.says)
		f.Must(held.Close())
		if p.Code() != 0 {
			t.Errorf("%s: exit code %d: %s", c.args, p.Code(), p.Text())
		}
	}
	f.same("copied", to)
	f.plain("left")
}

// The commands that a message gives can be pasted, whatever the folder is called.
func TestAdoptOfOddName(t *testing.T) {
	m := mounttest.Prepare(t, t.TempDir())
	dir := filepath.Join(filepath.Dir(m.Dir), "my models")
	m.Must(os.Mkdir(dir, 0o755))
	mounttest.WantSaid(t, m.Run("adopt", dir), "`ckptfs leave '"+dir+"'`")
	mounttest.WantSaid(t, m.Run("leave", dir), "`rm -r '"+dir+".ckptfs'`")
}

// Where the store cannot be made beside the folder, the message says what to give.
func TestAdoptReadOnly(t *testing.T) {
	mounttest.NeedRoot(t, "mounts")
	m, disk := mounttest.Prepare(t, t.TempDir()), t.TempDir()
	m.Must(unix.Mount("none", disk, "tmpfs", 0, ""))
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	dir := filepath.Join(disk, "folder")
	m.Must(os.Mkdir(dir, 0o755))
	m.Must(unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	out, _ := m.RunFails("adopt", dir)
	if !strings.Contains(out, dir+".ckptfs: read-only file system: --store names another folder") {
		t.Error(out)
	}
}

// Where the disk is full, nothing of a store stays behind.
func TestAdoptFullDisk(t *testing.T) {
	mounttest.NeedRoot(t, "mounts")
	m := mounttest.Prepare(t, t.TempDir())
	for what, options := range map[string]string{"bytes": "size=1m", "the journal": "nr_inodes=8"} {
		disk := t.TempDir()
		m.Must(unix.Mount("none", disk, "tmpfs", 0, options))
		t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
		dir := filepath.Join(disk, "folder")
		m.Must(os.Mkdir(dir, 0o755))
		m.Must(os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600))
		if what == "bytes" {
			_ = os.WriteFile(filepath.Join(disk, "fills"), make([]byte, 1<<20), 0o600)
		}
		out, code := m.RunFails("adopt", dir)
		if code != 1 {
			t.Errorf("%s: exit code %d: %s", what, code, out)
		}
		mounttest.WantSaid(t, out, "no space left on device")
		if left, err := os.ReadDir(dir + ".ckptfs"); !os.IsNotExist(err) {
			t.Errorf("%s: %v is left: %v", what, left, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "a")); string(b) != "a" {
			t.Errorf("%s: %q, %v", what, b, err)
		}
	}
}

// Somebody who may not let others see a mount is told that they no longer see the folder.
func TestAdoptAlone(t *testing.T) {
	m := mounttest.NewFor(t, mounttest.Nobody)
	m.ShAsUser("dd if=/dev/urandom of=a bs=100k count=5 status=none")
	m.Run("leave", m.Dir)
	others := filepath.Join(filepath.Dir(m.Dir), "others.ckptfs")
	m.Must(os.Mkdir(others, 0o700)) // root's
	m.ShAsUser("mkdir ../others")
	out, _ := m.RunFails("adopt", strings.TrimSuffix(others, ".ckptfs"))
	if !strings.Contains(out, others+": only its owner") {
		t.Error(out)
	}
	conf, _ := os.ReadFile("/etc/fuse.conf")
	sees := regexp.MustCompile(`(?m)^\s*user_allow_other\s*$`).Match(conf)
	if out := m.Run("adopt", "--store", m.Store, m.Dir); strings.Contains(out, "other users") == sees {
		t.Errorf("/etc/fuse.conf lets others see it: %v; %s", sees, out)
	}
	m.Run("leave", m.Dir)
}

// What makes no sense for a folder that is a mount already, or of an empty path, is refused.
func TestAdoptAgain(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Must(f.adopt())
	for says, args := range map[string][]string{
		"-o is for a new one":      {"adopt", "-o", "hot-size=1GiB", "--store", f.Store, f.Dir},
		"leave out --replace":      {"adopt", "--replace", "--store", f.Store, f.Dir},
		"a path is empty":          {"leave", f.Dir, "--copy", ""},
		"an argument is empty":     {"adopt", ""},
		"store and the mountpoint": {"mount", "--mkdir", f.Dir + "x", f.Dir + "x"},
		"nothing is there, and":    {"retire", f.Path("runs", "a", "99")},
	} {
		if out, code := f.RunFails(args...); code == 0 || !strings.Contains(out, says) {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
	f.same("refused", f.Dir)
}
