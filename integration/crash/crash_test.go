package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

// TestKilledInTheMiddle kills the daemon at random moments, of writing and of packing, over and over. Every
// file whose close returned is there, whole, after the next mount.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const rounds = 6
		closed := map[string][]byte{}
		seed := uint64(0)
		for round := range rounds {
			var wg sync.WaitGroup
			var mu sync.Mutex
			started := make(chan struct{})
			begun := sync.OnceFunc(func() { close(started) })
			for w := range 2 {
				wg.Go(func() {
					for i := 0; ; i++ {
						mu.Lock()
						seed++
						data := mounttest.Noise(seed, 100_000+int(seed*999_331%(2*mib)))
						mu.Unlock()
						name := fmt.Sprintf("r%d-w%d-%d", round, w, i)
						if writeSlowly(m.Path(name), data) != nil {
							return // the daemon is dead
						}
						mu.Lock()
						closed[name] = data
						mu.Unlock()
						begun()
					}
				})
			}
			<-started
			// Not a wait for something, but the moment of the blow: anywhere in the work of the next files.
			time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
			m.Kill()
			wg.Wait()
			m.Must(m.Start())
			for name, data := range closed {
				m.Want(name, data)
			}
			// What was open when it died has the bytes of its beginning, and can be read.
			for _, name := range m.Names("") {
				if _, ok := closed[name]; ok {
					continue
				}
				_, err := os.ReadFile(m.Path(name))
				m.Must(err)
				m.Must(os.Remove(m.Path(name)))
			}
			if round%2 == 1 { // the next round starts with all of it packed, and evicted
				m.Sync()
				m.Run("evict", m.Dir)
			}
		}
		t.Logf("%d files closed in %d lives of the daemon", len(closed), rounds)
		m.Sync()
		m.Run("evict", m.Dir)
		for name, data := range closed {
			m.Want(name, data)
		}
	})
}

func writeSlowly(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for r := bytes.NewBuffer(data); r.Len() > 0; {
		if _, err := f.Write(r.Next(100_000)); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

// TestHandlesOfTheDead: handles that were open when the daemon died give errors or bytes, and hold up neither
// the next mount nor what it serves.
func TestHandlesOfTheDead(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		data := mounttest.Noise(1, 2*mib)
		m.Write("a", data)
		m.Write("b", data)
		m.Evict("a")
		a, err := os.Open(m.Path("a"))
		m.Must(err)
		defer a.Close()
		b, err := os.OpenFile(m.Path("b"), os.O_RDWR, 0)
		m.Must(err)
		defer b.Close()
		m.Kill()
		m.Must(m.Start())
		m.Want("a", data)
		// Through passthrough this still reaches the file; either way b stays readable.
		_, werr := b.WriteAt([]byte("late"), 10)
		b.Close()
		if werr == nil {
			copy(data[10:], "late")
		}
		m.Sync()
		m.Want("b", data)
		a.Close() // the dead daemon's mount goes with it, and what that holds open
		m.Evict("b")
		m.Want("b", data)
	})
}

// TestKilledAtTheStart kills mounts as soon as the kernel knows of them. A daemon with a file of its own
// mount open could not die: the kernel would wait for it to answer the close.
func TestKilledAtTheStart(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	data := mounttest.Noise(1, mib)
	m.Write("x", data)
	m.Must(m.Stop())
	for i := range 30 {
		cmd := exec.Command(m.Bin, "mount", "-f", m.Store, m.Dir)
		m.Must(cmd.Start())
		m.Must(daemon.Until("the kernel to know of the mount", func() bool {
			mounts, err := os.ReadFile("/proc/self/mounts")
			return err != nil || bytes.Contains(mounts, []byte(" "+m.Dir+" fuse"))
		}))
		time.Sleep(time.Duration(i) * 60 * time.Microsecond)
		ended := make(chan error, 1)
		go func() {
			_ = cmd.Process.Kill() // the holder
			_ = cmd.Wait()
			ended <- m.End() // the daemon
		}()
		select {
		case <-ended:
		case <-time.After(daemon.Patience):
			t.Fatalf("killed %d µs after its mount, the daemon does not end (abort it: /sys/fs/fuse/connections)", i*60)
		}
		// A daemon that learns that its holder is gone before it is ready unmounts.
		if err := unix.Unmount(m.Dir, unix.MNT_DETACH); err != unix.EINVAL {
			m.Must(err)
		}
	}
	m.Must(m.Start())
	m.Want("x", data)
}
