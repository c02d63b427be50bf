package tree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func acquire(t *testing.T, dir string) *Lock {
	t.Helper()
	l, err := Acquire(folder(t, dir), born)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	l := acquire(t, dir)
	if l.Before != (Holder{}) {
		t.Errorf("before the first: %+v", l.Before)
	}
	// flock belongs to the open file: a second open of this process is refused as another's is.
	_, err := Acquire(folder(t, dir), born)
	var locked *LockedError
	host, _ := os.Hostname()
	if !errors.As(err, &locked) || locked.Dir != dir || locked.Holder.PID != os.Getpid() ||
		locked.Holder.Host != host ||
		!locked.Holder.Started.Equal(born) || locked.Holder.Boot != BootID() || locked.Holder.Clean {
		t.Fatalf("%+v, %v", locked, err)
	}
	for _, part := range []string{dir, fmt.Sprint(os.Getpid()), host} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in %q", part, err)
		}
	}
	if err := l.Release(true); err != nil {
		t.Fatal(err)
	}
	l = acquire(t, dir)
	if !l.Before.Clean || l.Before.PID != os.Getpid() || l.Before.Boot != BootID() {
		t.Errorf("after a clean end: %+v", l.Before)
	}
	if err := l.Release(false); err != nil {
		t.Fatal(err)
	}
	l = acquire(t, dir)
	if l.Before.Clean || l.Before.PID != os.Getpid() {
		t.Errorf("after an unclean end: %+v", l.Before)
	}
	l.Release(true)
	if _, err := OpenStore(filepath.Join(dir, "none"), false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// A lock file that was cut short says nothing, least of all that the end was clean.
func TestLockTorn(t *testing.T) {
	whole := `{"host":"h","pid":7,"started":"2026-11-21T12:00:00Z","boot":"b","clean":true}`
	for _, text := range []string{"", "{", whole[:len(whole)-1], whole[:20], "\x00\x00\x00", "true"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "lock")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := acquire(t, dir)
		if l.Before.Clean || l.Before.PID == 0 || l.Before.Boot == BootID() {
			t.Errorf("%q: %+v", text, l.Before)
		}
		if err := l.Release(true); err != nil {
			t.Fatal(err)
		}
		if l = acquire(t, dir); !l.Before.Clean {
			t.Errorf("%q, then closed in order: %+v", text, l.Before)
		}
		l.Release(true)
	}
	// A longer line of an earlier holder leaves nothing behind.
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	if err := os.WriteFile(path, []byte(whole+strings.Repeat(" x", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	l := acquire(t, dir)
	defer l.Release(true)
	if !l.Before.Clean || l.Before.PID != 7 {
		t.Errorf("%+v", l.Before)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) > 300 {
		t.Errorf("%q, %v", b, err)
	}
}

// The kernel gives the lock of a process that died to the next one, who sees that the end was not clean.
func TestLockOfKilled(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestHoldLock$")
	cmd.Env = append(os.Environ(), "CKPTFS_TEST_HOLD="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := out.Read(make([]byte, 1)); err != nil { // it has it
		t.Fatal(err)
	}
	_, err = Acquire(folder(t, dir), born)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder.PID != cmd.Process.Pid {
		t.Errorf("%v, want process %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	l := acquire(t, dir)
	defer l.Release(true)
	if l.Before.Clean || l.Before.PID != cmd.Process.Pid || l.Before.Boot != BootID() {
		t.Errorf("%+v", l.Before)
	}
}

// TestHoldLock is the child of TestLockOfKilled.
func TestHoldLock(t *testing.T) {
	dir := os.Getenv("CKPTFS_TEST_HOLD")
	if dir == "" {
		return // run by itself it is nothing
	}
	l := acquire(t, dir)
	fmt.Println("locked")
	os.Stdin.Read(make([]byte, 1)) // until killed
	l.Release(true)
}

func TestLockedErrorWithoutHolder(t *testing.T) {
	err := &LockedError{Dir: "/store"}
	if got := err.Error(); got != "store /store is in use by another process" {
		t.Error(got)
	}
	err.Holder = Holder{PID: 7, Host: "h", Started: time.Now()}
	if got := err.Error(); !strings.Contains(got, "process 7 on h since") {
		t.Error(got)
	}
}

// A store that was taken and returned is in order if it was, and nothing that was noted of it is lost.
func TestReturn(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the first time nobody had it before
		if err := acquire(t, dir).Return(); err != nil {
			t.Fatal(err)
		}
		l := acquire(t, dir)
		if !l.Before.Clean {
			t.Errorf("in order before: %+v", l.Before)
		}
		l.Release(true)
	}
	l := acquire(t, dir)
	if err := l.NotTaken("a file"); err != nil {
		t.Fatal(err)
	}
	l.Abandon()
	for range 2 {
		if err := acquire(t, dir).Return(); err != nil {
			t.Fatal(err)
		}
	}
	l = acquire(t, dir)
	if l.Before.Clean || !l.Before.Failed || l.Before.Doubt != "a file" {
		t.Errorf("not in order before: %+v", l.Before)
	}
	l.Release(true)
}

// Where the kernel does not tell mounts apart, the filesystem may have been mounted again, unless it was in
// use all the time.
func TestSame(t *testing.T) {
	for _, c := range []struct {
		before, here Holder
		kept, same   bool
	}{
		{Holder{Boot: "a", Mount: 1}, Holder{Boot: "a", Mount: 1}, false, true},
		{Holder{Boot: "a", Mount: 1}, Holder{Boot: "a", Mount: 2}, false, false},
		{Holder{Boot: "a", Mount: 1}, Holder{Boot: "b", Mount: 1}, true, false},
		{Holder{Boot: "a"}, Holder{Boot: "a"}, false, false},
		{Holder{Boot: "a"}, Holder{Boot: "a"}, true, true},
	} {
		if l := (&Lock{Before: c.before, here: c.here, kept: c.kept}); l.Same() != c.same {
			t.Errorf("%+v: %v", c, l.Same())
		}
	}
	d := folder(t, t.TempDir())
	l, err := Acquire(d, born)
	if err != nil || l.kept {
		t.Fatalf("acquired: %+v, %v", l, err)
	}
	fd, err := unix.FcntlInt(uintptr(l.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Abandon()
	if l, err = Inherit(d, born, os.NewFile(uintptr(fd), "lock")); err != nil || !l.kept {
		t.Fatalf("inherited: %+v, %v", l, err)
	}
	l.Release(true)
}

func TestBootID(t *testing.T) {
	if id := BootID(); len(id) != 36 || id != BootID() {
		t.Errorf("%q", id)
	}
}

// A Release that the disk does not take says nowhere that the end was clean: not in the page cache either,
// where umount and the next start read it.
func TestReleaseNotSynced(t *testing.T) {
	dir := t.TempDir()
	l := acquire(t, dir)
	failed := errors.New("no space left on device")
	l.sync = func() error { return failed }
	if err := l.Release(true); !errors.Is(err, failed) {
		t.Errorf("released: %v", err)
	}
	if err := ClosedInOrder(dir, time.Now()); err == nil {
		t.Error("closed in order")
	}
	l = acquire(t, dir)
	if l.Before.Clean {
		t.Errorf("%+v", l.Before)
	}
	l.Release(true)
	if err := ClosedInOrder(dir, time.Now()); err != nil {
		t.Error(err)
	}
}

// A lock that another process keeps, for the next one to have it, stays held when this one abandons it.
func TestAbandon(t *testing.T) {
	dir := t.TempDir()
	kept := func(l *Lock) *os.File {
		fd, err := unix.FcntlInt(uintptr(l.Fd()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), LockFile)
	}
	l := acquire(t, dir)
	next := kept(l)
	if err := l.Abandon(); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(folder(t, dir), born); !errors.As(err, new(*LockedError)) || !Held(dir) {
		t.Errorf("taken by another: %v", err)
	}
	l, err := Inherit(folder(t, dir), born, next)
	if err != nil || l.Before.Clean {
		t.Fatalf("%+v, %v", l.Before, err)
	}
	if err := l.Release(true); err != nil {
		t.Fatal(err)
	}
	if l, err = AcquireShared(folder(t, dir)); err != nil {
		t.Fatal(err)
	}
	next = kept(l)
	if err := l.Abandon(); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(folder(t, dir), born); !errors.As(err, new(*LockedError)) {
		t.Errorf("taken beside a reader: %v", err)
	}
	next.Close()
	if Held(dir) {
		t.Error("held by nobody")
	}
}
