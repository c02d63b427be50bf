package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// What cannot be opened, and that the store stays as it is.
func TestOpenRefuses(t *testing.T) {
	r := newRig(t)
	r.write("f", []byte("x"))
	_, err := Open(Options{Dir: r.dir})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder.PID != os.Getpid() {
		t.Errorf("a store that is open: %v", err)
	}
	_, err = Open(Options{Dir: filepath.Join(t.TempDir(), "none")})
	wantErr(t, "no store", err, ErrNotStore)
	dir := t.TempDir()
	replaceFile(t, filepath.Join(dir, "thesis.tex"), []byte("x"))
	_, err = Open(Options{Dir: dir, Create: true})
	wantErr(t, "a folder of other files", err, ErrNotStore)
	if e, _ := os.ReadDir(dir); len(e) != 1 {
		t.Errorf("in the folder: %v", e)
	}
	r.close()
	format, err := os.ReadFile(r.at("format"))
	if err != nil {
		t.Fatal(err)
	}
	replace(t, r.at("format"), "ckptfs 4", "ckptfs 5")
	_, err = Open(Options{Dir: r.dir, Create: true})
	wantErr(t, "a newer store", err, cas.ErrNewer)
	replaceFile(t, r.at("format"), []byte("ckptfs 2\nid a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\ncreated 2026-11-21T11:00:00Z\nsum 47f6f557\n"))
	_, err = Open(Options{Dir: r.dir, Create: true})
	wantErr(t, "an older store", err, tree.ErrOlder)
	if !strings.Contains(err.Error(), "store format 2: this program reads format 4 only: copy the files out") {
		t.Errorf("an older store: %v", err)
	}
	replaceFile(t, r.at("format"), format)
	r = openRig(t, r.dir)
	r.same("f", []byte("x"))
}

// A store is in use until Close, and again after a process was killed that had it.
func TestReopenAfterKill(t *testing.T) {
	r := newRig(t)
	r.write("f", []byte("x"))
	r.close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestHoldStore$", "-test.v")
	cmd.Env = append(os.Environ(), "CKPTFS_TEST_HOLD="+r.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var locked *LockedError
	r.eventually("the child holds the store", func() bool {
		v, err := Open(Options{Dir: r.dir})
		if err == nil {
			v.Close(t.Context())
			time.Sleep(10 * time.Millisecond)
		}
		return errors.As(err, &locked) && locked.Holder.PID == cmd.Process.Pid
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	r = openRig(t, r.dir)
	if !r.log.has("not closed in order") {
		t.Errorf("reported: %s", r.log)
	}
	r.same("f", []byte("x"))
}

// TestHoldStore is the child of TestReopenAfterKill: it opens a store and keeps it.
func TestHoldStore(t *testing.T) {
	dir := os.Getenv("CKPTFS_TEST_HOLD")
	if dir == "" {
		return // run by itself it is nothing
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := Open(Options{Dir: dir}); err == nil {
			os.Stdin.Read(make([]byte, 1)) // until killed
			return
		}
	}
}
