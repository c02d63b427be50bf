package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// gives is what a removal gives back, as commands foretell it.
type gives struct {
	Files int64
	Alone int64 `json:"alone_bytes"`
	Freed int64 `json:"freed_bytes"`
}

// TestForget removes the steps that no rule keeps, and nothing else.
func TestForget(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	model, err := os.ReadFile("../../formats/testdata/torch/flat.pt")
	m.Must(err)
	old := time.Now().Add(-48 * time.Hour)
	for i := 1; i <= 12; i++ {
		dir := fmt.Sprintf("runs/a/checkpoint-%d", i)
		m.Write(dir+"/model.pt", model)
		m.Write(dir+"/extra.bin", mounttest.Noise(uint64(i), 100<<10))
		m.Write(dir+"/metrics.json", fmt.Appendf(nil, `{"val": {"loss": %d}}`, (i-4)*(i-4)))
		for _, f := range []string{"model.pt", "extra.bin", "metrics.json"} {
			m.Must(os.Chtimes(m.Path(dir, f), old, old))
		}
	}
	m.Must(unix.Setxattr(m.Path("runs/a/checkpoint-7"), "user.metric.acc", []byte("0.9"), 0))
	m.Must(unix.Setxattr(m.Path("runs/a/checkpoint-2"), "user.metric.acc", []byte("0.5"), 0))
	m.Write("runs/a/writing/model.pt", model) // just now
	m.Write("runs/a/config.json", []byte("{}"))
	m.Write("runs/b/1/model.pt", model)
	outside := t.TempDir()
	m.Must(os.WriteFile(filepath.Join(outside, "precious"), []byte("x"), 0o600))
	m.Must(os.Symlink(outside, m.Path("runs/a/latest")))
	m.Sync()
	m.Run("evict", m.Dir)

	rules := []string{"--keep-last", "2", "--keep-best", "val/loss=2", "--keep-best", "acc:max=1"}
	before := m.Names("runs/a")
	var out struct {
		Steps []struct {
			Step string
			Keep bool
		}
		Gives gives
	}
	m.JSON(&out, append([]string{"forget", "--json", "--dry-run", m.Path("runs/a")}, rules...)...)
	if len(out.Steps) != 13 || out.Steps[9].Step != "checkpoint-10" {
		t.Errorf("%+v", out)
	}
	m.WantNames("runs/a", before...)
	du := []string{"du", "--json"}
	for _, s := range out.Steps {
		if !s.Keep {
			du = append(du, m.Path("runs/a", s.Step))
		}
	}
	var foretold gives
	if m.JSON(&foretold, du...); foretold != out.Gives || foretold.Alone < 700<<10 || foretold.Files != 21 {
		t.Errorf("du says %+v, forget %+v", foretold, out.Gives)
	}
	mounttest.WantSaid(t, m.Run(append([]string{"forget", m.Path("runs/a")}, rules...)...), "checkpoint-1 ",
		"forgotten", "7 of 13 steps")
	m.WantNames("runs/a", "checkpoint-11", "checkpoint-12", "checkpoint-3", "checkpoint-4", "checkpoint-7",
		"config.json", "latest", "writing")
	m.Want("runs/a/checkpoint-4/extra.bin", mounttest.Noise(4, 100<<10))
	m.Want("runs/a/checkpoint-12/model.pt", model)
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error("what a link in the run leads to was removed")
	}
	mounttest.WantSaid(t, m.Run(append([]string{"forget", m.Path("runs/a")}, rules...)...), "0 of 6 steps")
	var pruned struct {
		Room int64 `json:"room_bytes"`
	}
	m.JSON(&pruned, "prune", "--grace", "0", "--json", m.Dir)
	if more := pruned.Room - foretold.Alone; more < 0 || more > 64<<10 { // records of models besides
		t.Errorf("%d bytes went, foretold were %+v", pruned.Room, foretold)
	}

	for _, args := range [][]string{
		{"forget", m.Path("runs/a")},
		{"forget", "--keep-last", "1", m.Path("runs")},
		{"forget", "--keep-last", "1", m.Dir},
		{"forget", "--keep-last", "1", m.Path("runs/a/latest")},
		{"forget", "--keep-best", "loss", m.Path("runs/a")},
		{"forget", "--keep-best", "los=1", m.Path("runs/a")},
		{"forget", "--keep-within", "soon", m.Path("runs/a")},
	} {
		m.RunFails(args...)
	}
	m.WantNames("runs/b", "1")
	m.Run("forget", "--keep-within", "7d", m.Path("runs/a"))
	m.WantNames("runs/a", "checkpoint-11", "checkpoint-12", "checkpoint-3", "checkpoint-4", "checkpoint-7",
		"config.json", "latest", "writing")
}

// A step of whole files that lacks one, since its program was killed before it, is not the last step that
// counts: what the run can be gone on from stays.
func TestForgetKeepsWhatARunCanBeGoneOnFrom(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	old := time.Now().Add(-48 * time.Hour)
	model, _ := mounttest.SafetensorsOf([]string{"w"}, [][]byte{mounttest.Noise(1, 64<<10)})
	save := func(step string, files ...string) {
		for _, f := range files {
			m.Write("runs/a/"+step+"/"+f, model)
			m.Must(os.Chtimes(m.Path("runs/a", step, f), old, old))
		}
	}
	for _, step := range []string{"checkpoint-4", "checkpoint-6", "checkpoint-8"} {
		save(step, "model.safetensors", "optimizer.pt", "trainer_state.json")
	}
	save("checkpoint-10", "model.safetensors")
	m.Sync()
	latest := func() string {
		to, err := os.Readlink(m.Path(".ckptfs/latest/a"))
		m.Must(err)
		return filepath.Base(to)
	}
	if to := latest(); to != "checkpoint-8" {
		t.Errorf("latest is %s", to)
	}
	said := m.Run("forget", "--keep-last", "1", "--forget-torn", m.Path("runs/a"))
	mounttest.WantSaid(t, said, "lacks files", "2 of 4 steps")
	m.WantNames("runs/a", "checkpoint-10", "checkpoint-8")
	if to := latest(); to != "checkpoint-8" {
		t.Errorf("latest is %s", to)
	}
}
