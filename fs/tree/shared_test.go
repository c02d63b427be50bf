package tree

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSharedLock(t *testing.T) {
	dir := t.TempDir()
	if _, err := AcquireShared(folder(t, dir)); !errors.Is(err, ErrNeedsRecovery) {
		t.Errorf("a store that nobody had: %v", err)
	}
	w, err := Acquire(folder(t, dir), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := AcquireShared(folder(t, dir)); !errors.As(err, &locked) ||
		locked.Holder.PID != os.Getpid() ||
		!strings.Contains(err.Error(), "in use by process") {
		t.Errorf("beside a writer: %v", err)
	}
	if err := w.Release(false); err != nil {
		t.Fatal(err)
	}
	if _, err := AcquireShared(folder(t, dir)); !errors.Is(err, ErrNeedsRecovery) {
		t.Errorf("after a writer that did not close it: %v", err)
	}
	if w, err = Acquire(folder(t, dir), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := w.Release(true); err != nil {
		t.Fatal(err)
	}

	if Used(dir) {
		t.Error("used by nobody")
	}
	r, err := AcquireShared(folder(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if Held(dir) || !Used(dir) {
		t.Error("a reader is taken for a writer, or for nobody")
	}
	if err := r.Release(true); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, LockFile))
	if err != nil {
		t.Fatal(err)
	}
	a, err := AcquireShared(folder(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	b, err := AcquireShared(folder(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(folder(t, dir), time.Now()); !errors.As(err, &locked) ||
		!strings.Contains(err.Error(), "open to be read, by process") {
		t.Errorf("a writer beside readers: %v", err)
	}
	if err := errors.Join(a.Trust(), a.Release(true), b.Release(false)); err != nil {
		t.Error(err)
	}
	after, err := os.Stat(filepath.Join(dir, LockFile))
	if err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a reader wrote the lock: %v", err)
	}
	if w, err = Acquire(folder(t, dir), time.Now()); err != nil || !w.Before.Clean {
		t.Fatalf("after readers: %v", err)
	}
	if err := w.Release(true); err != nil {
		t.Error(err)
	}
}

func TestSharedLocksInProc(t *testing.T) {
	const locks = `1: FLOCK  ADVISORY  READ 4711 08:01:1234 0 EOF
2: FLOCK  ADVISORY  WRITE 4712 08:01:1234 0 EOF
3: POSIX  ADVISORY  READ 4713 08:01:1234 0 EOF
4: FLOCK  ADVISORY  READ 4714 00:2d:1234 0 EOF
5: FLOCK  ADVISORY  READ 4715 08:01:91234 0 EOF
5: -> FLOCK  ADVISORY  READ 4716 08:01:1234 0 EOF
`
	got := sharedLocks(bufio.NewScanner(strings.NewReader(locks)), 1234)
	if !slices.Equal(got, []int{4711, 4714}) {
		t.Errorf("%v", got)
	}
}
