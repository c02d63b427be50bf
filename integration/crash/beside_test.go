package crash

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestLostBesideReader has the disk not take a local copy while a program reads it past the daemon, tell
// another process, and the daemon be killed: the page cache has the bytes, and nobody can be told any more.
// The copy does not become the file.
func TestLostBesideReader(t *testing.T) {
	d := mounttest.NewThinDisk(t, 96)
	m := mounttest.PrepareOn(d.Disk, "--hot-size", "1GiB")
	m.Must(m.Start())
	if m.Status().Mode != "passthrough" {
		t.Skip("no passthrough here")
	}
	want := mounttest.Noise(1, 3*mib)
	m.Write("x", want)
	m.Sync()
	reader, err := os.Open(m.Path("x"))
	m.Must(err)
	defer reader.Close()

	d.Starve()
	at := filepath.Join(m.Store, "tree", "x")
	st, err := os.Stat(at)
	m.Must(err)
	copied, err := os.OpenFile(at, os.O_RDWR, 0)
	m.Must(err)
	err = unix.Fallocate(int(copied.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, st.Size())
	if err == nil {
		_, err = copied.WriteAt(want, 0)
	}
	m.Must(err)
	if copied.Sync() == nil {
		t.Fatal("the disk is no bad one")
	}
	m.Must(os.Chtimes(at, st.ModTime(), st.ModTime()))
	m.Must(copied.Close())
	d.Feed()
	m.Must(m.KillDaemon())

	got := make([]byte, len(want))
	if _, err := reader.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the page cache is no good one: %v", err)
	}
	for range 2 {
		f, err := os.OpenFile(m.Path("x"), os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, unix.EBUSY) {
			t.Errorf("opened for writing: %v", err)
		}
	}
	m.Must(reader.Close())
	var f *os.File
	m.Must(daemon.Until("the reader to be gone", func() bool { // the kernel tells of it after close(2)
		f, err = os.OpenFile(m.Path("x"), os.O_RDWR, 0)
		return !errors.Is(err, unix.EBUSY)
	}))
	m.Must(err)
	_, err = f.WriteAt([]byte("new"), 5)
	m.Must(errors.Join(err, f.Sync(), f.Close()))
	copy(want[5:], "new")
	d.Drop(at)
	m.Want("x", want)
	_, _ = m.RunOutcome("umount", "--no-wait", m.Dir) // the kernel had more to tell
	m.Must(d.Unmount())
}
