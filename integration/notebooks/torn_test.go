package notebooks

import (
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestTornInNotebook: the metrics of a run say which of its steps are torn, and warn of those that cannot be
// read.
func TestTornInNotebook(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	out := mounttest.RunPython(t, "notebook_torn.py", packageDir(t), m.Bin, m.Dir)
	if !strings.HasSuffix(out, "ok\n") {
		t.Errorf("it said %s", out)
	}
}

// TestNamesInNotebook: names of runs and steps that are no UTF-8 are what os.fsdecode makes of them.
func TestNamesInNotebook(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	out := mounttest.RunPython(t, "notebook_names.py", packageDir(t), m.Bin, m.Dir)
	if !strings.HasSuffix(out, "ok\n") {
		t.Errorf("it said %s", out)
	}
}
