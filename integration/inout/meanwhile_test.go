package inout

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// adoptCut is an adopt that was killed after the folder had moved.
func (f *folder) adoptCut() {
	f.T.Helper()
	f.Must(f.adopt())
	f.Must(f.Stop())
	f.journalOf("adopt", filepath.Join(f.Store, "tree"))
}

// After a killed adopt a program writes a name that the folder has: the next adopt hides neither file, and
// names both.
func TestAdoptMeanwhile(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.put("sub/same", []byte("same"))
	f.adoptCut()
	was := f.want["small.json"]
	f.put("small.json", []byte("newer"))
	f.put("new", []byte("new"))
	f.put("sub/same", []byte("newer, too"))
	f.want["absolute"] = f.want["small.json"]
	out, code := f.RunFails("adopt", "--store", f.Store, f.Dir)
	f.want["small.json.kept-1"], f.want["sub/same.kept-1"] = was, []byte("same")
	if code != 7 {
		t.Errorf("exit code %d: %s", code, out)
	}
	mounttest.WantSaid(t, out, f.Path("small.json")+": a program wrote it while the folder moved; what was there before is kept as "+
		f.Path("small.json.kept-1"))
	mounttest.WantSaid(t, out, f.Path("sub/same")+": a program wrote it")
	f.same("adopted", f.Dir)
	f.Must(f.adopt()) // nothing more to say
	f.Sync()
	f.EvictAll()
	f.Run("leave", f.Dir)
	f.plain("left")
}

// The empty folder that a killed adopt left is removed: the next adopt makes it again.
func TestAdoptRemoved(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.adoptCut()
	f.Must(os.Remove(f.Dir))
	f.Must(f.adopt())
	f.same("adopted", f.Dir)
	f.Must(f.Stop()) // and one that nothing was begun with
	f.Must(os.Remove(f.Dir))
	f.Must(f.adopt())
	f.same("mounted", f.Dir)
	f.Run("leave", f.Dir)
	f.Must(os.Rename(f.Dir, f.Dir+".away"))
	if out, code := f.RunFails("adopt", "--store", f.Store, f.Dir); !strings.Contains(out, "no such file") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A folder leaves while a program saves files in it, some under names that it has: all of them are in the
// plain folder, and no file is half.
func TestLeaveMeanwhile(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.put("saves/latest", []byte("0"))
	open, err := os.OpenFile(f.Path("small.json"), os.O_RDWR, 0)
	f.Must(err)
	defer open.Close()
	f.Must(f.adopt())
	f.Must(open.Close())
	f.Sync()
	f.EvictAll()
	var stop atomic.Bool
	var saves atomic.Int64
	var trainer sync.WaitGroup
	trainer.Go(func() {
		for ; !stop.Load(); saves.Add(1) {
			unix.Nanosleep(&unix.Timespec{Nsec: 1e7}, nil) // a trainer's pace: else it is always in use
			name := fmt.Sprint("save", saves.Load())
			for {
				err := os.MkdirAll(f.Path("saves"), 0o755)
				if err == nil {
					err = os.WriteFile(f.Path("saves/part"), []byte(name), 0o644)
				}
				if err == nil {
					err = os.Rename(f.Path("saves/part"), f.Path("saves/latest"))
				}
				if err == nil {
					err = os.WriteFile(f.Path(name), []byte(name), 0o644)
				}
				if err == nil || stop.Load() {
					break
				}
				gone := errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
				if !gone && !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
			}
		}
	})
	awaits := func(n int64) {
		end := saves.Load() + n
		f.Must(daemon.Until("saves", func() bool { return saves.Load() >= end || t.Failed() }))
	}
	awaits(20)
	out, err := f.CLI("leave", f.Dir)
	for range 20 {
		if err == nil || f.names(filepath.Join(f.Store, "tree")) == 0 || !f.Mounted() {
			break
		}
		out, err = f.CLI("leave", f.Dir) // it was in use
	}
	awaits(20)
	stop.Store(true)
	trainer.Wait()
	if err != nil {
		t.Log(out, err)
	}
	f.want["saves/latest"] = fmt.Append(nil, "save", saves.Load()-1)
	for i := range saves.Load() {
		name := fmt.Sprint("save", i)
		f.want[name] = []byte(name)
	}
	if f.Mounted() {
		t.Fatal("mounted: ", out)
	}
	f.same("left", f.Dir)
	if n := f.names(filepath.Join(f.Store, "tree")); n > 0 {
		t.Errorf("%d names stay in the store", n)
	}
}

// A leave that was killed after it had unmounted is ended by the next, with what programs made meanwhile.
func TestLeaveCut(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt())
	f.Sync()
	f.EvictAll()
	f.Must(f.Stop())
	f.journalOf("leave", filepath.Join(f.Store, "tree"))
	was := f.want["small.json"]
	f.put("small.json", []byte("newer"))
	f.want["absolute"] = f.want["small.json"]
	out, code := f.RunFails("leave", f.Store, f.Dir)
	if code != 7 {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.want["small.json.kept-1"] = was
	mounttest.WantSaid(t, out, "kept as "+f.Path("small.json.kept-1"))
	f.plain("left")
}

// A folder that cannot leave is mounted again, as it was.
func TestLeaveMountsAgain(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Must(f.adopt("-o", "hot_size=123MiB"))
	f.Sync()
	f.EvictAll()
	segments, err := filepath.Glob(filepath.Join(f.Store, "segments", "*.seg"))
	f.Must(err)
	s, err := os.OpenFile(segments[0], os.O_RDWR, 0)
	f.Must(err)
	defer s.Close()
	_, err = s.WriteAt(make([]byte, 4096), 64<<10)
	f.Must(err)
	out, code := f.RunFails("leave", f.Dir)
	if code != 6 || !f.Mounted() {
		t.Fatalf("exit code %d: %s", code, out)
	}
	mounttest.WantSaid(t, out, f.Dir+" is mounted again")
	mounttest.WantSaid(t, f.Run("status", f.Dir), "123 MiB")
	if _, err := os.Lstat(filepath.Join(f.Store, "moving")); !os.IsNotExist(err) {
		t.Errorf("the journal stays: %v", err)
	}
	f.Must(f.Stop())
	mount := exec.Command(f.Bin, "mount", "--hot-size", "77MiB", "--", filepath.Base(f.Store), "./mnt")
	mount.Dir = filepath.Dir(f.Dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, code := f.RunFails("leave", f.Dir); code != 6 || !f.Mounted() {
		t.Fatalf("exit code %d: %s", code, out)
	}
	mounttest.WantSaid(t, f.Run("status", f.Dir), "77.0 MiB")
}
