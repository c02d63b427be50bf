package llamacpp

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/gguf"
)

// small is the folder of a small model, but for its vocabulary.
func small(files map[string][]byte) *Folder {
	t := func(name string, d formats.DType, shape ...int64) formats.Tensor {
		return formats.Tensor{Name: name, DType: d, Shape: shape}
	}
	return &Folder{Path: "runs/a-7B-chat", Files: files, Parts: []Part{{"model.safetensors", []formats.Tensor{
		t("model.layers.0.self_attn.q_proj.weight", formats.BF16, 64, 64), t("model.norm.weight", formats.F16, 64),
		t("model.layers.0.self_attn.k_proj.bias", formats.F32, 32),
	}}}}
}

var smallConfig = []byte(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 40, "hidden_size": 64,
	"intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
	"max_position_embeddings": 512, "rms_norm_eps": 1e-5}`)

func TestConvert(t *testing.T) {
	m, err := Convert(small(map[string][]byte{fileConfig: smallConfig, filePieces: []byte("\n\x09\n\x05<unk>\x18\x02")}),
		formats.F16)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range m.Tensors {
		names = append(names, x.Name+" "+string(x.DType))
	}
	want := []string{"blk.0.attn_k.bias F32", "blk.0.attn_q.weight F16", "output_norm.weight F32"}
	heads := []int64{m.Tensors[0].Heads, m.Tensors[1].Heads, m.Tensors[2].Heads}
	if !slices.Equal(names, want) || !slices.Equal(heads, []int64{2, 4, 0}) {
		t.Errorf("%q %v", names, m.Tensors)
	}
	if first := m.Pairs[0]; first != (gguf.Pair{Key: "general.architecture", Value: "llama"}) {
		t.Errorf("it begins with %v", first)
	}
}

// The converter has biases in single precision, whatever their dimensions.
func TestConvertBiasOfTwoDimensions(t *testing.T) {
	f := small(map[string][]byte{fileConfig: smallConfig, filePieces: []byte("\n\x09\n\x05<unk>\x18\x02")})
	f.Parts[0].Tensors = []formats.Tensor{
		{Name: "model.layers.0.mlp.down_proj.bias", DType: formats.BF16, Shape: []int64{4, 16}}}
	m, err := Convert(f, formats.F16)
	if err != nil || len(m.Tensors) != 1 || m.Tensors[0].DType != formats.F32 {
		t.Errorf("%+v, %v", m, err)
	}
}

// Whatever the files of a folder are, it is converted or refused, and what is converted can be written.
func FuzzConvert(f *testing.F) {
	for _, x := range [][]string{
		{`{"temperature": 1, "top_k": 2}`, "---\nlicense: mit\nbase_model: a/b-7B\n---\n", `{"added_tokens": [{"id": 1, "content": "<s>"}],
			"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
			"pair": []}}`, `{"bos_token": "<s>", "eos_token": {"content": "x"}, "chat_template": [{"name": "a", "template": "b"}]}`,
			`{"rope_scaling": {"type": "linear", "factor": 2}}`},
	} {
		f.Add([]byte(x[0]), []byte(x[1]), []byte(x[2]), []byte(x[3]), []byte(x[4]))
	}
	f.Fuzz(func(t *testing.T, generation, card, tokenizer, tokenizing, config []byte) {
		files := map[string][]byte{fileConfig: smallConfig, filePieces: []byte("\n\x09\n\x05<unk>\x18\x02"), fileCard: card}
		for name, p := range map[string][]byte{
			fileGeneration: generation, fileTokenizer: tokenizer, fileTokenizing: tokenizing,
		} {
			if len(p) > 0 {
				files[name] = p
			}
		}
		if i := bytes.LastIndexByte(config, '}'); i > 0 { // more keys, before the known ones
			files[fileConfig] = append(append(bytes.Clone(config[:i]), ','), smallConfig[1:]...)
		}
		m, err := Convert(small(files), formats.BF16)
		if err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			return
		}
		var entries []gguf.Entry
		for _, x := range m.Tensors {
			entries = append(entries, x.Entry)
		}
		if _, err := gguf.AppendHeader(nil, m.Pairs, entries); err != nil {
			t.Fatal(err)
		}
	})
}
