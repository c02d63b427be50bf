package plans

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// stateModel is a qwen3 of two layers, in two files, whose tensors have random bytes, and its config.
func stateModel(t *testing.T, change func(config map[string]any, shapes map[string][]int64)) (
	files []file, config []byte) {
	t.Helper()
	says := map[string]any{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "dtype": "bfloat16",
		"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
		"intermediate_size": 12, "vocab_size": 70, "num_hidden_layers": 2,
	}
	shapes := map[string][]int64{
		"model.embed_tokens.weight": {70, 16}, "lm_head.weight": {70, 16}, "model.norm.weight": {16},
	}
	for i := range 2 {
		for name, shape := range map[string][]int64{
			"self_attn.q_proj.weight": {32, 16}, "self_attn.k_proj.weight": {16, 16},
			"self_attn.v_proj.weight": {16, 16}, "self_attn.o_proj.weight": {16, 32},
			"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8},
			"mlp.gate_proj.weight": {12, 16}, "mlp.up_proj.weight": {12, 16}, "mlp.down_proj.weight": {16, 12},
			"input_layernorm.weight": {16}, "post_attention_layernorm.weight": {16},
		} {
			shapes[fmt.Sprintf("model.layers.%d.%s", i, name)] = shape
		}
	}
	change(says, shapes)
	config, err := json.Marshal(says)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.NewChaCha8([32]byte{7})
	var parts [2][]safetensors.Entry
	for i, name := range slices.Sorted(maps.Keys(shapes)) {
		parts[i%2] = append(parts[i%2], safetensors.Entry{Name: name, DType: formats.BF16, Shape: shapes[name]})
	}
	for _, entries := range parts {
		files = append(files, build(t, entries, pt, func(i int) []byte {
			p := make([]byte, entries[i].NumBytes())
			_, _ = r.Read(p)
			return p
		}))
	}
	return files, config
}

func sourcesOf(files []file) (out []*Source) {
	for _, f := range files {
		out = append(out, f.Source)
	}
	return out
}

// rows are some rows of a tensor in one of the files.
func rows(t *testing.T, files []file, name string, from, to int64) []byte {
	t.Helper()
	for _, f := range files {
		if x := f.byName()[name]; x != nil {
			row := x.NumBytes() / x.Shape[0]
			return f.bytes[f.base(x)+from*row : f.base(x)+to*row]
		}
	}
	t.Fatalf("%s is in no file", name)
	return nil
}

// A rank has its slices one behind the other, its rows of the padded vocabulary, and the scales, in parts of at
// most so many bytes; any range of them reads the same. What vLLM itself writes is TestMakeShardedState's to
// compare.
func TestState(t *testing.T) {
	files, config := stateModel(t, func(map[string]any, map[string][]int64) {})
	for rank := range int64(2) {
		want := map[string][]byte{}
		for _, name := range []string{"lm_head.weight", "model.embed_tokens.weight"} {
			want[name] = rows(t, files, name, 64*rank, min(64*(rank+1), 70))
			want[name] = append(slices.Clone(want[name]), make([]byte, 64*32-len(want[name]))...)
		}
		for i := range 2 {
			at := fmt.Sprintf("model.layers.%d.", i)
			want[at+"self_attn.qkv_proj.weight"] = slices.Concat(
				rows(t, files, at+"self_attn.q_proj.weight", 16*rank, 16*rank+16),
				rows(t, files, at+"self_attn.k_proj.weight", 8*rank, 8*rank+8),
				rows(t, files, at+"self_attn.v_proj.weight", 8*rank, 8*rank+8))
			want[at+"mlp.gate_up_proj.weight"] = slices.Concat(
				rows(t, files, at+"mlp.gate_proj.weight", 6*rank, 6*rank+6),
				rows(t, files, at+"mlp.up_proj.weight", 6*rank, 6*rank+6))
			for _, scale := range []string{"_k_scale", "_v_scale", "_q_scale", "_prob_scale"} {
				want[at+"self_attn.attn."+scale] = []byte{0, 0, 0x80, 0x3f}
			}
			want[at+"self_attn.q_norm.weight"] = rows(t, files, at+"self_attn.q_norm.weight", 0, 8)
		}
		for _, most := range []int64{StatePart, 5000, 4096} {
			got, parts := map[string][]byte{}, 1
			for part := 0; part < parts; part++ {
				p, err := stateOf(sourcesOf(files), config, int(rank), 2, part, most)
				if err != nil {
					t.Fatal(err)
				}
				parts = p.Parts
				a := over(p, files...)
				whole := a.all(t)
				for off := 0; off < len(whole); off += 37 {
					q := make([]byte, min(101, len(whole)-off))
					if _, err := a.ReadAt(q, int64(off)); err != nil || !bytes.Equal(q, whole[off:off+len(q)]) {
						t.Fatalf("%d bytes at %d differ, %v", len(q), off, err)
					}
				}
				s, err := Open(bytes.NewReader(whole), int64(len(whole)), 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				size := int64(0)
				for name, x := range s.byName() {
					got[name] = whole[s.base(x) : s.base(x)+x.NumBytes()]
					size += x.NumBytes()
				}
				if size > most || len(s.Metadata) != 0 {
					t.Errorf("part %d has %d bytes of tensors, of at most %d, and %v", part, size, most, s.Metadata)
				}
			}
			if (parts == 1) != (most == StatePart) || len(got) != 2+1+2*12 {
				t.Errorf("%d tensors in %d parts", len(got), parts)
			}
			for name, p := range want {
				if !bytes.Equal(got[name], p) {
					t.Errorf("rank %d: %s differs, in parts of %d", rank, name, most)
				}
			}
		}
	}
}

// A model that ties its embeddings has one of them, by the name that comes first.
func TestStateTied(t *testing.T) {
	files, config := stateModel(t, func(config map[string]any, shapes map[string][]int64) {
		config["tie_word_embeddings"] = true
		delete(shapes, "lm_head.weight")
	})
	p, err := State(sourcesOf(files), config, 1, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	whole := over(p, files...).all(t)
	s, err := Open(bytes.NewReader(whole), int64(len(whole)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	x, none := s.byName()["lm_head.weight"], s.byName()["model.embed_tokens.weight"]
	if x == nil || none != nil {
		t.Fatalf("%v, %v", x, none)
	}
	want := rows(t, files, "model.embed_tokens.weight", 64, 70)
	if got := whole[s.base(x):]; !bytes.HasPrefix(got, append(slices.Clone(want), make([]byte, 58*32)...)) {
		t.Error("the last rows differ")
	}
}

// What vLLM would make other bytes of, or would not load, is refused.
func TestStateRefuses(t *testing.T) {
	type shapes = map[string][]int64
	for what, change := range map[string]func(config map[string]any, shapes shapes){
		"no layers":              func(c map[string]any, _ shapes) { delete(c, "num_hidden_layers") },
		"more layers":            func(c map[string]any, _ shapes) { c["num_hidden_layers"] = 3 },
		"fewer layers":           func(c map[string]any, _ shapes) { c["num_hidden_layers"] = 1 },
		"countless layers":       func(c map[string]any, _ shapes) { c["num_hidden_layers"] = int64(1) << 60 },
		"another vocabulary":     func(c map[string]any, _ shapes) { c["vocab_size"] = 71 },
		"no vocabulary":          func(c map[string]any, _ shapes) { c["vocab_size"] = 0 },
		"a huge vocabulary":      func(c map[string]any, _ shapes) { c["vocab_size"] = int64(1) << 62 },
		"another type":           func(c map[string]any, _ shapes) { c["dtype"] = "float16" },
		"a type it converts":     func(c map[string]any, _ shapes) { c["dtype"] = "float32" },
		"no type":                func(c map[string]any, _ shapes) { delete(c, "dtype") },
		"another class":          func(c map[string]any, _ shapes) { c["architectures"] = []string{"Qwen3Model"} },
		"no class":               func(c map[string]any, _ shapes) { delete(c, "architectures") },
		"another model":          func(c map[string]any, _ shapes) { c["model_type"] = "gpt2" },
		"biases that are not":    func(c map[string]any, _ shapes) { c["attention_bias"] = true },
		"a norm that is missing": func(_ map[string]any, s shapes) { delete(s, "model.norm.weight") },
		"a projection that is missing": func(_ map[string]any, s shapes) {
			delete(s, "model.layers.1.self_attn.v_proj.weight")
		},
		"tied, with both":       func(c map[string]any, _ shapes) { c["tie_word_embeddings"] = true },
		"another activation":    func(c map[string]any, _ shapes) { c["hidden_act"] = "gelu" },
		"no heads of keys":      func(c map[string]any, _ shapes) { delete(c, "num_key_value_heads") },
		"a head of no size":     func(c map[string]any, _ shapes) { c["head_dim"] = nil },
		"attention to all":      func(c map[string]any, _ shapes) { c["is_causal"] = false },
		"normed keys":           func(c map[string]any, _ shapes) { c["qk_norm"] = true },
		"chunks of attention":   func(c map[string]any, _ shapes) { c["dual_chunk_attention_config"] = map[string]any{} },
		"a config within":       func(c map[string]any, _ shapes) { c["text_config"] = map[string]any{} },
		"a model that drafts":   func(c map[string]any, _ shapes) { c["speculators_config"] = map[string]any{"x": 1} },
		"layers that differ":    func(c map[string]any, _ shapes) { c["per_layer_config"] = map[string]any{"0": 1} },
		"compressed":            func(c map[string]any, _ shapes) { c["compression_config"] = map[string]any{} },
		"quantised":             func(c map[string]any, _ shapes) { c["quantization_config"] = map[string]any{} },
		"code of its own":       func(c map[string]any, _ shapes) { c["auto_map"] = map[string]any{"AutoConfig": "x"} },
		"Fourier's embeddings":  func(c map[string]any, _ shapes) { c["rope_scaling"] = map[string]any{"use_fope": true} },
		"keys in capitals only": func(c map[string]any, _ shapes) { delete(c, "vocab_size"); c["VOCAB_SIZE"] = 70 },
		"an expert":             func(_ map[string]any, s shapes) { s["model.layers.0.mlp.experts.0.weight"] = []int64{2} },
		"a bias":                func(_ map[string]any, s shapes) { s["model.layers.0.self_attn.o_proj.bias"] = []int64{16} },
		"a wide norm":           func(_ map[string]any, s shapes) { s["model.norm.weight"] = []int64{17} },
		"a flat embedding":      func(_ map[string]any, s shapes) { s["lm_head.weight"] = []int64{70 * 16} },
		"a narrow projection": func(_ map[string]any, s shapes) {
			s["model.layers.0.self_attn.q_proj.weight"] = []int64{32, 15}
		},
	} {
		files, config := stateModel(t, change)
		_, err := State(sourcesOf(files), config, 0, 2, 0)
		refused(t, what, err)
	}
	files, config := stateModel(t, func(map[string]any, shapes) {})
	for _, x := range []struct{ rank, ranks, part int }{{2, 2, 0}, {-1, 2, 0}, {0, 0, 0}, {0, 3, 0}, {0, 8, 0},
		{0, 2, 1}, {0, 2, -1}, {0, 1 << 20, 0}} {
		_, err := State(sourcesOf(files), config, x.rank, x.ranks, x.part)
		refused(t, fmt.Sprint(x), err)
	}
	_, err := State(append(sourcesOf(files), files[0].Source), config, 0, 2, 0)
	refused(t, "a file twice", err)
	more, config2 := stateModel(t, func(_ map[string]any, s shapes) {
		for i := range 20 {
			s[fmt.Sprintf("model.other.%02d", i)] = []int64{2}
		}
	})
	for range 5 { // a reason that changes would be another file each time
		_, err := State(sourcesOf(more), config2, 0, 2, 0)
		refused(t, "more tensors", err)
		if err != nil && !strings.Contains(err.Error(), `"model.other.00"`) {
			t.Error(err)
		}
	}
	_, err = stateOf(sourcesOf(files), config, 0, 2, 0, 1000)
	refused(t, "a tensor of more than a part", err)
	_, err = State(sourcesOf(files), []byte("["), 0, 2, 0)
	refused(t, "no config", err)
}

// of makes the model of stateModel one of another type, without what only a qwen3 has.
func of(kind, class string, more map[string]any) func(map[string]any, map[string][]int64) {
	return func(c map[string]any, shapes map[string][]int64) {
		c["model_type"], c["architectures"] = kind, []string{class}
		maps.Copy(c, more)
		for i := range 2 {
			at := fmt.Sprintf("model.layers.%d.self_attn.", i)
			delete(shapes, at+"q_norm.weight")
			delete(shapes, at+"k_norm.weight")
			if kind == "qwen2" {
				shapes[at+"q_proj.bias"], shapes[at+"k_proj.bias"], shapes[at+"v_proj.bias"] =
					[]int64{32}, []int64{16}, []int64{16}
			}
		}
	}
}

// What vLLM takes from a config depends on the type: it makes a mistral's biases as a llama's, and does not
// look at a qwen2's head_dim.
func TestStateTypes(t *testing.T) {
	for what, x := range map[string]struct {
		change func(map[string]any, map[string][]int64)
		is     bool
	}{
		"a llama":                       {of("llama", "LlamaForCausalLM", nil), true},
		"a mistral":                     {of("mistral", "MistralForCausalLM", nil), true},
		"a llama without heads of keys": {of("llama", "LlamaForCausalLM", map[string]any{"num_key_value_heads": nil}), false},
		"a llama with biases of old":    {of("llama", "LlamaForCausalLM", map[string]any{"bias": true}), false},
		"a llama with biases of qkv":    {of("llama", "LlamaForCausalLM", map[string]any{"qkv_bias": true}), false},
		"a llama with no biases of qkv, though": {func(c map[string]any, s map[string][]int64) {
			of("llama", "LlamaForCausalLM", map[string]any{"qkv_bias": false, "attention_bias": true})(c, s)
			for i := range 2 {
				for x, n := range map[string]int64{"q": 32, "k": 16, "v": 16, "o": 16} {
					s[fmt.Sprintf("model.layers.%d.self_attn.%s_proj.bias", i, x)] = []int64{n}
				}
			}
		}, false},
		"a llama of odd heads":           {of("llama", "LlamaForCausalLM", map[string]any{"hidden_size": 18}), false},
		"a mistral with biases":          {of("mistral", "MistralForCausalLM", map[string]any{"attention_bias": true}), false},
		"a mistral with biases of old":   {of("mistral", "MistralForCausalLM", map[string]any{"bias": true}), false},
		"a mistral with an MLP's biases": {of("mistral", "MistralForCausalLM", map[string]any{"mlp_bias": true}), false},
		"a mistral of audio": {of("mistral", "MistralForCausalLM",
			map[string]any{"ada_rms_norm_t_cond": true, "ada_rms_norm_t_cond_dim": 4}), false},
		"a qwen2 of wide heads": {of("qwen2", "Qwen2ForCausalLM", nil), false},
		"a qwen3 of which capitals say other things": {func(c map[string]any, _ map[string][]int64) {
			c["Head_Dim"], c["zz_VOCAB_SIZE"], c["Vocab_size"], c["qk_norm"] = 4, 1, 71, false
		}, true},
	} {
		files, config := stateModel(t, x.change)
		if _, err := State(sourcesOf(files), config, 0, 2, 0); x.is && err != nil {
			t.Errorf("%s: %v", what, err)
		} else if !x.is {
			refused(t, what, err)
		}
	}
}
