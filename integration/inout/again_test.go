package inout

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// mountedAt is where the store is mounted, served or not. It asks no daemon.
func (f *folder) mountedAt() (at []string) {
	mounts, err := mountinfo.GetMounts(nil)
	f.Must(err)
	for _, m := range mounts {
		if m.FSType == "fuse.ckptfs" && m.Source == f.Store {
			at = append(at, m.Mountpoint)
		}
	}
	return at
}

// adoptUntil kills adopt, and not the daemon that it starts, once something is so.
func (f *folder) adoptUntil(is func() bool) {
	f.T.Helper()
	cmd := exec.Command(f.Bin, "adopt", "--store", f.Store, f.Dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.Credential}
	f.Must(cmd.Start())
	f.Must(daemon.Until("a moment of adopt", is))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// An adopt alone is killed, its daemon goes on. The next one, at once, takes over what was begun.
func TestAdoptKilledAgain(t *testing.T) {
	users := map[string]func(t *testing.T) *folder{
		"root": func(t *testing.T) *folder { return newFolder(mounttest.Prepare(t, t.TempDir())) },
		"nobody": func(t *testing.T) *folder {
			m := mounttest.NewFor(t, mounttest.Nobody)
			m.Must(m.Stop())
			m.Must(os.RemoveAll(m.Store))
			up := filepath.Dir(m.Dir)
			f := newFolder(m)
			out, err := exec.Command("chown", "-hR", fmt.Sprint(mounttest.Nobody), up).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return f
		},
	}
	for user, prepare := range users {
		t.Run(user, func(t *testing.T) {
			f := prepare(t)
			there := func(name string) func() bool {
				return func() bool { return f.inStore(name) }
			}
			for moment, is := range map[string]func() bool{
				"journal":    there("moving"),
				"mount made": func() bool { return len(f.mountedAt()) > 0 },
				"moved":      func() bool { return slices.Contains(f.mountedAt(), f.Dir) },
				"opened":     there("index"),
				"asked":      there("control.sock"),
			} {
				f.adoptUntil(is)
				out, code := f.RunOutcome("adopt", "--store", f.Store, f.Dir)
				if code != 0 {
					t.Fatalf("%s: exit code %d: %s", moment, code, out)
				}
				if !strings.Contains(out, f.Dir+" is a mount of "+f.Store) {
					t.Errorf("%s: %s", moment, out)
				}
				if user == "root" { // who may look
					f.same(moment, f.Dir)
				}
				f.Run("sync", f.Dir)
				if !f.Mounted() || f.inStore("moving") {
					t.Fatalf("%s: mounted: %v, the journal stays: %v", moment, f.Mounted(), f.inStore("moving"))
				}
				f.Run("leave", f.Dir)
				f.plain(moment)
				f.Must(os.RemoveAll(f.Store))
			}
		})
	}
}

// An adopt that is interrupted has adopted the folder, or has it as it was. It is never in a store that is
// not mounted.
func TestAdoptInterrupted(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	log := func() string { b, _ := os.ReadFile(filepath.Join(f.Store, "log")); return string(b) }
	moments := []func() bool{
		func() bool { return len(f.mountedAt()) > 0 },
		func() bool { return f.inStore("control.sock") },
		func() bool { return strings.Contains(log(), "msg=mounted") },
	}
	codes := map[int]int{}
	for i := range 12 {
		p := mounttest.Begin(t, "", f.Bin, "adopt", "--store", f.Store, f.Dir)
		f.Must(daemon.Until("a moment of adopt", moments[i%len(moments)]))
		_ = p.Process.Signal(os.Interrupt)
		codes[p.Code()]++
		if p.Code() == 0 {
			f.Run("sync", f.Dir)
			if strings.Contains(log(), "msg=signal") {
				t.Fatalf("its daemon is to end: %s", p.Text())
			}
			f.same("adopted", f.Dir)
			f.Run("leave", f.Dir)
		}
		f.plain("left, or put back")
		f.Must(os.RemoveAll(f.Store))
	}
	t.Log("exit codes: ", codes)
}

// After a killed command each other one says that a move was begun, and what ends it.
func TestBegunIsTold(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Store = f.Dir + ".ckptfs"
	told := func(way string) {
		t.Helper()
		want := "did not end: `ckptfs " + way + " " + f.Dir + "` ends it"
		for _, command := range []string{"status", "stats", "du"} {
			out, code := f.RunFails(command, f.Dir)
			if code != 3 {
				t.Errorf("%s: exit code %d: %s", command, code, out)
			}
			mounttest.WantSaid(t, out, want)
			p := mounttest.Begin(t, "", f.Bin, command, f.Store)
			if code := p.Code(); code != 0 {
				t.Errorf("%s: exit code %d: %s", command, code, p.Text())
			}
			mounttest.WantSaid(t, p.Text(), want)
		}
		// A mount says so, too, and hinders nothing.
		at := filepath.Join(t.TempDir(), "at")
		p := mounttest.Begin(t, "", f.Bin, "mount", "--mkdir", f.Store, at)
		if code := p.Code(); code != 0 {
			t.Errorf("mount: exit code %d: %s", code, p.Text())
		}
		mounttest.WantSaid(t, p.Text(), want)
		f.Run("umount", at)
	}
	f.adoptCut()
	told("adopt")
	other := "leave"
	for range 2 {
		out, code := f.RunFails(other, f.Dir)
		if code != 4 {
			t.Errorf("%s: exit code %d: %s", other, code, out)
		}
		mounttest.WantSaid(t, out, "did not end: `ckptfs")
		f.journalOf("leave", filepath.Join(f.Store, "tree"))
		other = "adopt"
	}
	told("leave")
	f.Run("leave", f.Dir)
	f.plain("left")
	f.journal("leave")
	told("leave")
	f.Run("leave", f.Dir)
	f.plain("left")
}

// An adopt into a store that is not beside the folder is told of, too, where the folder was.
func TestBegunElsewhereIsTold(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.adoptCut()
	for _, at := range []string{f.Dir, f.Path("runs")} {
		out, code := f.RunFails("status", at)
		if code != 3 {
			t.Errorf("exit code %d: %s", code, out)
		}
		mounttest.WantSaid(t, out, "did not end: `ckptfs adopt --store "+f.Store+" "+f.Dir+"` ends it")
	}
	f.Must(f.adopt())
	f.Run("leave", f.Dir)
	f.plain("left")
	f.Must(os.Mkdir(f.Dir+"/empty", 0o755))
	f.Must(f.adopt())
	f.Run("leave", f.Dir)
	f.plain("left again")
}

// A leave that is interrupted says what is so then, and what goes on.
func TestLeaveInterrupted(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Store = f.Dir + ".ckptfs"
	f.Must(f.adopt())
	f.EvictAll()
	interrupted := 0
	for moment, is := range map[string]func() bool{
		"begun":     func() bool { return true },
		"journal":   func() bool { return f.inStore("moving") },
		"unmounted": func() bool { return len(f.mountedAt()) == 0 },
	} {
		p := mounttest.Begin(t, "", f.Bin, "leave", f.Dir)
		f.Must(daemon.Until("a moment of leave", is))
		_ = p.Process.Signal(os.Interrupt)
		switch p.Code() {
		case 0: // it was too late
			f.plain(moment)
			f.Must(f.adopt())
			f.EvictAll()
			continue
		case 130:
			interrupted++
		default:
			t.Logf("%s: exit code %d", moment, p.Code()) // it had not begun to look for signals
		}
		if !f.Mounted() {
			t.Fatalf("%s: it is not mounted: %s", moment, p.Text())
		}
		f.same(moment, f.Dir)
		if p.Code() != 130 {
			continue
		}
		if moment == "unmounted" {
			mounttest.WantSaid(t, p.Text(), f.Dir+" is mounted again")
		}
		mounttest.WantSaid(t, p.Text(), "`ckptfs leave "+f.Dir+"`")
	}
	if interrupted == 0 {
		t.Error("no leave was interrupted")
	}
	f.Run("leave", f.Dir)
	f.plain("left")
	p := mounttest.Begin(t, "", f.Bin, "leave", f.Dir)
	if p.Code() != 0 {
		t.Errorf("exit code %d: %s", p.Code(), p.Text())
	}
	mounttest.WantSaid(t, p.Text(), f.Dir+" is a plain folder already")
}

// Where a program wrote while the store was not mounted, both commands say what to do.
func TestTwoFolders(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Store = f.Dir + ".ckptfs"
	f.Must(f.adopt())
	f.Must(f.Stop())
	f.Must(os.WriteFile(f.Path("small.json"), []byte("later"), 0o600))
	do := fmt.Sprintf("mv %s %[1]s.aside && ckptfs adopt %[1]s", f.Dir)
	for _, command := range []string{"adopt", "leave"} {
		out, code := f.RunFails(command, f.Dir)
		if code != 8 {
			t.Errorf("%s: exit code %d: %s", command, code, out)
		}
		mounttest.WantSaid(t, out, "has files already", "`"+do+"`")
	}
	do = strings.ReplaceAll(do, "ckptfs adopt", f.Bin+" adopt")
	out, err := exec.Command("sh", "-ec", do).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.same("mounted", f.Dir)
	if b, err := os.ReadFile(f.Dir + ".aside/small.json"); string(b) != "later" {
		t.Errorf("%q, %v", b, err)
	}
}

// A leave that goes on after one was killed, and is interrupted, leaves it said that a move was begun.
func TestLeaveInterruptedAgain(t *testing.T) {
	f := newFolder(mounttest.Prepare(t, t.TempDir()))
	f.Store = f.Dir + ".ckptfs"
	f.Must(f.adopt())
	f.EvictAll()
	begun := func() bool { return f.inStore("moving") }
	p := mounttest.Begin(t, "", f.Bin, "leave", f.Dir)
	f.Must(daemon.Until("it is unmounted", func() bool { return begun() && len(f.mountedAt()) == 0 }))
	p.Kill()
	for _, how := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if !begun() {
			break // it had moved
		}
		p = mounttest.Begin(t, "", f.Bin, "leave", f.Dir)
		holds := fmt.Sprintf(`"pid":%d`, p.Process.Pid)
		f.Must(daemon.Until("it has the store", func() bool {
			b, _ := os.ReadFile(filepath.Join(f.Store, "lock"))
			return strings.Contains(string(b), holds) || !begun()
		}))
		_ = p.Process.Signal(how)
		if p.Code() == 0 {
			break // it was too late
		}
		if p.Code() != 130 || !begun() {
			t.Fatalf("exit code %d, begun is %v: %s", p.Code(), begun(), p.Text())
		}
		out, _ := f.RunFails("status", f.Dir)
		mounttest.WantSaid(t, out, "was begun", "`ckptfs leave "+f.Dir+"`")
	}
	f.Run("leave", f.Dir)
	f.plain("left")
}
