package commands

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
	"ckptfs/index/chunks"
	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// resident is what of a daemon's memory is its own, and what the kernel keeps of files for it, in bytes.
func memoryOf(m *mounttest.Mount) (own, files int64) {
	m.T.Helper()
	for key, to := range map[string]*int64{"RssAnon": &own, "RssFile": &files} {
		n, err := daemon.Memory(m.DaemonPID(), key)
		m.Must(err)
		*to = n
	}
	return own, files
}

// extent is an iovec of another process.
type extent struct{ base, len uint64 }

// mappingOf is where a process has a file mapped.
func mappingOf(t *testing.T, pid int, file string) extent {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 6 || words[5] != file {
			continue
		}
		from, to, _ := strings.Cut(words[0], "-")
		a, _ := strconv.ParseUint(from, 16, 64)
		b, _ := strconv.ParseUint(to, 16, 64)
		return extent{a, b - a}
	}
	t.Fatalf("process %d does not map %s", pid, file)
	return extent{}
}

// TestMemoryBesideALargeIndex: --memory bounds what is the daemon's own, however large the index is. The index's pages that it
// touched come on top; they are the disk's, clean, and the kernel takes them when it wants them.
func TestMemoryBesideALargeIndex(t *testing.T) {
	t.Parallel()
	const memory, known = 64 * mib, 2_000_000
	m := mounttest.New(t, "--memory", "64MiB", "--hot-size", "0")
	m.Write("first", mounttest.Noise(1, mib))
	m.Sync()
	m.Must(m.Stop())

	d, err := tree.OpenStore(m.Store, false)
	m.Must(err)
	defer d.Close()
	format, err := tree.ReadFormat(d)
	m.Must(err)
	path := filepath.Join(m.Store, tree.IndexFile)
	db, err := chunks.Open(path, chunks.Options{StoreID: format.ID, NoSync: true})
	m.Must(err)
	mark, err := db.Watermark()
	m.Must(err)
	g, entries := rand.NewChaCha8([32]byte{1}), make([]cas.Entry, known)
	for i := range entries { // of what nobody asks for
		g.Read(entries[i].Hash[:])
		entries[i].Location = cas.Location{Segment: 1, Off: 64 + 8*int64(i), Stored: 8, Raw: 8,
			Kind: cas.Chunk}
	}
	m.Must(db.Commit(entries, mark))
	size, err := db.Size()
	m.Must(err)
	m.Must(db.Close())

	m.Must(m.Start())
	own := watchMemory(m)
	m.Want("first", mounttest.Noise(1, mib))
	const tensors = 4096
	names, data, all := make([]string, tensors), make([][]byte, tensors), mounttest.Noise(2, 32*mib)
	for i := range names {
		names[i], data[i] = fmt.Sprint("t", i), all[i*8<<10:(i+1)*8<<10]
	}
	for i := range 3 {
		all[0]++ // and with it the first tensor
		file, _ := mounttest.SafetensorsOf(names, data)
		m.Write(fmt.Sprint("model", i, ".safetensors"), file)
		m.Sync()
		m.Evict(fmt.Sprint("model", i, ".safetensors"))
		m.Want(fmt.Sprint("model", i, ".safetensors"), file)
	}
	_, files := memoryOf(m)
	t.Logf("an index of %d MiB: at most %d MiB of its own, %d MiB of files", size/mib, own.peak()/mib, files/mib)
	if own.peak() > memory {
		t.Errorf("the daemon took %d MiB with --memory 64MiB", own.peak()/mib)
	}

	// The kernel takes the index's pages back when it is told to, and the daemon goes on.
	pidfd, err := unix.PidfdOpen(m.DaemonPID(), 0)
	if err != nil {
		t.Logf("whether the pages can go was not tried: %v", err)
		return
	}
	defer unix.Close(pidfd)
	at := mappingOf(t, m.DaemonPID(), path)
	// it is mapped with room to grow
	at.len = uint64(size) &^ 4095
	m.Must(daemon.Until("the kernel to take the index's pages", func() bool { // what is being written it leaves
		if _, _, errno := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(pidfd),
			uintptr(unsafe.Pointer(&at)), 1, unix.MADV_PAGEOUT, 0, 0); errno != 0 {
			t.Logf("whether the pages can go was not tried: %v", errno)
			return true
		}
		_, now := memoryOf(m)
		return now < files-size/3
	}))
	_, now := memoryOf(m)
	t.Logf("and now %d MiB of files", now/mib)
	m.Want("first", mounttest.Noise(1, mib))
}
