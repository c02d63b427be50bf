package inout

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
	"ckptfs/integration/recipe"
)

// A folder is adopted while a program has a file of it open and mapped, and other programs make files in it:
// no call fails, and no byte is lost. Then it is packed, evicted, and made a folder again.
func TestInAndOut(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.put("open", []byte(strings.Repeat("x", 1<<20)))
	var was unix.Stat_t
	f.Must(unix.Stat(f.Path("small.json"), &was))
	open, err := os.OpenFile(f.Path("open"), os.O_RDWR, 0)
	f.Must(err)
	defer open.Close()
	mapped, err := unix.Mmap(int(open.Fd()), 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	f.Must(err)

	var stop atomic.Bool
	var programs sync.WaitGroup
	made := make([]int, 2)
	for w := range made {
		f.Must(os.Mkdir(f.Path(fmt.Sprint("w", w)), 0o755))
		programs.Go(func() {
			for ; !stop.Load(); made[w]++ {
				path := f.Path(fmt.Sprint("w", w), fmt.Sprint(made[w]))
				if err := os.WriteFile(path, []byte(path), 0o644); err != nil {
					t.Errorf("while the folder moves: %v", err)
					return
				}
			}
		})
	}
	f.Must(f.adopt())
	f.same("adopted", f.Dir)
	stop.Store(true)
	programs.Wait()
	for w, n := range made {
		for i := range n {
			name := fmt.Sprintf("w%d/%d", w, i)
			f.want[name] = []byte(f.Path(name))
		}
	}
	copy(mapped, "mapped")
	_, err = open.WriteAt([]byte("written"), 1<<20)
	f.Must(err)
	f.want["open"] = append(append([]byte("mapped"), f.want["open"][6:]...), "written"...)
	f.same("written past the mount", f.Dir)
	f.Must(unix.Munmap(mapped))
	f.Must(open.Close())

	f.Sync()
	f.EvictAll()
	f.same("evicted", f.Dir)
	f.Run("leave", f.Dir)
	f.plain("left")
	var is unix.Stat_t
	f.Must(unix.Stat(f.Path("small.json"), &is))
	if is.Ino != was.Ino || is.Mtim != was.Mtim || is.Mode != was.Mode {
		t.Errorf("a file is another: %+v, was %+v", is, was)
	}
	f.Must(f.adopt()) // into what was packed before
	f.Sync()
	f.same("adopted again", f.Dir)
}

// Sizes that a program changes past the mount are seen at once, also of files that are never packed.
func TestWrittenPastTheMount(t *testing.T) {
	for _, flags := range [][]string{nil, {"-o", "no_passthrough"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			f := newFolder(mounttest.Prepare(t, t.TempDir()))
			log, err := os.OpenFile(f.Path("small.json"), os.O_WRONLY|os.O_APPEND, 0)
			f.Must(err)
			defer log.Close()
			f.Must(f.adopt(flags...))
			for range 50 {
				f.same("appended", f.Dir)
				_, err = log.WriteString("more\n")
				f.Must(err)
				f.want["small.json"] = append(f.want["small.json"], "more\n"...)
				f.want["absolute"] = f.want["small.json"]
			}
		})
	}
}

// What keeps a folder from being adopted is said, and changes nothing.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(t *testing.T, f *folder)
		says  string
		code  int
	}{
		"stands in it": {func(t *testing.T, f *folder) {
			cmd := exec.Command("sleep", "600")
			cmd.Dir = f.Path("runs")
			f.Must(cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		}, "cwd", 4},
		"folder open": {func(t *testing.T, f *folder) {
			d, err := os.Open(f.Path("runs"))
			f.Must(err)
			t.Cleanup(func() { d.Close() })
		}, "open folder", 4},
		"linked outside": {func(t *testing.T, f *folder) {
			f.Must(os.Link(f.Path("hard"), filepath.Join(filepath.Dir(f.Dir), "outside")))
		}, "names outside of the folder", 8},
		"mounted in it": {func(t *testing.T, f *folder) {
			f.Must(unix.Mount("none", f.Path("runs"), "tmpfs", 0, ""))
			t.Cleanup(func() { unix.Unmount(f.Path("runs"), unix.MNT_DETACH) })
		}, "something is mounted in it", 8},
		"part mounted elsewhere": {func(t *testing.T, f *folder) {
			at := t.TempDir()
			f.Must(unix.Mount(f.Path("runs"), at, "", unix.MS_BIND, ""))
			t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
		}, "the bind mount /", 4},
		"mountpoint": {func(t *testing.T, f *folder) {
			f.Must(unix.Mount(f.Dir, f.Dir, "", unix.MS_BIND, ""))
			t.Cleanup(func() { unix.Unmount(f.Dir, unix.MNT_DETACH) })
		}, "is a mountpoint", 8},
		"store with files": {func(t *testing.T, f *folder) {
			f.Must(os.MkdirAll(filepath.Join(f.Store, "tree"), 0o700))
			f.Must(os.WriteFile(filepath.Join(f.Store, "tree", "x"), nil, 0o600))
		}, "not empty", 3},
	} {
		t.Run(name, func(t *testing.T) {
			mounttest.NeedRoot(t, "mounts")
			f := newFolder(mounttest.Prepare(t, t.TempDir()))
			c.begin(t, f)
			out, code := f.RunFails("adopt", "--store", f.Store, f.Dir)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit code %d, want %d: %s", code, c.code, out)
			}
			if name != "mounted in it" {
				f.same("refused", f.Dir)
			}
		})
	}
}

// A mount that fails puts the folder back.
func TestPutBack(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	out, code := f.RunFails("adopt", "-o", "log_file=/proc/none/log", "--store", f.Store, f.Dir)
	if code == 0 || !strings.Contains(out, "is as it was") || !strings.Contains(out, "rm -r "+f.Store) {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.plain("put back")
	if n := f.names(filepath.Join(f.Store, "tree")); n != 0 {
		t.Errorf("%d names in the tree", n)
	}
	f.Must(f.adopt())
	f.same("adopted then", f.Dir)
}

// A damaged file keeps the others in the store, which can be mounted as before.
func TestLeaveDamaged(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Sync()
	f.EvictAll()
	f.Must(f.Stop())
	segments, err := filepath.Glob(filepath.Join(f.Store, "segments", "*.seg"))
	f.Must(err)
	s, err := os.OpenFile(segments[0], os.O_WRONLY, 0)
	f.Must(err)
	defer s.Close()
	_, err = s.WriteAt(make([]byte, 4096), 64<<10)
	f.Must(err)
	out, code := f.RunFails("leave", f.Store, f.Dir)
	if code != 6 || !strings.Contains(out, "cannot be made plain") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if n := f.names(f.Dir); n != 0 {
		t.Errorf("%d names where the folder was to be", n)
	}
	f.Must(f.Start())
}

// Where a disk has no room for plain files nothing is begun.
func TestLeaveNoRoom(t *testing.T) {
	disk := mounttest.MountDisk(t, "ext4", 120)
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Dir, f.Store = filepath.Join(disk, "dir"), filepath.Join(disk, "store")
	f.Must(os.Mkdir(f.Dir, 0o755))
	f.want = map[string][]byte{}
	f.put("zeros", append(make([]byte, 60<<20), 1))
	f.Must(f.adopt())
	f.Sync()
	f.EvictAll()
	f.Must(os.WriteFile(filepath.Join(disk, "full"), make([]byte, 50<<20), 0o600))
	out, code := f.RunFails("leave", f.Dir)
	if code != 1 || !strings.Contains(out, "free ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.same("no room", f.Dir)
	f.Must(os.Remove(filepath.Join(disk, "full")))
	f.Run("leave", f.Dir)
	f.plain("left")
}

// A copy has every file, whether the store is mounted or not, and is compared.
func TestLeaveCopy(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	delete(f.want, "absolute") // leads into the mount, which goes
	f.put("holes", append(make([]byte, 3<<20), 1))
	f.Must(os.Truncate(f.Path("holes"), 5<<20))
	f.want["holes"] = append(f.want["holes"], make([]byte, 2<<20-1)...)
	f.Must(f.adopt())
	f.Sync()
	f.EvictAll()
	for _, from := range []string{f.Dir, f.Store} {
		if from == f.Store {
			f.Must(f.Stop())
		}
		to := filepath.Join(t.TempDir(), "copy")
		out := f.Run("leave", from, "--copy", to)
		f.same("copied", to)
		if !strings.Contains(out, "compared with the store") {
			t.Error(out)
		}
		// What the store lost since an earlier try stays, and is named.
		f.Must(os.MkdirAll(filepath.Join(to, "old", "deep"), 0o755))
		f.Must(os.WriteFile(filepath.Join(to, "runs", "gone"), nil, 0o644))
		out, code := f.RunFails("leave", from, "--copy", to)
		if code != 7 || strings.Contains(out, "deep") {
			t.Errorf("exit code %d: %s", code, out)
		}
		for _, name := range []string{"old", "runs/gone"} {
			mounttest.WantSaid(t, out, filepath.Join(to, name)+": stays, though the store does not have it")
		}
		f.Must(os.RemoveAll(filepath.Join(to, "old")))
		f.Must(os.Remove(filepath.Join(to, "runs", "gone")))
		// A copy that rotted since is found.
		f.Must(os.Chtimes(filepath.Join(to, "holes"), time.Time{}, rotten(t, filepath.Join(to, "holes"))))
		out, code = f.RunFails("leave", from, "--copy", to)
		if code != 6 || !strings.Contains(out, "differs") {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
}

// rotten changes a byte of a file, and returns its modification time before.
func rotten(t *testing.T, path string) time.Time {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{1}, 1<<20); err != nil {
		t.Fatal(err)
	}
	return st.ModTime()
}

// A folder moves into a mounted store, while a program has a file of it open.
func TestInto(t *testing.T) {
	m := mounttest.New(t)
	dir := filepath.Join(filepath.Dir(m.Dir), "folder")
	m.Must(os.Mkdir(dir, 0o755))
	from := &folder{&mounttest.Mount{T: t, Daemon: &daemon.Daemon{Dir: dir}}, map[string][]byte{}}
	from.fill()
	from.put("save.pt", recipe.Recipe{Kind: recipe.Kinds[0], Seed: 3, Size: 1 << 20}.Bytes())
	open, err := os.OpenFile(from.Path("small.json"), os.O_WRONLY|os.O_APPEND, 0)
	m.Must(err)
	defer open.Close()
	delete(from.want, "absolute") // leads to where the folder was

	to := m.Path("runs", "b")
	if _, err := os.Lstat(to); !os.IsNotExist(err) { // the kernel remembers that there is none
		t.Fatal(err)
	}
	m.Must(os.Mkdir(m.Path("runs"), 0o755))
	m.Run("adopt", dir, "--into", to)
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is where it was: %v", err)
	}
	from.same("moved in", to)
	_, err = open.WriteString("more")
	m.Must(err)
	from.want["small.json"] = append(from.want["small.json"], "more"...)
	from.same("written past the mount", to)
	m.Must(open.Close())
	m.Sync()
	m.EvictAll()
	from.same("evicted", to)
	if s := m.Stats(); s.PackedFiles < 4 {
		t.Errorf("%d files are packed", s.PackedFiles)
	}
	if out, code := m.RunFails("adopt", m.Path("runs", "b"), "--into", m.Path("c")); code != 8 {
		t.Errorf("exit code %d: %s", code, out)
	}
	m.Must(m.Stop())
	m.Must(m.Start())
	from.same("mounted again", to)
}
