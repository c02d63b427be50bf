package layers

import "testing"

func TestOf(t *testing.T) {
	for name, want := range map[string]string{
		"model.layers.3.self_attn.q_proj.weight": "model.layers.3",
		"layer1.0.conv1.weight":                  "layer1.0",
		"params/encoder/block_2/kernel":          "params/encoder/block_2",
		"fc.weight":                              "fc",
		"weight":                                 "weight",
		"0":                                      "0",
		"h.11":                                   "h.11",
		"":                                       "",
		".x":                                     ".x",
		"a..b":                                   "a.",
		"optimizer.state.12.exp_avg":             "optimizer.state.12",
	} {
		if got := Of(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
