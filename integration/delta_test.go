package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeltas: the checkpoints of a fine-tune, with the optimizer's state, are stored against each other, whatever becomes of
// those in between.
func TestDeltas(t *testing.T) {
	t.Parallel()
	const steps = 12
	m, alone := newMount(t), newMount(t, "--no-delta")
	out := runPython(t, "adamw.py", alone.path("runs/a"), "12")
	alone.sync()
	alone.sameSums(savedBy(t, "runs/a", out))
	sums := savedBy(t, "runs/a", runPython(t, "adamw.py", m.path("runs/a"), "12"))
	if len(sums) != steps {
		t.Fatalf("%d checkpoints", len(sums))
	}
	m.sync()
	with, without := m.stats().StoredBytes, alone.stats().StoredBytes
	t.Logf("%d checkpoints: %d bytes, %d without deltas", steps, with, without)
	if with > without*4/5 {
		t.Errorf("%d bytes with deltas, %d without", with, without)
	}
	m.sameSums(sums)
	m.cli("check", "--read-data", m.Dir)
	for _, gone := range [][]string{{"100", "300"}, {"200", "400", "800"}, {"900", "1200"}} {
		for _, step := range gone {
			m.must(os.RemoveAll(m.path("runs/a", step)))
			delete(sums, filepath.Join("runs/a", step, "model.pt"))
		}
		m.cli("prune", "--grace", "0s", m.Dir)
		m.cli("check", "--read-data", m.Dir)
		m.sameSums(sums)
		m.remount()
	}
	// Another run of the same, killed while it is packed, is there after that.
	more := savedBy(t, "runs/b", runPython(t, "adamw.py", m.path("runs/b"), "12"))
	m.kill9()
	m.remount()
	m.sync()
	for name, sum := range more {
		sums[name] = sum
	}
	m.sameSums(sums)
	m.cli("forget", "--keep-last", "1", m.path("runs/a"))
	m.cli("forget", "--keep-last", "3", m.path("runs/b"))
	m.cli("prune", "--grace", "0s", m.Dir)
	m.cli("check", "--read-data", m.Dir)
	for name := range sums {
		if _, err := os.Stat(m.path(name)); err != nil {
			delete(sums, name)
		}
	}
	if len(sums) < 4 {
		t.Errorf("%d files are left", len(sums))
	}
	m.sameSums(sums)
}

// TestStepsOfTraining: no step of a training, from the first to convergence, takes more for being stored against those before it, and
// together they take much less.
func TestStepsOfTraining(t *testing.T) {
	t.Parallel()
	m, alone := newMount(t), newMount(t, "--no-delta")
	var with, without int64
	for line := range strings.Lines(runPython(t, "converge.py", t.TempDir(), "16")) {
		var s struct {
			Step int
			File string
		}
		m.must(json.Unmarshal([]byte(line), &s))
		data, err := os.ReadFile(s.File)
		m.must(err)
		var took [2]int64
		for i, m := range []*mount{m, alone} {
			before := m.stats().StoredBytes
			name := filepath.Join("runs/a", filepath.Base(filepath.Dir(s.File)), "model.safetensors")
			m.must(os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
			m.write(name, data)
			m.sync()
			took[i] = m.stats().StoredBytes - before
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
