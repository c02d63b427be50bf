package commands

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestMaxUnpacked: closes wait for packing, so that what is not packed keeps to its bound; and for nothing
// that cannot be packed.
func TestMaxUnpacked(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--max-unpacked", "8MiB", "--pack-cpus", "1")
	m.Write("mapped", mounttest.Noise(99, 6*mib))
	f, err := os.OpenFile(m.Path("mapped"), os.O_RDWR, 0)
	m.Must(err)
	p, err := syscall.Mmap(int(f.Fd()), 0, 6*mib, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	m.Must(err)
	m.Must(f.Close())
	p[0]++
	const n = 24
	for i := range n {
		m.Write(fmt.Sprint(i), mounttest.Noise(uint64(i), 4*mib))
		var s mounttest.Status
		m.Must(daemon.Until("the kernel to release the file", func() bool {
			s = m.Status()
			return s.OpenFiles <= 1 // the mapped one is open, unless the kernel maps it itself
		}))
		if s.UnpackedBytes > (8+6+4)*mib && !strings.Contains(m.LogText(), "packing stands still") {
			t.Errorf("%d MiB are not packed after %d files", s.UnpackedBytes/mib, i+1)
		}
	}
	m.Write("large", mounttest.Noise(77, 20*mib)) // more than the bound, alone
	m.Must(syscall.Munmap(p))
	m.Sync()
	for i := range n {
		m.Want(fmt.Sprint(i), mounttest.Noise(uint64(i), 4*mib))
	}
	if out := m.Run("status", m.Dir); !strings.Contains(out, "from 8.00 MiB on, closing a written file waits") {
		t.Errorf("status does not tell the bound: %s", out)
	}
}

// TestPackingGivesWay: while others compute on all processors packing waits, and says so; whoever waits for
// it does not.
func TestPackingGivesWay(t *testing.T) {
	// as the system call has it: 20 less what is nice
	if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err != nil || p < 20 {
		t.Skip("at a low priority nothing gives way to the test")
	}
	m := mounttest.New(t, "--pack-cpus", "0")
	var over atomic.Bool
	var others sync.WaitGroup
	for range 2 * runtime.NumCPU() {
		others.Go(func() {
			for !over.Load() {
			}
		})
	}
	defer others.Wait()
	defer over.Store(true)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		// it may have been packed before the others were seen, or in a moment without them
		m.Write("f", mounttest.Noise(1, 4*mib))
		if strings.Contains(m.Run("status", m.Dir), "other programs use all processors: packing waits until ") && m.Show("f").State == mounttest.Plain {
			break
		}
		if time.Now().After(end) {
			t.Fatal("packing does not wait")
		}
	}
	m.Sync()
	m.WantState("f", mounttest.Resident)
}

// TestPackingLeavesSpace: the last hundredth of a disk is not for packing.
func TestPackingLeavesSpace(t *testing.T) {
	t.Parallel()
	disk := mounttest.MountDisk(t, "tmpfs", 128)
	m := mounttest.Prepare(t, disk)
	m.Log = t.TempDir() + "/log"
	m.Must(m.Start())
	m.Write("small", mounttest.Noise(1, mib))
	m.Evict("small") // a cache would give way
	ballast, err := os.Create(disk + "/ballast")
	m.Must(err)
	defer ballast.Close()
	var st syscall.Statfs_t
	m.Must(syscall.Statfs(disk, &st))
	m.Must(syscall.Fallocate(int(ballast.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-6*mib))
	m.Write("large", mounttest.Noise(2, 5*mib)) // 1 MiB is left, and 1.28 MiB are not to be touched
	said, code := m.RunFails("sync", m.Dir)
	if code != exitFailure {
		t.Errorf("exit status %d", code)
	}
	mounttest.WantSaid(t, said, "large", m.Store, "packing leaves the last", "the store was pruned",
		"free at least 6.0 MiB, or move a file away; then `ckptfs sync`")
	if s := m.Status(); len(s.Failures) != 1 || !strings.Contains(s.Failures[0].Reason, "packing leaves the last") {
		t.Errorf("%+v", s.Failures)
	}
	m.Must(os.WriteFile(m.Path("more"), mounttest.Noise(3, mib/2), 0o644)) // programs may
	m.Want("large", mounttest.Noise(2, 5*mib))
	m.Must(ballast.Truncate(0))
	m.Sync()
	m.WantState("large", mounttest.Resident)
	m.Want("large", mounttest.Noise(2, 5*mib))
}
