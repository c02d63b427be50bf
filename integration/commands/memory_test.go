package commands

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// memoryWatch is the most memory of its own that a daemon was seen with. The kernel keeps such a number only
// for all that is resident, with the pages of mapped files, which are its cache.
type memoryWatch struct {
	mu  sync.Mutex
	max int64
}

func (w *memoryWatch) peak() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.max
}

// watchMemory looks every few milliseconds until the daemon or the test ends.
func watchMemory(m *mounttest.Mount) *memoryWatch {
	w := &memoryWatch{}
	pid := m.DaemonPID()
	go func() {
		for m.T.Context().Err() == nil {
			n, err := daemon.Memory(pid, "RssAnon")
			if err != nil {
				return
			}
			w.mu.Lock()
			w.max = max(w.max, n)
			w.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return w
}

// TestMemory: the daemon keeps to --memory while several clients write small tensors, pack them, and read
// them back cold. CKPTFS_MEMORY_TEST is the number of MiB; by default it is few, and one bound.
func TestMemory(t *testing.T) {
	total, bounds := 96, []int64{64}
	if s := os.Getenv("CKPTFS_MEMORY_TEST"); s != "" {
		var err error
		if total, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
		bounds = []int64{64, 128, 512}
	}
	const clients, each, tensors = 3, 16, 2048 // files of 16 MiB, tensors of 8 KiB
	for _, memory := range bounds {
		t.Run(fmt.Sprint(memory, " MiB"), func(t *testing.T) {
			m := mounttest.New(t, "--memory", fmt.Sprint(memory, "MiB"), "--hot-size", "0")
			own := watchMemory(m)
			names := make([]string, tensors)
			for i := range names {
				names[i] = fmt.Sprintf("model.layers.%d.weight", i)
			}
			model := func(n int) []byte {
				all := mounttest.Noise(uint64(n), each*mib)
				data := make([][]byte, tensors)
				for i := range data {
					data[i] = all[i*len(all)/tensors : (i+1)*len(all)/tensors]
				}
				file, _ := mounttest.SafetensorsOf(names, data)
				return file
			}
			files := total / each
			path := func(n int) string {
				return m.Path("runs", fmt.Sprint(n%clients), fmt.Sprint(n),
					"model.safetensors")
			}
			all := func(do func(n int) error) {
				t.Helper()
				var wg sync.WaitGroup
				for c := range clients {
					wg.Go(func() {
						for n := c; n < files; n += clients {
							if err := do(n); err != nil {
								t.Errorf("%s: %v", path(n), err)
							}
						}
					})
				}
				wg.Wait()
			}
			all(func(n int) error {
				if err := os.MkdirAll(filepath.Dir(path(n)), 0o755); err != nil {
					return err
				}
				return os.WriteFile(path(n), model(n), 0o644)
			})
			m.Sync()
			packing := own.peak()
			m.Run("evict", m.Dir)
			all(func(n int) error { // in order
				got, err := os.ReadFile(path(n))
				if err == nil && !bytes.Equal(got, model(n)) {
					err = fmt.Errorf("other bytes: %s", mounttest.Difference(model(n), got))
				}
				return err
			})
			all(func(n int) error { // here and there
				f, err := os.Open(path(n))
				if err != nil {
					return err
				}
				defer f.Close()
				want, buf := model(n), make([]byte, 4096)
				for i := range 500 {
					off := int64(i*7919*4096) % int64(len(want)-len(buf))
					if _, err := f.ReadAt(buf, off); err != nil && err != io.EOF {
						return err
					}
					if !bytes.Equal(buf, want[off:off+4096]) {
						return fmt.Errorf("other bytes at %d", off)
					}
				}
				return nil
			})
			peak := own.peak()
			t.Logf("%d MiB in files of %d tensors, %d clients: %d MiB after packing, %d MiB after reading; with pages of the index %d MiB",
				total, tensors, clients, packing/mib, peak/mib, m.PeakRSS()/mib)
			if peak > memory*mib {
				t.Errorf("the daemon took %d MiB", peak/mib)
			}
		})
	}
}
