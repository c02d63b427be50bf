package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

// TestCorruptChunk: reads that need a damaged chunk fail with EIO and are logged by file and tensor; nothing
// else is touched.
func TestCorruptChunk(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const n = 2 * mib
		names := []string{"layer.0.weight", "layer.1.weight", "layer.2.weight"}
		data := [][]byte{mounttest.Noise(1, n), mounttest.Noise(2, n), mounttest.Noise(3, n)}
		whole, start := mounttest.SafetensorsOf(names, data)
		m.Write("runs/a/1/x.safetensors", whole)
		m.Write("other", mounttest.Noise(4, 3*mib))
		m.Evict("runs/a/1/x.safetensors", "other")
		m.Must(m.Stop())
		m.Damage(data[1][mib+1000 : mib+1064]) // tensors are cut every 256 KiB: the fifth chunk of the second
		m.Must(m.Start())

		read := func(off, n int) ([]byte, error) {
			f, err := os.Open(m.Path("runs/a/1/x.safetensors"))
			m.Must(err)
			defer f.Close()
			_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM)
			p := make([]byte, n)
			_, err = f.ReadAt(p, int64(off))
			return p, err
		}
		if _, err := read(start+n+mib, 4096); !errors.Is(err, unix.EIO) {
			t.Errorf("reading the damaged chunk: %v, want EIO", err)
		}
		if _, err := os.ReadFile(m.Path("runs/a/1/x.safetensors")); !errors.Is(err, unix.EIO) {
			t.Errorf("reading the whole damaged file: %v, want EIO", err)
		}
		// The kernel reads pages: those at the edges of the damaged chunk have bytes of it.
		const page = 4096
		first, last := start+n+mib, start+n+mib+256<<10
		for _, r := range []struct{ from, to int }{
			{0, start + n}, {start + n, first &^ (page - 1)}, {(last + page) &^ (page - 1), start + 2*n},
			{start + 2*n, start + 3*n},
		} {
			p, err := read(r.from, r.to-r.from)
			if err != nil {
				t.Errorf("reading [%d, %d), which is not damaged: %v", r.from, r.to, err)
			} else if !bytes.Equal(p, whole[r.from:r.to]) {
				t.Errorf("[%d, %d): %s", r.from, r.to, mounttest.Difference(whole[r.from:r.to], p))
			}
		}
		m.Want("other", mounttest.Noise(4, 3*mib))
		m.Must(daemon.Until("the log to tell of the damage", func() bool {
			log := m.LogText()
			return bytes.Contains([]byte(log), []byte("runs/a/1/x.safetensors")) && bytes.Contains([]byte(log), []byte(names[1]))
		}))
		// The daemon serves on; hydrating what cannot be whole fails and leaves no half copy.
		said, code := m.RunOutcome("hydrate", m.Path("runs/a/1/x.safetensors"))
		if state := m.Show("runs/a/1/x.safetensors").State; state != mounttest.Packed {
			t.Errorf("hydrating a damaged file: exit status %d (%s), and it is %q", code, said, state)
		}
		m.Write("fresh", []byte("fresh"))
		m.Want("fresh", []byte("fresh"))
	}, "--hot-size", "0")
}

// TestRotInASmallFile: a file that is not packed gets a checksum when it has rested, and check names it when
// a byte of it has changed.
func TestRotInASmallFile(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("config.json", []byte(`{"hidden_size": 768}`))
	before, err := os.Stat(m.Path("config.json"))
	m.Must(err)
	inode := filepath.Join(m.Store, "tree", "config.json")
	m.Must(daemon.Until("the file to have a checksum", func() bool {
		n, err := unix.Getxattr(inode, "user.ckptfs", nil)
		return err == nil && n > 0
	}))
	after, err := os.Stat(m.Path("config.json"))
	m.Must(err)
	if a, b := after.Sys().(*syscall.Stat_t), before.Sys().(*syscall.Stat_t); a.Ctim != b.Ctim ||
		a.Mtim != b.Mtim {
		t.Errorf("its times were %v and %v, and are %v and %v", b.Mtim, b.Ctim, a.Mtim, a.Ctim)
	}
	m.Run("check", "--read-data", m.Store)
	m.Must(m.Stop())
	f, err := os.OpenFile(inode, os.O_RDWR, 0)
	m.Must(err)
	_, err = f.WriteAt([]byte("9"), 17)
	m.Must(err)
	m.Must(f.Close())
	m.Must(os.Chtimes(inode, time.Time{}, before.ModTime()))
	m.Must(m.Start())
	out, err := m.CLI("check", "--read-data", m.Store)
	var exit *daemon.ExitError
	if !errors.As(err, &exit) || exit.Code != 6 || !strings.Contains(out, "config.json") ||
		!strings.Contains(out, "checksum") {
		t.Errorf("%v: %s", err, out)
	}
	m.Write("config.json", []byte(`{"hidden_size": 768}`))
	m.Run("check", "--read-data", m.Store)
}

// TestDamagedIndex: an index.db that is not one any more is as good as none.
func TestDamagedIndex(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	for i := range 4 {
		m.Write(fmt.Sprintf("f%d", i), mounttest.Noise(uint64(i), mib))
	}
	m.Sync()
	m.Run("evict", m.Dir)
	m.Must(m.Stop())
	m.Must(os.WriteFile(filepath.Join(m.Store, "index.db"), mounttest.Noise(9, 64<<10), 0o600))
	m.Must(m.Start())
	for i := range 4 {
		m.Want(fmt.Sprintf("f%d", i), mounttest.Noise(uint64(i), mib))
	}
}

// TestCheckOfADamagedIndex: the first check of a store whose index is damaged says so, and leaves the store
// closed in order. It rebuilds an index that cannot be opened, and names the repair of another.
func TestCheckOfADamagedIndex(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	for i := range 4 {
		m.Write(fmt.Sprintf("f%d", i), mounttest.Noise(uint64(i), mib))
	}
	m.Sync()
	m.Must(m.Stop())
	index, lock := filepath.Join(m.Store, "index.db"), filepath.Join(m.Store, "lock")
	whole, err := os.ReadFile(index)
	m.Must(err)
	rebuilt := 0
	for page := range min(len(whole)/4096, 8) {
		bad := bytes.Clone(whole)
		bad[page*4096+8] ^= 0xff // the page's kind
		m.Must(os.WriteFile(index, bad, 0o600))
		for range 2 {
			out, err := exec.Command(m.Bin, "check", m.Store).CombinedOutput()
			said := "no damage found"
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == 6 {
				said, err = "ckptfs repair index", nil
			}
			if err != nil || !bytes.Contains(out, []byte(said)) ||
				bytes.Contains(out, []byte("not closed in order")) {
				t.Errorf("page %d: %v: %s", page, err, out)
			}
			if bytes.Contains(out, []byte("index rebuilt")) {
				rebuilt++
			}
			if held, err := os.ReadFile(lock); err != nil || !bytes.Contains(held, []byte(`"clean":true`)) {
				t.Errorf("page %d: %v: the lock says %s", page, err, held)
			}
		}
	}
	if rebuilt == 0 {
		t.Error("no damage was met")
	}
	m.Must(m.Start())
}
