package inout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk/killtest"
	"ckptfs/integration/mounttest"
)

// times is how often a test does it: some times, or as the environment says.
func times(name string, some int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return some
}

// detach takes mounts away that nobody serves.
func (f *folder) detach() {
	f.Must(f.End())
	for _, at := range []string{f.Dir, filepath.Join(f.Store, "tree")} {
		for unix.Unmount(at, unix.MNT_DETACH) == nil {
		}
	}
}

// place is where the folder is, whole: at its path, or in the store. The other place is empty, or is not
// there. What is packed of it is compared later.
func (f *folder) place(when string) (at string) {
	f.T.Helper()
	tree := filepath.Join(f.Store, "tree")
	in := func(dir string) int {
		all, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			f.T.Fatal(err)
		}
		return len(all)
	}
	at, other := f.Dir, tree
	if in(at) == 0 {
		at, other = other, at
	}
	if in(other) > 0 {
		f.T.Fatalf("%s: %d names are in %s and %d in %s", when, in(at), at, in(other), other)
	}
	for name := range f.want {
		if _, err := os.Lstat(filepath.Join(at, name)); err != nil {
			f.T.Fatalf("%s: %v", when, err)
		}
	}
	if at == f.Dir {
		f.same(when, at)
	}
	return at
}

// strike runs a command of which all processes are killed before the change n. killed: it made so many.
func (f *folder) strike(n int, args ...string) (what string, killed bool) {
	f.T.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), killedBin+"="+f.Bin)
	changes, killed, err := killtest.Run(cmd, n)
	f.Must(err)
	f.detach()
	if !killed {
		return fmt.Sprintf("%v, killed behind all of its %d changes", args[0], len(changes)), false
	}
	return fmt.Sprintf("%v, killed before change %d, %v", args[0], n, changes[len(changes)-1]), true
}

// Adopt and leave are killed, with the daemon and its holder, before one of the changes that they make to
// files. The folder is whole, and the next run ends what was begun.
func TestKilled(t *testing.T) {
	mounttest.NeedRoot(t, "mounts")
	f := newFolder(mounttest.PrepareFor(t, t.TempDir(), time.Hour))
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills := 0
	// The first kills are spread over all changes, of which there are about so many.
	bound := map[string]int{"adopt": 60, "leave": 200}
	strike := func(way string, args ...string) {
		n := rng.IntN(bound[way])
		when, killed := f.strike(n, args...)
		t.Log(when)
		if killed {
			kills++
			bound[way] = max(bound[way], n+n/4)
		} else {
			bound[way] = max(n, 10)
		}
		f.place(when)
	}
	for kills < times("CKPTFS_KILLS", 8) {
		strike("adopt", "adopt", "--store", f.Store, f.Dir)
		f.Must(f.adopt())
		f.same("adopted", f.Dir)
		f.Sync()
		if rng.IntN(3) > 0 {
			f.EvictAll()
		}
		strike("leave", "leave", f.Store, f.Dir)
		if rng.IntN(2) == 0 && f.place("before a mount") != f.Dir { // the store works as before
			f.Must(f.Start())
			f.same("mounted again", f.Dir)
			f.Must(f.Stop())
		}
		f.Run("leave", f.Store, f.Dir)
		f.plain("left")
	}
	t.Logf("%d kills", kills)
}

// TestPowerCut cuts the power of the disk while a folder moves. It is whole after that, in one of the two
// places, and the next run ends what was begun.
func TestPowerCut(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			d := mounttest.NewDisk(t, fstype, 1<<30)
			m := mounttest.PrepareOn(d)
			m.Dir = filepath.Join(d.Dir, "dir")
			m.Must(os.Mkdir(m.Dir, 0o755))
			f := newFolder(m)
			f.syncDisk(d)
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
			for range times("CKPTFS_POWERCUTS", 2) {
				f.cut(d, rng, "adopt", "--store", f.Store, f.Dir)
				f.Must(f.adopt())
				f.same("adopted", f.Dir)
				f.Sync()
				f.EvictAll()
				f.cut(d, rng, "leave", f.Store, f.Dir)
				f.Run("leave", f.Store, f.Dir)
				f.plain("left")
				f.syncDisk(d)
			}
		})
	}
}

func (f *folder) syncDisk(d *mounttest.Disk) {
	dir, err := os.Open(d.Dir)
	f.Must(err)
	defer dir.Close()
	f.Must(unix.Syncfs(int(dir.Fd())))
}

// cut is cutShort of a move.
func (f *folder) cut(d *mounttest.Disk, rng *rand.Rand, args ...string) {
	f.T.Helper()
	when := f.cutShort(d, rng, args...)
	f.T.Logf("%s: it is in %s", when, f.place(when))
}

// cutShort runs a command and cuts the power at some moment of it.
func (f *folder) cutShort(d *mounttest.Disk, rng *rand.Rand, args ...string) (when string) {
	f.T.Helper()
	ctx, cancel := context.WithCancel(f.T.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, f.Bin, args...)
	f.Must(cmd.Start())
	after := time.Duration(rng.IntN(400)) * time.Millisecond
	time.Sleep(after) // not a wait for something, but the moment of the cut
	how := []uint32{mounttest.JournalFlushed, mounttest.JournalLost}[rng.IntN(2)]
	f.Must(d.Cut(how))
	cancel()
	_ = cmd.Wait()
	f.Must(f.End())
	f.detach()
	f.EndOfPower(d)
	if rng.IntN(2) == 0 {
		f.AnotherBoot()
	}
	return fmt.Sprintf("%v, the power was cut after %v, journal %d", args[0], after, how)
}
