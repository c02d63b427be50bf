package tree

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Names that lead to another's file, which is neither written over nor made longer.
func TestHostileLinks(t *testing.T) {
	names := []string{WritingFile + ".new", WritingFile, ReserveFile, LockFile, FormatFile + ".new"}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			if err := makeStore(dir); err != nil {
				t.Fatal(err)
			}
			victim := filepath.Join(filepath.Dir(dir), "victim")
			was := []byte("not ours\n")
			if err := os.WriteFile(victim, was, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if w, err := OpenWriting(folder(t, dir), true, false); err == nil {
				w.Close()
			}
			_, _ = Reserve(folder(t, dir))
			if l, err := Acquire(folder(t, dir), time.Now()); err == nil {
				_ = l.Release(true)
			}
			_ = WriteSynced(folder(t, dir), FormatFile, []byte("x"))
			if is, err := os.ReadFile(victim); err != nil || !bytes.Equal(is, was) {
				t.Errorf("the other file is %d bytes now, %v", len(is), err)
			}
		})
	}
}

// A FIFO is refused at once: nobody would ever write to it.
func TestOwnFIFO(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{FormatFile, LockFile} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadFormat(folder(t, dir)); err == nil {
		t.Error("a FIFO is a format")
	}
	if _, err := AcquireShared(folder(t, dir)); err == nil {
		t.Error("a FIFO is a lock")
	}
}
