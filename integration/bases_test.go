package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBases: a fine-tune, saved by PyTorch, is stored against the model that it began with, whatever prefixes, containers and shards the
// two were saved with, when it is saved and when it is found by a compaction.
func TestBases(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	ways := strings.Fields(runPython(t, "bases.py", from))
	m, late := newMount(t, "--hot-size", "0"), newMount(t, "--hot-size", "0", "--no-delta")
	sums := map[string]string{}
	for _, way := range ways {
		for _, name := range []string{"base", "tuned"} {
			for _, m := range []*mount{m, late} {
				dir := m.path("runs", way+"-"+name, "1")
				m.must(os.MkdirAll(dir, 0o755))
				if way == "declared" && name == "tuned" {
					m.must(os.WriteFile(filepath.Join(dir, "lineage.json"), []byte(`{"parent": "runs/declared-base/1"}`), 0o644))
				}
			}
			files, err := filepath.Glob(filepath.Join(from, way, name, "*"))
			m.must(err)
			var raw int64
			before := m.taken()
			for _, f := range files {
				data, err := os.ReadFile(f)
				m.must(err)
				raw += int64(len(data))
				to := filepath.Join("runs", way+"-"+name, "1", filepath.Base(f))
				for _, m := range []*mount{m, late} {
					m.write(to, data)
				}
				sums[to] = m.sum(to)
				late.sync() // one after the other, as their times are
			}
			m.sync()
			if took := m.taken() - before; name == "tuned" {
				t.Logf("%-20s %.1f %%", way, 100*float64(took)/float64(raw))
				if took > raw*4/10 {
					t.Errorf("%s: %d bytes of %d", way, took, raw)
				}
			}
		}
	}
	m.sameSums(sums)
	m.cli("check", "--read-data", m.Dir)

	late.must(late.Stop())
	late.Flags = []string{"--hot-size", "0"}
	late.must(late.Start())
	alone := late.taken()
	late.cli("compact", late.Dir)
	late.cli("prune", "--grace", "0", late.Dir)
	t.Logf("%d bytes; %d without deltas, %d compacted", m.taken(), alone, late.taken())
	if got, want := late.taken(), m.taken(); got > want*11/10 {
		t.Errorf("%d bytes compacted, %d saved with deltas", got, want)
	}
	late.sameSums(sums)
	late.cli("check", "--read-data", late.Dir)
}
