package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestBases: a fine-tune, saved by PyTorch, is stored against the model that it began with, whatever
// prefixes, containers and shards the two were saved with, when it is saved and when it is found by a
// compaction.
func TestBases(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	ways := strings.Fields(mounttest.RunPython(t, "bases.py", from))
	m, late := mounttest.New(t, "--hot-size", "0"), mounttest.New(t, "--hot-size", "0", "--no-delta")
	sums := map[string]string{}
	for _, way := range ways {
		for _, name := range []string{"base", "tuned"} {
			for _, m := range []*mounttest.Mount{m, late} {
				dir := m.Path("runs", way+"-"+name, "1")
				m.Must(os.MkdirAll(dir, 0o755))
				if way == "declared" && name == "tuned" {
					m.Must(os.WriteFile(filepath.Join(dir, "lineage.json"), []byte(`{"parent": "runs/declared-base/1"}`), 0o644))
				}
			}
			files, err := filepath.Glob(filepath.Join(from, way, name, "*"))
			m.Must(err)
			var raw int64
			before := m.Taken()
			for _, f := range files {
				data, err := os.ReadFile(f)
				m.Must(err)
				raw += int64(len(data))
				to := filepath.Join("runs", way+"-"+name, "1", filepath.Base(f))
				for _, m := range []*mounttest.Mount{m, late} {
					m.Write(to, data)
				}
				sums[to] = m.Sum(to)
				late.Sync() // one after the other, as their times are
			}
			m.Sync()
			if took := m.Taken() - before; name == "tuned" {
				t.Logf("%-20s %.1f %%", way, 100*float64(took)/float64(raw))
				if took > raw*4/10 {
					t.Errorf("%s: %d bytes of %d", way, took, raw)
				}
			}
		}
	}
	m.SameSums(sums)
	m.Run("check", "--read-data", m.Dir)

	late.Must(late.Stop())
	late.Flags = []string{"--hot-size", "0"}
	late.Must(late.Start())
	alone := late.Taken()
	late.Run("compact", late.Dir)
	late.Run("prune", "--grace", "0", late.Dir)
	t.Logf("%d bytes; %d without deltas, %d compacted", m.Taken(), alone, late.Taken())
	if got, want := late.Taken(), m.Taken(); got > want*11/10 {
		t.Errorf("%d bytes compacted, %d saved with deltas", got, want)
	}
	late.SameSums(sums)
	late.Run("check", "--read-data", late.Dir)
}
