package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestStorePrunesItself writes and removes twice as much as the disk has room for, and nobody prunes. The
// store does so while less than a fiftieth is free, and says so; no write finds the disk full, and what was
// not removed is whole.
func TestStorePrunesItself(t *testing.T) {
	t.Parallel()
	const size, n, kept = 192 << 20, 2 * mib, 3
	d := mounttest.NewDisk(t, "ext4", size)
	m := mounttest.PrepareOn(d, "--hot-size", "0")
	m.Log = filepath.Join(t.TempDir(), "log") // on another disk
	m.Must(m.Start())
	name := func(i int) string { return fmt.Sprintf("runs/a/%d/model.bin", i) }
	last, prunes := "", 0
	for i := range 2 * size / n {
		m.Write(name(i), mounttest.Noise(uint64(i), n))
		m.Sync()
		if i >= kept {
			m.Must(os.Remove(m.Path(name(i - kept))))
		}
		if free(t, d.Dir) < size/50 {
			m.Must(daemon.Until("the store to be pruned by itself", func() bool { return free(t, d.Dir) > size/4 }))
		}
		if p := m.Status().LastPrune; p.At != last {
			last = p.At
			prunes++
			if !p.ByItself || p.FreedBytes < size/4 {
				t.Errorf("status says %+v", p)
			}
		}
	}
	if prunes < 2 {
		t.Errorf("%d prunes: too little was written", prunes)
	}
	mounttest.WantSaid(t, m.Run("status", m.Dir), "by itself, for the disk fills up")
	// The watch of the disk is the first to see it, or a packing that has no room.
	mounttest.WantSaid(t, m.LogText(), ": the store was pruned")
	for i := 2*size/n - kept; i < 2*size/n; i++ {
		m.Want(name(i), mounttest.Noise(uint64(i), n))
	}
	mounttest.WantSaid(t, m.Run("check", "--read-data", m.Dir), "no damage found")
	m.Must(m.Stop())
	m.Must(d.Unmount())
}
