package integration

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
)

// TestMaxUnpacked: closes wait for packing, so that what is not packed keeps to its bound; and for nothing that cannot be
// packed.
func TestMaxUnpacked(t *testing.T) {
	t.Parallel()
	m := newMount(t, "--max-unpacked", "8MiB", "--pack-cpus", "1")
	m.write("mapped", noise(99, 6*mib))
	f, err := os.OpenFile(m.path("mapped"), os.O_RDWR, 0)
	m.must(err)
	p, err := syscall.Mmap(int(f.Fd()), 0, 6*mib, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	m.must(err)
	m.must(f.Close())
	p[0]++
	const n = 24
	for i := range n {
		m.write(fmt.Sprint(i), noise(uint64(i), 4*mib))
		// Some more files may be closed and not yet released by the kernel, on a busy machine; 102 MiB are written in all.
		if s := m.status(); s.UnpackedBytes > (8+6+36)*mib {
			t.Errorf("%d MiB are not packed after %d files", s.UnpackedBytes/mib, i+1)
		}
	}
	m.write("large", noise(77, 20*mib)) // more than the bound, alone
	m.must(syscall.Munmap(p))
	m.sync()
	for i := range n {
		m.want(fmt.Sprint(i), noise(uint64(i), 4*mib))
	}
	if out := m.cli("status", m.Dir); !strings.Contains(out, "closes wait from 8.00 MiB") {
		t.Errorf("status does not tell the bound: %s", out)
	}
}

// TestPackingGivesWay: while others compute on all processors packing waits, and says so; whoever waits for it does not.
func TestPackingGivesWay(t *testing.T) {
	if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err != nil || p < 20 { // as the system call has it: 20 less what is nice
		t.Skip("at a low priority nothing gives way to the test")
	}
	m := newMount(t, "--pack-cpus", "0")
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
		m.write("f", noise(1, 4*mib)) // it may have been packed before the others were seen, or in a moment without them
		if strings.Contains(m.cli("status", m.Dir), "other programs use all processors; from ") && m.show("f").State == resident {
			break
		}
		if time.Now().After(end) {
			t.Fatal("packing does not wait")
		}
	}
	m.sync()
	m.wantState("f", both)
}

// TestPackingLeavesSpace: the last hundredth of a disk is not for packing.
func TestPackingLeavesSpace(t *testing.T) {
	t.Parallel()
	disk := mountDisk(t, "tmpfs", 128)
	m := prepare(t, disk)
	m.Log = t.TempDir() + "/log"
	m.must(m.Start())
	m.write("small", noise(1, mib))
	m.evict("small") // a cache would give way
	ballast, err := os.Create(disk + "/ballast")
	m.must(err)
	defer ballast.Close()
	var st syscall.Statfs_t
	m.must(syscall.Statfs(disk, &st))
	m.must(syscall.Fallocate(int(ballast.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-6*mib))
	m.write("large", noise(2, 5*mib)) // 1 MiB is left, and 1.28 MiB are not to be touched
	said, code := m.cliFails("sync", m.Dir)
	if code != exitFailure {
		t.Errorf("exit status %d", code)
	}
	wantSaid(t, said, "large", "packing leaves the last")
	if s := m.status(); len(s.Failures) != 1 || !strings.Contains(s.Failures[0].Reason, "packing leaves the last") {
		t.Errorf("%+v", s.Failures)
	}
	m.must(os.WriteFile(m.path("more"), noise(3, mib/2), 0o644)) // programs may
	m.want("large", noise(2, 5*mib))
	m.must(ballast.Truncate(0))
	m.sync()
	m.wantState("large", both)
	m.want("large", noise(2, 5*mib))
}
