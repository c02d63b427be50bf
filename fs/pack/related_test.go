package pack

import (
	"testing"

	"ckptfs/index/runs"
)

// A file of a step leads versions of it; a model whose name has a number does not.
func TestLeads(t *testing.T) {
	for path, want := range map[string]bool{
		"runs/more/0/model.safetensors": true, "out/checkpoint-500/model-00001-of-00002.safetensors": true,
		"ckpt/global_step_400/model.pt": true, "lightning/epoch=3-step=100.ckpt": true, "200.safetensors": true,
		"model.safetensors": false, "Llama-2-7b-hf/model.safetensors": false, "llama-3/model.safetensors": false,
		"stepwise/model.safetensors": false, "hub/model-00001-of-00002.safetensors": false,
	} {
		if got := leads(runs.Series(path)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
