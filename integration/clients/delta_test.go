package clients

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestDeltas: the checkpoints of a fine-tune, with the optimizer's state, are stored against each other,
// whatever becomes of those in between.
func TestDeltas(t *testing.T) {
	t.Parallel()
	const steps = 12
	m, alone := mounttest.New(t), mounttest.New(t, "--no-delta")
	out := mounttest.RunPython(t, "adamw.py", alone.Path("runs/a"), "12")
	alone.Sync()
	alone.SameSums(mounttest.SavedBy(t, "runs/a", out))
	sums := mounttest.SavedBy(t, "runs/a", mounttest.RunPython(t, "adamw.py", m.Path("runs/a"), "12"))
	if len(sums) != steps {
		t.Fatalf("%d checkpoints", len(sums))
	}
	m.Sync()
	with, without := m.Stats().StoredBytes, alone.Stats().StoredBytes
	t.Logf("%d checkpoints: %d bytes, %d without deltas", steps, with, without)
	if with > without*4/5 {
		t.Errorf("%d bytes with deltas, %d without", with, without)
	}
	m.SameSums(sums)
	m.Run("check", "--read-data", m.Dir)
	for _, gone := range [][]string{{"100", "300"}, {"200", "400", "800"}, {"900", "1200"}} {
		for _, step := range gone {
			m.Must(os.RemoveAll(m.Path("runs/a", step)))
			delete(sums, filepath.Join("runs/a", step, "model.pt"))
		}
		m.Run("prune", "--grace", "0s", m.Dir)
		m.Run("check", "--read-data", m.Dir)
		m.SameSums(sums)
		m.Remount()
	}
	// Another run of the same, killed while it is packed, is there after that.
	more := mounttest.SavedBy(t, "runs/b", mounttest.RunPython(t, "adamw.py", m.Path("runs/b"), "12"))
	m.Kill()
	m.Remount()
	m.Sync()
	for name, sum := range more {
		sums[name] = sum
	}
	m.SameSums(sums)
	m.Run("forget", "--keep-last", "1", m.Path("runs/a"))
	m.Run("forget", "--keep-last", "3", m.Path("runs/b"))
	m.Run("prune", "--grace", "0s", m.Dir)
	m.Run("check", "--read-data", m.Dir)
	for name := range sums {
		if _, err := os.Stat(m.Path(name)); err != nil {
			delete(sums, name)
		}
	}
	if len(sums) < 4 {
		t.Errorf("%d files are left", len(sums))
	}
	m.SameSums(sums)
}

// TestStepsOfTraining: no step of a training, from the first to convergence, takes more for being stored
// against those before it, and together they take much less.
func TestStepsOfTraining(t *testing.T) {
	t.Parallel()
	m, alone := mounttest.New(t), mounttest.New(t, "--no-delta")
	var with, without int64
	for line := range strings.Lines(mounttest.RunPython(t, "converge.py", t.TempDir(), "16")) {
		var s struct {
			Step int
			File string
		}
		m.Must(json.Unmarshal([]byte(line), &s))
		data, err := os.ReadFile(s.File)
		m.Must(err)
		var took [2]int64
		for i, m := range []*mounttest.Mount{m, alone} {
			before := m.Stats().StoredBytes
			name := filepath.Join("runs/a", filepath.Base(filepath.Dir(s.File)), "model.safetensors")
			m.Must(os.MkdirAll(filepath.Dir(m.Path(name)), 0o755))
			m.Write(name, data)
			m.Sync()
			took[i] = m.Stats().StoredBytes - before
		}
		t.Logf("step %d: %d bytes, %d alone", s.Step, took[0], took[1])
		if took[0] > took[1]*101/100 {
			t.Errorf("step %d takes %d bytes, %d alone", s.Step, took[0], took[1])
		}
		with, without = with+took[0], without+took[1]
	}
	if with > without*85/100 {
		t.Errorf("%d bytes in all, %d alone", with, without)
	}
}
