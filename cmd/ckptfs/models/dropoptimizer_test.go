package models

import (
	"testing"
)

func TestOptimizerState(t *testing.T) {
	for name, want := range map[string]bool{
		"optimizer.state.0.exp_avg": true, "model.0.weight": false, "state.3.momentum_buffer": true, "optimus.weight": false,
		"Optimizer/variables/1": true, "state.0.weight": false, "exp_avg": false, "opt_state.0.mu.w": true, "step": false,
		"encoder.step": false, "optimizer_states.0.state.1.step": true,
	} {
		if isOptimizerState(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
