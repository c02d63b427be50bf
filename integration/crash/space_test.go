package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

// smallDisk mounts an ext4 of n MiB and returns its folder.
func smallDisk(t *testing.T, n int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a small filesystem")
	}
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	script := `truncate -s "$2"M "$1" && mkfs.ext4 -q -m 0 "$1" && mount -o loop "$1" "$3"`
	if out, err := exec.Command("sh", "-c", script, "sh", image, fmt.Sprint(n),
		dir).CombinedOutput(); err != nil {
		t.Logf("no loop device here, tmpfs instead: %s", out)
		if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=755", n)); err != nil {
			mounttest.Missing(t, "neither an ext4 image nor a tmpfs can be mounted here: %v", err)
		}
	}
	t.Cleanup(func() {
		err := daemon.Within(daemon.Patience/4, "the small disk to be idle", func() bool { return unix.Unmount(dir, 0) == nil })
		if err != nil {
			t.Error(err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

// TestFullDisk: the writer gets ENOSPC, what was closed before stays whole, and packing goes on when there is
// space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"passthrough", "served"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			disk := smallDisk(t, 256)
			ballast := filepath.Join(disk, "ballast")
			m := mounttest.Prepare(t, disk, map[string][]string{"served": {"--no-passthrough"}}[mode]...)
			m.Log = filepath.Join(t.TempDir(), "log") // on another disk
			m.Must(m.Start())
			b, err := os.Create(ballast)
			m.Must(err)
			m.Must(unix.Fallocate(int(b.Fd()), 0, 0, 120*mib))
			m.Must(b.Close())

			const n = 6 * mib
			closed := 0
			var full error
			for i := 0; full == nil && i < 100; i++ {
				if full = os.WriteFile(m.Path(fmt.Sprint(i)), mounttest.Noise(uint64(i), n),
					0o644); full == nil {
					closed++
				}
			}
			t.Logf("%d files of 6 MiB closed, then: %v", closed, full)
			if !errors.Is(full, unix.ENOSPC) {
				t.Fatalf("writing to a full disk: %v, want ENOSPC", full)
			}
			if closed < 5 {
				t.Errorf("only %d files fitted into 120 MiB", closed)
			}
			for i := range closed {
				m.Want(fmt.Sprint(i), mounttest.Noise(uint64(i), n))
			}
			m.Run("stats", m.Dir)
			m.Run("status", m.Dir)

			m.Must(os.Remove(ballast))
			m.Must(os.Remove(m.Path(fmt.Sprint(closed)))) // what did not fit
			m.Sync()
			for i := range closed {
				m.WantState(fmt.Sprint(i), mounttest.Packed, mounttest.Resident)
			}
			if s := m.Status(); len(s.Failures) > 0 {
				t.Errorf("failures are still told of: %+v", s.Failures)
			}
			m.Write("after", mounttest.Noise(200, n))
			m.Sync()
			m.Run("evict", m.Dir)
			m.Want("after", mounttest.Noise(200, n))
			m.Remount()
			for i := range closed {
				m.Want(fmt.Sprint(i), mounttest.Noise(uint64(i), n))
			}
		})
	}
}

// TestFullDiskKilled: killed on a full disk, the store has all that was closed: at once, or where the start
// itself needs space, as soon as there is some.
func TestFullDiskKilled(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 192)
	m := mounttest.Prepare(t, disk)
	m.Log = filepath.Join(t.TempDir(), "log")
	m.Must(m.Start())
	ballast := filepath.Join(disk, "ballast")
	m.Must(os.WriteFile(ballast, make([]byte, 16*mib), 0o644))
	closed := 0
	for ; closed < 100; closed++ {
		if os.WriteFile(m.Path(fmt.Sprint(closed)), mounttest.Noise(uint64(closed), 5*mib), 0o644) != nil {
			break
		}
	}
	m.Kill()
	if err := m.Start(); err != nil {
		t.Logf("mounting on a full disk: %v", err)
		mounttest.WantSaid(t, err.Error(), "no space")
		m.Must(os.Remove(ballast))
		m.Must(m.Start())
	}
	for i := range closed {
		m.Want(fmt.Sprint(i), mounttest.Noise(uint64(i), 5*mib))
	}
	// What cannot be packed for want of space keeps umount from saying that all is well, and nobody from
	// leaving.
	if said, code := m.RunOutcome("umount", m.Dir); code != 0 {
		mounttest.WantSaid(t, said, "space")
		m.Run("umount", "--no-wait", m.Dir)
	}
}

// TestNearlyFullDisk: two files that do not fit beside their packed copies are packed all the same, one after
// the other; one for which there is no room says how much to free, and is packed once a file was deleted.
func TestNearlyFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 128)
	m := mounttest.Prepare(t, disk)
	m.Log = filepath.Join(t.TempDir(), "log")
	m.Must(m.Start())
	const n = 36 * mib
	m.Write("a", mounttest.Noise(1, n))
	if s := m.Status(); s.UnpackedBytes > 0 && m.Taken() < n {
		t.Errorf("the close of the first file did not wait: %d bytes are not packed", s.UnpackedBytes)
	}
	m.Write("b", mounttest.Noise(2, n))
	m.Sync()
	for i, name := range []string{"a", "b"} {
		m.WantState(name, mounttest.Packed, mounttest.Resident)
		m.Want(name, mounttest.Noise(uint64(i+1), n))
	}
	m.Evict("a", "b")

	left := free(t, disk)
	m.Must(os.WriteFile(m.Path("c"), mounttest.Noise(3, int(left)*3/5), 0o644))
	said, code := m.RunFails("sync", m.Dir)
	if code != 1 {
		t.Errorf("exit status %d", code)
	}
	mounttest.WantSaid(t, said, "c could not be packed", "free at least ", "MiB, or move a file away; then `ckptfs sync`")
	if now := free(t, disk); now < left*2/5-4*mib {
		t.Errorf("what the attempt wrote is not given back: %d bytes are free", now)
	}
	said, code = m.RunFails("umount", m.Dir)
	if code != 1 {
		t.Errorf("exit status %d", code)
	}
	mounttest.WantSaid(t, said, "not unmounted", "--no-wait", "free at least ")
	m.Must(os.Remove(m.Path("a")))
	m.Sync() // no prune is needed
	m.WantState("c", mounttest.Packed, mounttest.Resident)
	m.Want("b", mounttest.Noise(2, n))
	m.Remount()
	m.Want("c", mounttest.Noise(3, int(left)*3/5))
}

// TestRemovedFreesAFullDisk: when all files are removed that a full disk has no room to pack, their room is
// free at once, without a sync. Nothing is told of them, and files can be written again.
func TestRemovedFreesAFullDisk(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"passthrough", "served"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			disk := smallDisk(t, 192)
			m := mounttest.Prepare(t, disk, map[string][]string{"served": {"--no-passthrough"}}[mode]...)
			m.Log = filepath.Join(t.TempDir(), "log")
			m.Must(m.Start())
			empty := free(t, disk)
			var full error
			for i := 0; full == nil && i < 8; i++ {
				full = os.WriteFile(m.Path(fmt.Sprint(i)), mounttest.Noise(uint64(i), int(empty*3/10)), 0o644)
			}
			if !errors.Is(full, unix.ENOSPC) {
				t.Fatalf("writing to a full disk: %v, want ENOSPC", full)
			}
			m.RunOutcome("sync", m.Dir) // it fails, unless packing kept pace with the writes
			for _, name := range m.Names("") {
				m.Must(os.Remove(m.Path(name)))
			}
			taken := m.Taken() // by what was packed
			err := daemon.Within(daemon.Patience/20, "the room of the removed files to be free", func() bool {
				return free(t, disk) >= empty-taken-8*mib
			})
			if err != nil {
				t.Errorf("%v: %d bytes are free of %d, and the segments take %d", err, free(t, disk), empty, taken)
			}
			if s := m.Status(); len(s.Failures) > 0 || s.UnpackedBytes > 0 {
				t.Errorf("status tells of %+v", s)
			}
			m.Write("again", mounttest.Noise(9, 8*mib))
			m.Run("prune", "--grace", "0", m.Dir)
			m.Sync()
			m.Want("again", mounttest.Noise(9, 8*mib))
			m.Remount()
			m.Want("again", mounttest.Noise(9, 8*mib))
		})
	}
}
