package clients

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// TestForgetLightning: Lightning's checkpoints, each a step by itself, lose their optimizer's state by a
// rule. They remain steps, with their metrics, and Lightning goes on from the last one.
func TestForgetLightning(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Must(os.MkdirAll(m.Path("runs/l"), 0o755))
	mounttest.RunPython(t, "resume.py", "lightning", m.Path("runs/l"), "5")
	m.Sync()
	m.Must(unix.Setxattr(m.Path("runs/l/epoch=0.ckpt"), "user.metric.mine", []byte("7"), 0))
	m.Must(unix.Setxattr(m.Path("runs/l/epoch=0.ckpt"), "user.note", []byte("kept"), 0))
	keep, pairs := t.TempDir(), []string{}
	old := time.Now().Add(-48 * time.Hour)
	for i := range 5 {
		name := fmt.Sprintf("epoch=%d.ckpt", i)
		m.Must(os.Chtimes(m.Path("runs/l", name), old, old))
		if i < 3 {
			b, err := os.ReadFile(m.Path("runs/l", name))
			m.Must(err)
			m.Must(os.WriteFile(filepath.Join(keep, name), b, 0o600))
			weights := m.Path("runs/l", strings.TrimSuffix(name, ".ckpt")+".weights.safetensors")
			pairs = append(pairs, filepath.Join(keep, name), weights)
		}
	}
	// As steps that are folders, too. What a file in one has for attributes are no metrics of it.
	for i := range 5 {
		m.Sh(fmt.Sprintf("mkdir -p runs/f/%d; cp -p runs/l/epoch=%d.ckpt runs/f/%d/m.ckpt", i, i, i))
		m.Must(unix.Setxattr(m.Path("runs/f", fmt.Sprint(i), "m.ckpt"), "user.metric.file", []byte("9"), 0))
	}
	type steps struct {
		Steps []struct {
			Step, State string
			Metrics     map[string]float64
		}
	}
	var before, after steps
	m.JSON(&before, "log", "--json", m.Path("runs/l"))
	first := before.Steps[0].Metrics
	if len(before.Steps) != 5 || first["mine"] != 7 || first["loss"] == 0 {
		t.Fatalf("%+v", before)
	}
	var folders, stripped steps
	m.JSON(&folders, "log", "--json", m.Path("runs/f"))
	m.Run("policy", "add", "--in", m.Dir, "runs/**", "drop-optimizer", "keep-last=2")
	m.Run("forget", "--policy", m.Dir)
	m.JSON(&stripped, "log", "--json", m.Path("runs/f"))
	m.WantNames("runs/f/0", "m.weights.safetensors")
	if len(folders.Steps) != 5 || folders.Steps[0].Metrics["loss"] == 0 ||
		fmt.Sprint(folders) != fmt.Sprint(stripped) {
		t.Errorf("%+v, and before %+v", stripped, folders)
	}
	var files []string
	for _, name := range m.Names("runs/l") {
		if path.Ext(name) == ".ckpt" || strings.Contains(name, ".weights") {
			files = append(files, name)
		}
	}
	if !slices.Equal(files, []string{"epoch=0.weights.safetensors", "epoch=1.weights.safetensors",
		"epoch=2.weights.safetensors", "epoch=3.ckpt", "epoch=4.ckpt", "last.ckpt"}) {
		t.Errorf("%q", files)
	}
	mounttest.RunPython(t, "lightning_weights.py", pairs...)
	m.JSON(&after, "log", "--json", m.Path("runs/l"))
	if len(after.Steps) != 5 {
		t.Fatalf("%+v", after)
	}
	for i, s := range after.Steps {
		if s.State != "complete" || fmt.Sprint(s.Metrics) != fmt.Sprint(before.Steps[i].Metrics) {
			t.Errorf("%+v, and before %+v", s, before.Steps[i])
		}
	}
	value := make([]byte, 16)
	n, err := unix.Getxattr(m.Path("runs/l/epoch=0.weights.safetensors"), "user.note", value)
	if err != nil || string(value[:n]) != "kept" {
		t.Errorf("%q, %v", value[:max(n, 0)], err)
	}
	m.Remount()
	mounttest.WantSaid(t, m.Run("forget", "--policy", m.Dir), "0 files")
	said := mounttest.RunPython(t, "resume.py", "lightning", m.Path("runs/l"), "6")
	if !strings.Contains(said, "5") {
		t.Errorf("went on from %q", said)
	}
	m.Run("check", m.Dir)
}
