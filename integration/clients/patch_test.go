package clients

import (
	"testing"

	"ckptfs/integration/mounttest"
)

// TestPatchInVLLM: what changed between two steps, as the mount computes it, goes into a model by vLLM's own
// code.
func TestPatchInVLLM(t *testing.T) {
	t.Parallel()
	needTool(t, "vllm")
	m := mounttest.New(t)
	mounttest.RunPython(t, "weight_patch.py", m.Path())
}
