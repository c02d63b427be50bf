package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/cas"
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
	wantErr(t, "somebody's folder", err, ErrNotStore)
	if e, _ := os.ReadDir(dir); len(e) != 1 {
		t.Errorf("in the folder: %v", e)
	}
	r.close()
	replace(t, r.at("format"), "ckptfs 2", "ckptfs 3")
	_, err = Open(Options{Dir: r.dir, Create: true})
	wantErr(t, "a newer store", err, cas.ErrNewer)
	replace(t, r.at("format"), "ckptfs 3", "ckptfs 2")
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
