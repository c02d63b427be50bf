package procs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Whoever may write to a file of a folder is named, however it got there; a reader is not.
func TestWriting(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a file")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if who := Writing("/proc", dir); len(who) > 0 {
		t.Errorf("a reader: %q", who)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	named := func(how string) {
		t.Helper()
		if who := Writing("/proc", dir); len(who) != 1 || !strings.Contains(who[0], how+path) {
			t.Errorf("%s: %q", how, who)
		}
	}
	named("writes ")
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	named("maps ")
	if err := unix.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	if who := Writing("/proc", filepath.Join(dir, "a")); len(who) > 0 {
		t.Errorf("another folder: %q", who)
	}
}
