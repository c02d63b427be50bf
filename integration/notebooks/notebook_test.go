package notebooks

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestNotebook executes the notebook of the documents on a store, by a kernel of Jupyter: mounted, and not.
func TestNotebook(t *testing.T) {
	t.Parallel()
	with(t, "nbclient, ipykernel")
	m := mounttest.New(t)
	pkg := packageDir(t)
	mounttest.RunPython(t, "notebook_store.py", pkg, m.Dir)
	m.Sync()
	notebook, err := filepath.Abs("../../docs/notebooks/store.ipynb")
	m.Must(err)
	// What the cells that begin so show.
	want := map[string][]string{
		"import os":        {"val_loss", "&lt;script&gt;"},
		"run = store.runs": {"new_bytes", "0.3"},
		"best = run.best":  {"runs/a/10", "0.1"},
		"frame = ":         {"{'a': 0.1, 'b': 0.2}"},
		"steps = ":         {"head", "changed", "(8, 64)", "gone"},
		"print(changes":    {"1 tensors are equal, 262144 bytes"},
		"import networkx":  {"runs/a/1/model.safetensors → runs/a/2/model.safetensors (previous step)"},
		"store.du":         {"runs/a", "alone_bytes"},
		"status = ":        {"'failures': []", "'torn steps': 0", "'damaged': []"},
		"files = ":         {"runs/a/10/metrics.json"},
		"models = ":        {"body", "(256, 256)"},
	}
	look := func(how, store string) {
		out := mounttest.RunPython(t, "notebook_run.py", pkg, notebook, store, m.Bin)
		seen := 0
		for line := range strings.Lines(out) {
			var cell struct{ Source, Text, HTML string }
			m.Must(json.Unmarshal([]byte(line), &cell))
			for begin, words := range want {
				if !strings.HasPrefix(cell.Source, begin) {
					continue
				}
				seen++
				for _, w := range words {
					if !strings.Contains(cell.Text, w) && !strings.Contains(cell.HTML, w) {
						t.Errorf("%s: %q does not show %q: %s\n%s", how, begin, w, cell.Text, cell.HTML)
					}
				}
			}
		}
		if seen != len(want) {
			t.Errorf("%s: %d cells of %d were seen", how, seen, len(want))
		}
	}
	look("mounted", m.Dir)
	m.Must(m.Stop())
	look("unmounted", m.Store)
	m.Must(m.Start())
}
