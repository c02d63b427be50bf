package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestForget removes the steps that no rule keeps, and nothing else.
func TestForget(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	model, err := os.ReadFile("../formats/testdata/torch/flat.pt")
	m.must(err)
	old := time.Now().Add(-48 * time.Hour)
	for i := 1; i <= 12; i++ {
		dir := fmt.Sprintf("runs/a/checkpoint-%d", i)
		m.write(dir+"/model.pt", model)
		m.write(dir+"/extra.bin", noise(uint64(i), 100<<10))
		m.write(dir+"/metrics.json", fmt.Appendf(nil, `{"val": {"loss": %d}}`, (i-4)*(i-4)))
		for _, f := range []string{"model.pt", "extra.bin", "metrics.json"} {
			m.must(os.Chtimes(m.path(dir, f), old, old))
		}
	}
	m.must(unix.Setxattr(m.path("runs/a/checkpoint-7"), "user.metric.acc", []byte("0.9"), 0))
	m.must(unix.Setxattr(m.path("runs/a/checkpoint-2"), "user.metric.acc", []byte("0.5"), 0))
	m.write("runs/a/writing/model.pt", model) // just now
	m.write("runs/a/config.json", []byte("{}"))
	m.write("runs/b/1/model.pt", model)
	outside := t.TempDir()
	m.must(os.WriteFile(filepath.Join(outside, "precious"), []byte("x"), 0o600))
	m.must(os.Symlink(outside, m.path("runs/a/latest")))
	m.sync()
	m.cli("evict", m.Dir)

	rules := []string{"--keep-last", "2", "--keep-best", "val/loss=2", "--keep-best", "acc:max=1"}
	before := m.names("runs/a")
	var out struct {
		Steps []struct {
			Step string
			Keep bool
		}
	}
	m.json(&out, append([]string{"forget", "--json", "--dry-run", m.path("runs/a")}, rules...)...)
	if len(out.Steps) != 13 || out.Steps[9].Step != "checkpoint-10" {
		t.Errorf("%+v", out)
	}
	m.wantNames("runs/a", before...)
	wantSaid(t, m.cli(append([]string{"forget", m.path("runs/a")}, rules...)...), "checkpoint-1 ", "forgotten", "7 of 13 steps")
	m.wantNames("runs/a", "checkpoint-11", "checkpoint-12", "checkpoint-3", "checkpoint-4", "checkpoint-7", "config.json", "latest", "writing")
	m.want("runs/a/checkpoint-4/extra.bin", noise(4, 100<<10))
	m.want("runs/a/checkpoint-12/model.pt", model)
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error("what a link in the run leads to was removed")
	}
	wantSaid(t, m.cli(append([]string{"forget", m.path("runs/a")}, rules...)...), "0 of 6 steps")

	for _, args := range [][]string{
		{"forget", m.path("runs/a")},
		{"forget", "--keep-last", "1", m.path("runs")},
		{"forget", "--keep-last", "1", m.Dir},
		{"forget", "--keep-last", "1", m.path("runs/a/latest")},
		{"forget", "--keep-best", "loss", m.path("runs/a")},
		{"forget", "--keep-best", "los=1", m.path("runs/a")},
		{"forget", "--keep-within", "soon", m.path("runs/a")},
	} {
		m.cliFails(args...)
	}
	m.wantNames("runs/b", "1")
	m.cli("forget", "--keep-within", "7d", m.path("runs/a"))
	m.wantNames("runs/a", "checkpoint-11", "checkpoint-12", "checkpoint-3", "checkpoint-4", "checkpoint-7", "config.json", "latest", "writing")
}
