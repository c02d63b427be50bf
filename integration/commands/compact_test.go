package commands

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

// steps is what a tensor of single precision is after each step of slow training.
func steps(seed uint64, n, size int) (values [][]byte) {
	r := rand.New(rand.NewPCG(seed, 5))
	w := make([]float32, size/4)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for range n {
		p := make([]byte, 0, size)
		for i := range w {
			w[i] *= 1 + float32(1e-6*r.NormFloat64())
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(w[i]))
		}
		values = append(values, p)
	}
	return values
}

type compacted struct {
	Files  int   `json:"files"`
	Chunks int64 `json:"chunks"`
	Before int64 `json:"bytes_before"`
	After  int64 `json:"bytes_after"`
}

// TestCompact: what was stored without deltas is stored with them, while it is read and more is saved and
// removed, with compactions killed and the daemon killed in the middle of one.
func TestCompact(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "0", "--no-delta")
	const n = 12
	var want [n][]byte
	name := func(i int) string { return fmt.Sprintf("runs/a/%d/model.safetensors", i+1) }
	values := steps(1, n, 3*mib)
	save := func(i int) {
		m.Must(os.MkdirAll(filepath.Dir(m.Path(name(i))), 0o755))
		want[i], _ = mounttest.SafetensorsOf([]string{"a", "b"}, [][]byte{values[i][:mib], values[i][mib:]})
		m.Write(name(i), want[i])
	}
	for i := range n - 2 {
		save(i)
	}
	m.Sync()
	m.Must(m.Stop())
	m.Flags = []string{"--hot-size", "0"}
	m.Must(m.Start())
	full := m.Taken()
	var dry, c compacted
	m.JSON(&dry, "compact", "--json", "--dry-run", m.Dir)
	if dry.Chunks == 0 || dry.After >= dry.Before || m.Taken() < full {
		t.Errorf("dry run: %+v", dry)
	}

	read := func() (stop func()) {
		quit := make(chan struct{})
		var readers sync.WaitGroup
		for g := range 2 {
			readers.Go(func() {
				for i := g; ; i++ {
					select {
					case <-quit:
						return
					default:
					}
					got, err := os.ReadFile(m.Path(name(i % (n - 2))))
					if err != nil || !bytes.Equal(got, want[i%(n-2)]) {
						t.Errorf("%s beside a compaction: %v, %d bytes", name(i%(n-2)), err, len(got))
						return
					}
				}
			})
		}
		return func() {
			close(quit)
			readers.Wait()
		}
	}
	stop := read()
	start := func() *exec.Cmd {
		cmd := exec.Command(m.Bin, "compact", m.Dir)
		m.Must(cmd.Start())
		return cmd
	}
	for i := range 4 { // killed at the command line
		cmd := start()
		time.Sleep(time.Duration(i*20) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	save(n - 2)
	stop()
	cmd := start()
	time.Sleep(30 * time.Millisecond)
	m.Kill()
	_ = cmd.Wait()
	m.Remount()
	for i := range n - 1 {
		m.Want(name(i), want[i])
	}
	m.Run("check", "--read-data", m.Dir)

	stop = read()
	var beside sync.WaitGroup
	beside.Go(func() {
		for range 10 {
			if _, err := m.CLI("prune", "--grace", "0", m.Dir); err != nil {
				t.Error(err)
			}
		}
	})
	save(n - 1)
	m.JSON(&c, "compact", "--json", m.Dir)
	stop()
	beside.Wait()
	m.Sync()
	said := m.Run("compact", m.Dir)
	m.Run("prune", "--grace", "0", m.Dir)
	t.Logf("%d bytes before, %d after; %+v; then %s", full, m.Taken(), c, said)
	if now := m.Taken(); now > full*2/3 {
		t.Errorf("%d bytes before, %d after", full, now)
	}
	if strings.Contains(said, "\r") {
		t.Errorf("a progress bar off a terminal: %q", said)
	}
	for i := range n {
		m.Want(name(i), want[i])
	}
	for i := range n {
		if i%3 == 0 {
			m.Must(os.RemoveAll(filepath.Dir(m.Path(name(i)))))
		}
	}
	m.Run("prune", "--grace", "0", m.Dir)
	m.Run("check", "--read-data", m.Dir)
	m.Must(m.Stop())
	m.Run("compact", m.Store)
	m.Must(os.Remove(filepath.Join(m.Store, "index.db")))
	m.Must(m.Start())
	for i := range n {
		if i%3 != 0 {
			m.Want(name(i), want[i])
		}
	}
}

// TestRounded: a copy in bfloat16, made by PyTorch, takes nothing beside the original, saved after it or,
// once compacted, before it.
func TestRounded(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "0")
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	out := mounttest.RunPython(t, "half_precision.py", m.Path("runs/a/1"))
	sums := mounttest.SavedBy(t, "runs/a/1", out)
	m.Sync()
	m.SameSums(sums)
	before := m.Taken()
	m.Run("compact", m.Dir)
	m.Run("prune", "--grace", "0", m.Dir)
	after := m.Taken()
	t.Logf("%d bytes, %d compacted", before, after)
	if after > 9*mib { // 8 MiB in single precision, 4 MiB in half, twice
		t.Errorf("%d bytes", after)
	}
	m.SameSums(sums)
	m.Run("check", "--read-data", m.Dir)
	m.Must(os.Remove(m.Path("runs/a/1/full.safetensors")))
	delete(sums, "runs/a/1/full.safetensors")
	m.Remount()
	m.SameSums(sums)
	m.Run("check", "--read-data", m.Dir)
}

// TestFirstSaveAfterAMount: it is stored against the step before, and against the model that it was tuned
// from, whether its step says so or it only looks like it.
func TestFirstSaveAfterAMount(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "0")
	values := steps(1, 4, 2*mib)
	for i, name := range []string{"runs/base/1/pretrained.safetensors", "runs/tuned/1/model.safetensors", "runs/tuned/2/model.safetensors", "elsewhere/model.safetensors"} {
		dir := filepath.Dir(m.Path(name))
		m.Must(os.MkdirAll(dir, 0o755))
		if i == 1 {
			m.Must(os.WriteFile(filepath.Join(dir, "lineage.json"), []byte(`{"parent": "runs/base/1"}`), 0o644))
		}
		before := m.Taken()
		data, _ := mounttest.SafetensorsOf([]string{"a", "b"}, [][]byte{values[i][:mib], values[i][mib:]})
		m.Write(name, data)
		m.Sync()
		if took := m.Taken() - before; i > 0 && took > int64(len(data))*2/3 {
			t.Errorf("%s takes %d bytes of %d", name, took, len(data))
		}
		m.Want(name, data)
		m.Remount()
		m.Want(name, data)
	}
}
