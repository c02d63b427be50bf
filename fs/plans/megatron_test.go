package plans

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/formats/torchzip"
)

// megatronModel is stateModel with a vocabulary that two ranks divide.
func megatronModel(t *testing.T, change func(config map[string]any, shapes map[string][]int64)) ([]file, []byte) {
	return stateModel(t, func(c map[string]any, s map[string][]int64) {
		c["vocab_size"] = 72
		s["model.embed_tokens.weight"], s["lm_head.weight"] = []int64{72, 16}, []int64{72, 16}
		change(c, s)
	})
}

func unchanged(map[string]any, map[string][]int64) {}

// saved is the file of a rank, as torch reads it.
func saved(t *testing.T, files []file, config []byte, rank, ranks int, multiple int64) file {
	t.Helper()
	p, err := Megatron(sourcesOf(files), config, rank, ranks, multiple)
	if err != nil {
		t.Fatal(err)
	}
	a := over(p, files...)
	whole := a.all(t)
	for off := 0; off < len(whole); off += 37 {
		q := make([]byte, min(101, len(whole)-off))
		if _, err := a.ReadAt(q, int64(off)); err != nil || !bytes.Equal(q, whole[off:off+len(q)]) {
			t.Fatalf("%d bytes at %d differ, %v", len(q), off, err)
		}
	}
	l, err := torchzip.Parser{}.Parse(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	return file{&Source{Layout: l}, whole}
}

// A rank has its groups of queries, each with its keys and values, its rows of the gate and those of up, its
// columns, and its rows of a vocabulary that may be padded. What mbridge itself makes is TestMakeMegatron's to
// compare.
func TestMegatron(t *testing.T) {
	files, config := megatronModel(t, unchanged)
	for rank := range int64(2) {
		s := saved(t, files, config, int(rank), 2, 128)
		want := map[string][]byte{}
		for name, from := range map[string]string{"output_layer.weight": "lm_head.weight",
			"embedding.word_embeddings.weight": "model.embed_tokens.weight"} {
			want[name] = slices.Clone(rows(t, files, from, 64*rank, min(64*(rank+1), 72)))
			want[name] = append(want[name], make([]byte, 64*32-len(want[name]))...)
		}
		for i := range 2 {
			at, hf := fmt.Sprintf("decoder.layers.%d.", i), fmt.Sprintf("model.layers.%d.", i)
			want[at+"self_attention.linear_qkv.weight"] = slices.Concat( // of one group: two heads
				rows(t, files, hf+"self_attn.q_proj.weight", 16*rank, 16*rank+16),
				rows(t, files, hf+"self_attn.k_proj.weight", 8*rank, 8*rank+8),
				rows(t, files, hf+"self_attn.v_proj.weight", 8*rank, 8*rank+8))
			want[at+"mlp.linear_fc1.weight"] = slices.Concat(
				rows(t, files, hf+"mlp.gate_proj.weight", 6*rank, 6*rank+6),
				rows(t, files, hf+"mlp.up_proj.weight", 6*rank, 6*rank+6))
			want[at+"self_attention.q_layernorm.weight"] = rows(t, files, hf+"self_attn.q_norm.weight", 0, 8)
			want[at+"self_attention.linear_qkv.layer_norm_weight"] = rows(t, files, hf+"input_layernorm.weight", 0, 16)
			var down []byte
			for row := range int64(16) {
				down = append(down, rows(t, files, hf+"mlp.down_proj.weight", row, row+1)[12*rank:12*rank+12]...)
			}
			want[at+"mlp.linear_fc2.weight"] = down
		}
		got := s.byName()
		if len(got) != 3+2*8 {
			t.Errorf("%d tensors", len(got))
		}
		for name, p := range want {
			x := got[ofModel+name]
			if x == nil || !bytes.Equal(s.bytes[s.base(x):][:x.NumBytes()], p) {
				t.Errorf("rank %d: %s differs", rank, name)
			}
		}
	}
}

// What ranks have is put together again, of any number of them, and of layers that are one tensor.
func TestHuggingFace(t *testing.T) {
	for kind, change := range map[string]func(map[string]any, map[string][]int64){
		"a qwen3": unchanged,
		"a qwen2": func(c map[string]any, s map[string][]int64) {
			of("qwen2", "Qwen2ForCausalLM", nil)(c, s)
		},
		"tied": func(c map[string]any, s map[string][]int64) {
			c["tie_word_embeddings"] = true
			delete(s, "lm_head.weight")
		},
	} {
		files, config := megatronModel(t, change)
		want := wholeOf(t, files)
		for ranks, multiple := range map[int]int64{1: 1, 2: 1, 4: 128} {
			var saves []file
			for r := range ranks {
				saves = append(saves, saved(t, files, config, r, ranks, multiple))
			}
			p, err := HuggingFaceRanks(sourcesOf(saves), nil, config)
			if err != nil {
				t.Fatal(kind, err)
			}
			if got := over(p, saves...).all(t); !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes of %d ranks differ from %d", kind, len(got), ranks, len(want))
			}
			if ranks > 1 {
				_, err = HuggingFaceRanks(sourcesOf(saves[1:]), nil, config)
				refused(t, "without a rank", err)
			}
		}
		one := saved(t, files, config, 0, 1, 1)
		m, err := mcoreOf(config)
		if err != nil {
			t.Fatal(err)
		}
		d := distributedOf(t, m, one)
		out, err := m.apart(d.tensor)
		if err != nil || d.left() != nil {
			t.Fatal(kind, err, d.left())
		}
		p, err := plan(out, pt)
		if err != nil {
			t.Fatal(err)
		}
		if got := over(p, one).all(t); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of layers together differ from %d", kind, len(got), len(want))
		}
	}
}

// What two ranks of Megatron-core saved, testdata/torch_dist, is the model that they had loaded.
func TestHuggingFaceSaved(t *testing.T) {
	const dir = "testdata/torch_dist/"
	files, names, metadata := folder(t, "../../../fs/plans/"+dir+"saved")
	read := func(name string) []byte {
		b, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	common, config := read("saved/common.pt"), read("config.json")
	args, err := OpenMegatronArgs(bytes.NewReader(common), int64(len(common)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := HuggingFace(sourcesOf(files), names, args, metadata, config)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := over(p, files...).all(t), read("model.safetensors"); !bytes.Equal(got, want) {
		t.Errorf("%d bytes differ from %d", len(got), len(want))
	}
	for i := range files {
		_, err := HuggingFace(sourcesOf(slices.Delete(slices.Clone(files), i, i+1)),
			slices.Delete(slices.Clone(names), i, i+1), args, metadata, config)
		refused(t, "without "+names[i], err)
	}
	for from, to := range map[string]string{`"vocab_size": 10`: `"vocab_size": 13`, `"head_dim": 4`: `"head_dim": 2`,
		`"num_hidden_layers": 2`: `"num_hidden_layers": 1`, `"tie_word_embeddings": false`: `"tie_word_embeddings": true`} {
		changed := strings.Replace(string(config), from, to, 1)
		if changed == string(config) {
			t.Fatal(from)
		}
		_, err := HuggingFace(sourcesOf(files), names, args, metadata, []byte(changed))
		refused(t, to, err)
	}
}

// wholeOf is one file of the tensors of several.
func wholeOf(t *testing.T, files []file) []byte {
	var out []output
	for i, f := range files {
		for name, x := range f.byName() {
			out = append(out, output{safetensors.Entry{Name: name, DType: x.DType, Shape: x.Shape}, &copied{i, f.base(x)}})
		}
	}
	p, err := plan(out, pt)
	if err != nil {
		t.Fatal(err)
	}
	return over(p, files...).all(t)
}

// distributedOf is what a rank's file has as torch_dist has it: layers as one tensor.
func distributedOf(t *testing.T, m *mcore, f file) *distributed {
	d := &distributed{m: m, whole: map[string]*gather{}, used: map[string]bool{}}
	for name, x := range f.byName() {
		name = strings.TrimPrefix(name, ofModel)
		op, err := taken(0, f.Source, *x)
		if err != nil {
			t.Fatal(err)
		}
		all, shape, origin := name, slices.Clone(x.Shape), make([]int64, len(x.Shape))
		size := shape
		if at := layerOf.FindStringSubmatchIndex(name); at != nil {
			all = name[:at[3]] + name[at[1]:]
			origin = append([]int64{int64(name[at[4]] - '0')}, origin...)
			size, shape = append([]int64{1}, shape...), append([]int64{m.Layers}, shape...)
		}
		if d.whole[all] == nil {
			d.whole[all] = &gather{shape: shape, to: x.DType}
		}
		d.whole[all].parts = append(d.whole[all].parts, part{origin, size, op})
	}
	return d
}

// A checkpoint that is not whole, that has more than the model, or that is none of the config's, is refused.
func TestHuggingFaceRefuses(t *testing.T) {
	files, config := megatronModel(t, unchanged)
	one := saved(t, files, config, 0, 1, 1)
	const qkv, norm = "decoder.layers.self_attention.linear_qkv.weight", "decoder.final_layernorm.weight"
	for what, change := range map[string]func(d *distributed, m *mcore){
		"":                     func(*distributed, *mcore) {},
		"no norm":              func(d *distributed, _ *mcore) { delete(d.whole, norm) },
		"no layers":            func(d *distributed, _ *mcore) { delete(d.whole, qkv) },
		"a layer less":         func(d *distributed, _ *mcore) { d.whole[qkv].parts = d.whole[qkv].parts[1:] },
		"a layer twice":        func(d *distributed, _ *mcore) { d.whole[qkv].parts[0] = d.whole[qkv].parts[1] },
		"more layers":          func(_ *distributed, m *mcore) { m.Layers = 3 },
		"fewer layers":         func(_ *distributed, m *mcore) { m.Layers = 1 },
		"countless layers":     func(d *distributed, _ *mcore) { d.whole[qkv].shape[0] = 1 << 62 },
		"a layer of no number": func(d *distributed, _ *mcore) { d.whole[qkv].parts[0].origin[0] = -1 },
		"a part of two layers": func(d *distributed, _ *mcore) { d.whole[qkv].parts[0].size[0] = 2 },
		"other heads":          func(_ *distributed, m *mcore) { m.KeyHeads = 4 },
		"a larger vocabulary":  func(_ *distributed, m *mcore) { m.Vocab = 73 },
		"a tied one":           func(_ *distributed, m *mcore) { m.Tied = true },
		"another model":        func(_ *distributed, m *mcore) { m.Type = "llama" },
		"biases":               func(_ *distributed, m *mcore) { m.Type = "qwen2" },
		"an expert":            func(d *distributed, _ *mcore) { d.whole["decoder.layers.mlp.experts.w"] = d.whole[norm] },
		"another type":         func(d *distributed, _ *mcore) { d.whole[norm].to = formats.F16 },
		"numbers of 8 bits":    func(d *distributed, _ *mcore) { d.whole[norm].to = formats.F8E4M3 },
		"a huge vocabulary": func(d *distributed, _ *mcore) {
			d.whole["output_layer.weight"].shape[0] = 1 << 40
		},
	} {
		m, err := mcoreOf(config)
		if err != nil {
			t.Fatal(err)
		}
		d := distributedOf(t, m, one)
		change(d, m)
		if _, err = m.apart(d.tensor); err == nil {
			err = d.left()
		}
		if what == "" && err != nil {
			t.Error(err)
		} else if what != "" {
			refused(t, what, err)
		}
	}
	m, _ := mcoreOf(config)
	d := distributedOf(t, m, one)
	d.whole["optimizer.state.exp_avg."+qkv] = d.whole[norm]
	d.whole["chained_0.optimizer.state.exp_avg."+qkv] = d.whole[norm]
	if _, err := m.apart(d.tensor); err != nil || d.left() != nil {
		t.Error("with an optimizer's state:", err, d.left())
	}

	for what, change := range map[string]func(map[string]any, map[string][]int64){ // Megatron-core's model lacks some
		"a qwen3 of biases":     func(c map[string]any, _ map[string][]int64) { c["attention_bias"] = true },
		"a llama of MLP biases": of("llama", "LlamaForCausalLM", map[string]any{"mlp_bias": true}),
	} {
		_, config := megatronModel(t, change)
		_, err := HuggingFaceRanks([]*Source{one.Source}, nil, config)
		refused(t, what, err)
	}

	two := []file{saved(t, files, config, 0, 2, 1), saved(t, files, config, 1, 2, 1)}
	for what, change := range map[string]func(by map[string]*formats.Tensor){
		"a rank of another shape": func(by map[string]*formats.Tensor) { by[ofModel+norm].Shape[0] = 15 },
		"a rank of another type":  func(by map[string]*formats.Tensor) { by[ofModel+norm].DType = formats.F16 },
		"a tensor less":           func(by map[string]*formats.Tensor) { by[ofModel+norm].Name = "other" },
		"a tensor more":           func(by map[string]*formats.Tensor) { by[ofModel+norm].Name = ofModel + "other" },
	} {
		var changed []*Source
		for i, f := range two {
			l := *f.Layout
			l.Tensors = slices.Clone(l.Tensors)
			for k := range l.Tensors {
				l.Tensors[k].Shape = slices.Clone(l.Tensors[k].Shape)
			}
			changed = append(changed, &Source{Layout: &l})
			if i == 1 {
				change(changed[1].byName())
			}
		}
		_, err := HuggingFaceRanks(changed, nil, config)
		refused(t, what, err)
	}
	_, err := HuggingFaceRanks(nil, nil, config)
	refused(t, "no rank", err)
	_, err = HuggingFace(nil, nil, nil, []byte("no pickle"), config)
	refused(t, "no .metadata", err)
}

// What mbridge would make something else of, or nothing, is refused.
func TestMegatronRefuses(t *testing.T) {
	type shapes = map[string][]int64
	for what, change := range map[string]func(config map[string]any, shapes shapes){
		"no layers":             func(c map[string]any, _ shapes) { delete(c, "num_hidden_layers") },
		"more layers":           func(c map[string]any, _ shapes) { c["num_hidden_layers"] = 3 },
		"fewer layers":          func(c map[string]any, _ shapes) { c["num_hidden_layers"] = 1 },
		"countless layers":      func(c map[string]any, _ shapes) { c["num_hidden_layers"] = int64(1) << 60 },
		"another vocabulary":    func(c map[string]any, _ shapes) { c["vocab_size"] = 74 },
		"an odd vocabulary":     func(c map[string]any, s shapes) { odd(c, s) },
		"a huge vocabulary":     func(c map[string]any, _ shapes) { c["vocab_size"] = int64(1) << 62 },
		"huge heads":            func(c map[string]any, _ shapes) { c["head_dim"] = int64(1) << 30; c["num_attention_heads"] = 1 << 30 },
		"no heads of keys":      func(c map[string]any, _ shapes) { c["num_key_value_heads"] = 0 },
		"heads in odd groups":   func(c map[string]any, _ shapes) { c["num_key_value_heads"] = 3 },
		"a head of no size":     func(c map[string]any, _ shapes) { c["head_dim"] = nil },
		"negative heads":        func(c map[string]any, _ shapes) { c["num_attention_heads"] = -4 },
		"another class":         func(c map[string]any, _ shapes) { c["architectures"] = []string{"Qwen3Model"} },
		"another model":         func(c map[string]any, _ shapes) { c["model_type"] = "gpt2" },
		"another activation":    func(c map[string]any, _ shapes) { c["hidden_act"] = "gelu" },
		"a config within":       func(c map[string]any, _ shapes) { c["text_config"] = map[string]any{"x": 1} },
		"code of its own":       func(c map[string]any, _ shapes) { c["auto_map"] = map[string]any{"AutoConfig": "x"} },
		"quantised":             func(c map[string]any, _ shapes) { c["quantization_config"] = map[string]any{} },
		"tied, with both":       func(c map[string]any, _ shapes) { c["tie_word_embeddings"] = true },
		"no embeddings":         func(_ map[string]any, s shapes) { delete(s, "model.embed_tokens.weight") },
		"no norm":               func(_ map[string]any, s shapes) { delete(s, "model.norm.weight") },
		"a bias":                func(_ map[string]any, s shapes) { s["model.layers.0.self_attn.o_proj.bias"] = []int64{16} },
		"an expert":             func(_ map[string]any, s shapes) { s["model.layers.0.mlp.experts.0.weight"] = []int64{2} },
		"a wide norm":           func(_ map[string]any, s shapes) { s["model.norm.weight"] = []int64{17} },
		"a flat embedding":      func(_ map[string]any, s shapes) { s["lm_head.weight"] = []int64{72 * 16} },
		"a narrow projection":   func(_ map[string]any, s shapes) { s["model.layers.0.self_attn.q_proj.weight"] = []int64{32, 15} },
		"a wide column":         func(_ map[string]any, s shapes) { s["model.layers.0.mlp.down_proj.weight"] = []int64{17, 12} },
		"a mistral of biases":   of("mistral", "MistralForCausalLM", map[string]any{"attention_bias": true}),
		"a llama of biases":     of("llama", "LlamaForCausalLM", map[string]any{"attention_bias": true}),
		"a qwen3 of biases":     func(c map[string]any, _ shapes) { c["attention_bias"] = true },
		"a llama of MLP biases": of("llama", "LlamaForCausalLM", map[string]any{"mlp_bias": true}),
		"a llama without one of its biases": func(c map[string]any, s shapes) {
			of("llama", "LlamaForCausalLM", map[string]any{"attention_bias": true})(c, s)
			for i := range 2 {
				for x, n := range map[string]int64{"q": 32, "k": 16, "v": 16} {
					s[fmt.Sprintf("model.layers.%d.self_attn.%s_proj.bias", i, x)] = []int64{n}
				}
			}
		},
		"a llama of odd heads": of("llama", "LlamaForCausalLM", map[string]any{"hidden_size": 18}),
		"a qwen2 of no head":   of("qwen2", "Qwen2ForCausalLM", map[string]any{"head_dim": nil}),
	} {
		files, config := megatronModel(t, change)
		_, err := Megatron(sourcesOf(files), config, 0, 2, 1)
		refused(t, what, err)
	}
	files, config := megatronModel(t, unchanged)
	for _, x := range []struct {
		rank, ranks int
		multiple    int64
	}{{2, 2, 1}, {-1, 2, 1}, {0, 0, 1}, {0, 3, 1}, {0, 8, 1}, {0, 1 << 20, 1}, {0, 2, 0}, {0, 2, 1 << 40}, {0, 4, 73}} {
		_, err := Megatron(sourcesOf(files), config, x.rank, x.ranks, x.multiple)
		refused(t, fmt.Sprint(x), err)
	}
	_, err := Megatron(append(sourcesOf(files), files[0].Source), config, 0, 2, 1)
	refused(t, "a file twice", err)
	mixed := *files[0].Layout
	mixed.Tensors = slices.Clone(mixed.Tensors)
	mixed.Tensors[0].DType = formats.F16
	_, err = Megatron([]*Source{{Layout: &mixed}, files[1].Source}, config, 0, 2, 1)
	refused(t, "several types", err)
	for kind, class := range map[string]string{"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"} {
		files, config := megatronModel(t, of(kind, class, nil))
		if _, err := Megatron(sourcesOf(files), config, 3, 4, 1); err != nil {
			t.Errorf("a %s: %v", kind, err)
		}
	}
}

func odd(c map[string]any, s map[string][]int64) {
	c["vocab_size"] = 71
	maps.Copy(s, map[string][]int64{"model.embed_tokens.weight": {71, 16}, "lm_head.weight": {71, 16}})
}

// A checkpoint whose arguments say something else than the config is refused: testdata/args.py has written them.
func TestMegatronArgs(t *testing.T) {
	open := func(name string) (*MegatronArgs, error) {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return OpenMegatronArgs(bytes.NewReader(b), int64(len(b)))
	}
	_, config := megatronModel(t, unchanged)
	for what, change := range map[string]func(m *mcore){
		"":                 func(*mcore) {},
		"other layers":     func(m *mcore) { m.Layers++ },
		"other heads":      func(m *mcore) { m.Heads, m.HeadDim = m.Heads/2, m.HeadDim*2 },
		"other groups":     func(m *mcore) { m.KeyHeads = 1 },
		"other dimensions": func(m *mcore) { m.HeadDim = 4 },
	} {
		m, err := mcoreOf(config)
		if err != nil {
			t.Fatal(err)
		}
		a, err := open("args.pt")
		if err != nil || !a.is {
			t.Fatal(err)
		}
		change(m)
		if err = a.agree(m); what == "" && err != nil {
			t.Error(err)
		} else if what != "" {
			refused(t, what, err)
		}
	}
	m, err := mcoreOf(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"args-1p.pt", "args-gelu.pt", "args-layernorm.pt", "args-whole.pt"} {
		a, err := open(name)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, name, a.agree(m))
	}
	if a, err := open("args-none.pt"); err != nil || a.is || a.agree(m) != nil {
		t.Errorf("without arguments: %v", err)
	}
	if a, err := open("args-few.pt"); err != nil || !a.is || a.agree(m) != nil {
		t.Errorf("with arguments that say nothing of the model: %v", err)
	}
	_, err = open("args.py")
	refused(t, "no archive", err)
}
