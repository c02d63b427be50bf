package plans

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"ckptfs/formats"
)

// adapter is what an adapter_config.json says.
type adapter struct {
	scaling    float64
	rank       int64
	transposed bool // fan_in_fan_out: the base's weights are those of Conv1D
}

// free are the fields of an adapter_config.json that do not change what is merged, whatever they say, or that
// are read here. All others have to be empty: null, false, or nothing.
var free = []string{
	"auto_mapping", "base_model_name_or_path", "bias", "exclude_modules", "fan_in_fan_out", "inference_mode",
	"init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core",
	"peft_type", "peft_version", "qalora_group_size", "r", "revision", "target_modules", "task_type",
	"use_rslora",
}

// adapterOf reads an adapter_config.json.
func adapterOf(config []byte, scale float64) (*adapter, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, none("adapter_config.json: %v", err)
	}
	for k, v := range all {
		empty := slices.Contains([]string{"null", "false", "{}", "[]", `""`}, string(v))
		if !empty && !slices.Contains(free, k) {
			return nil, none("adapter_config.json: it is not known how to merge with %q", k)
		}
	}
	c := struct {
		Type  string      `json:"peft_type"`
		Bias  string      `json:"bias"`
		Init  any         `json:"init_lora_weights"`
		Rank  int64       `json:"r"`
		Alpha json.Number `json:"lora_alpha"`
		Roots bool        `json:"use_rslora"`
		Trans bool        `json:"fan_in_fan_out"`
	}{Bias: "none", Init: true}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, none("adapter_config.json: %v", err)
	}
	alpha, err := c.Alpha.Float64()
	_, plain := c.Init.(bool)
	switch {
	case c.Type != "LORA":
		return nil, none("adapter_config.json: an adapter of type %q", c.Type)
	case c.Bias != "none":
		return nil, none("adapter_config.json: biases that were trained (%s)", c.Bias)
	case !plain && c.Init != "gaussian" && c.Init != nil:
		return nil, none("adapter_config.json: init_lora_weights is %v, which changes the base", c.Init)
	case err != nil || c.Rank < 1:
		return nil, none("adapter_config.json: no r, or no lora_alpha")
	case c.Rank > maxRank:
		return nil, none("adapter_config.json: r is %d, and beyond %d PyTorch adds products in an order that depends on the machine",
			c.Rank, maxRank)
	}
	by := float64(c.Rank)
	if c.Roots {
		by = math.Sqrt(by)
	}
	return &adapter{scaling: alpha / by * scale, rank: c.Rank, transposed: c.Trans}, nil
}

// pair are the two matrices of a weight: b is out by r, a is r by in.
type pair struct{ a, b *formats.Tensor }

// pairs are the matrices of an adapter, by what the weight is called in the base.
func (a *adapter) pairs(s *Source) (map[string]pair, error) {
	out := map[string]pair{}
	for i := range s.Layout.Tensors {
		t := &s.Layout.Tensors[i]
		name, ok := strings.CutPrefix(t.Name, "base_model.model.")
		of, isA := strings.CutSuffix(name, ".lora_A.weight")
		if !isA {
			var isB bool
			of, isB = strings.CutSuffix(name, ".lora_B.weight")
			ok = ok && isB
		}
		if !ok {
			return nil, none("the adapter has a tensor %q, which is not merged", t.Name)
		}
		if len(t.Shape) != 2 || t.DType != formats.F32 && t.DType != formats.F16 && t.DType != formats.BF16 {
			return nil, none("the adapter's tensor %q is %s of %v", t.Name, t.DType, t.Shape)
		}
		p := out[of+".weight"]
		if isA {
			p.a = t
		} else {
			p.b = t
		}
		out[of+".weight"] = p
	}
	for name, p := range out {
		if p.a == nil || p.b == nil || p.a.Shape[0] != a.rank || p.b.Shape[1] != a.rank {
			return nil, none("the adapter's matrices of %q are not both there, or not of rank %d", name, a.rank)
		}
	}
	return out, nil
}
