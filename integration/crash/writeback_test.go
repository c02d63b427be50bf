package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestWritebackFails has a disk whose free blocks cannot be had any more when they are written: write(2)
// succeeds, writeback fails, once, and the pages are lost. What was packed and evicted is neither lost nor
// read wrong, and what is lost is named until it is written again.
func TestWritebackFails(t *testing.T) {
	d := mounttest.NewThinDisk(t, 96)
	m := mounttest.PrepareOn(d.Disk, "--hot-size", "20MiB")
	m.Must(m.Start())
	const name = "runs/a/1/model.bin"
	want := mounttest.Noise(1, 12*mib) // more than half of the bound: only a command hydrates it
	m.Write(name, want)
	m.Write("other.bin", want[:mib])
	m.Write("small/0", []byte("small"))
	m.Sync()
	m.Run("evict", m.Dir)
	same := func(when string) {
		t.Helper()
		d.Drop(filepath.Join(m.Store, "tree", name))
		got, err := os.ReadFile(m.Path(name))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: %s", when, mounttest.Difference(want, got))
		}
	}
	same("evicted")

	d.Starve()
	if out, code := m.RunOutcome("hydrate", m.Path(name)); code == 0 {
		t.Errorf("hydrate: done: %s", out)
	}
	same("hydrated on a bad disk")
	for i := range 3 {
		f, err := os.OpenFile(m.Path(name), os.O_RDWR, 0)
		if err == nil {
			_ = f.Close()
			t.Errorf("open %d for writing: done", i)
		}
		same(fmt.Sprint("opened for writing, ", i))
	}
	// Plain files: write(2) and close(2) say nothing.
	for i := range 100 {
		m.Write(fmt.Sprintf("small/%d", i), bytes.Repeat([]byte{byte(i), 7}, 20<<10))
	}
	for i := range 3 {
		out, code := m.RunOutcome("sync", m.Dir)
		if code == 0 {
			t.Fatalf("sync %d: done: %s", i, out)
		}
		if i > 0 && !strings.Contains(out, "small/") {
			t.Errorf("sync %d names no file: %s", i, out)
		}
	}
	lost := 0
	for i := range 100 {
		p := fmt.Sprintf("small/%d", i)
		d.Drop(filepath.Join(m.Store, "tree", p))
		got, err := os.ReadFile(m.Path(p))
		if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i), 7}, 20<<10)) {
			lost++
		}
	}
	out, err := exec.Command(mounttest.Bin, "status", m.Dir).CombinedOutput()
	// A loop device says of a write that it did in part that it was done: of those nobody can know.
	if err == nil || strings.Count(string(out), "\nlost: small/") < lost/2 {
		t.Errorf("%d files lost bytes; status: %v, %s", lost, err, out)
	}
	if lost == 0 {
		t.Error("nothing was lost: the disk is no bad one")
	}
	if out, code := m.RunOutcome("umount", m.Dir); code == 0 || !strings.Contains(out, "small/") {
		t.Errorf("umount: %d, %s", code, out)
	}

	d.Feed()
	for i := range 100 {
		m.Must(os.WriteFile(m.Path(fmt.Sprintf("small/%d", i)), []byte("written again"), 0o600))
	}
	_, _ = m.RunOutcome("sync", m.Dir) // the kernel may have more to tell
	m.Sync()
	m.Run("status", m.Dir)
	f, err := os.OpenFile(m.Path(name), os.O_RDWR, 0)
	m.Must(err)
	_, err = f.WriteAt([]byte("new"), 5)
	m.Must(errors.Join(err, f.Sync(), f.Close()))
	copy(want[5:], "new")
	same("with room again")
	m.Sync()
	m.Run("evict", m.Dir)
	same("packed again")
	if out, code := m.RunOutcome("umount", m.Dir); code == 0 || !strings.Contains(out, "not closed in order") {
		t.Errorf("an end after a sync that failed: %d, %s", code, out)
	}
	m.Must(m.Start())
	same("mounted again")
	m.Run("check", "--read-data", m.Dir)
	m.Run("umount", m.Dir)
	m.Must(d.Unmount())
}
