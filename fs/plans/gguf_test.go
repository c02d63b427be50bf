package plans

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/gguf"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/plans/llamacpp"
)

// hubModel is a model of testdata/gguf.json, which gguf.py writes.
type hubModel struct {
	name   string
	Parts  map[string][]spec
	Files  map[string]string
	Binary map[string][]byte
	Sums   map[string][2]any
}

func hubModels(t testing.TB) (out []hubModel) {
	t.Helper()
	b, err := os.ReadFile("testdata/gguf.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]hubModel
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		f.name = name
		out = append(out, f)
	}
	return out
}

// plan plans the folder's file.
func (f hubModel) plan(t testing.TB, to formats.DType) (at, error) {
	t.Helper()
	in := llamacpp.Folder{Path: "runs/" + f.name, Files: map[string][]byte{}}
	for name, text := range f.Files {
		in.Files[name] = []byte(text)
	}
	maps.Copy(in.Files, f.Binary)
	var files []file
	var sources []*Source
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.Parts)) {
		var entries []safetensors.Entry
		for _, s := range f.Parts[name] {
			entries = append(entries, s.Entry)
		}
		x := build(t, entries, pt, func(i int) []byte { return f.Parts[name][i].data() })
		files, sources = append(files, x), append(sources, x.Source)
		names = append(names, name)
	}
	p, err := GGUF(sources, names, &in, to)
	if err != nil {
		return at{}, err
	}
	return over(p, files...), nil
}

var ggufTypes = map[string]formats.DType{"f32": formats.F32, "f16": formats.F16, "bf16": formats.BF16}

// The bytes are those that llama.cpp's converter writes, of all numbers in half precision, too.
func TestGGUF(t *testing.T) {
	for _, f := range hubModels(t) {
		for typ, want := range f.Sums {
			p, err := f.plan(t, ggufTypes[typ])
			if err != nil {
				t.Errorf("%s: %v", f.name, err)
				continue
			}
			whole := p.all(t)
			sum := sha256.Sum256(whole)
			if want[0] != float64(p.Size()) || want[1] != hex.EncodeToString(sum[:]) {
				t.Errorf("%s in %s: %d bytes %x, want %v", f.name, typ, p.Size(), sum[:4], want)
			}
			for off, n := int64(0), 1; off < p.Size(); off, n = off+int64(n), n*3%40_009 {
				part := make([]byte, min(int64(n), p.Size()-off))
				if _, err := p.ReadAt(part, off); err != nil || !bytes.Equal(part, whole[off:][:len(part)]) {
					t.Fatalf("%s in %s: %d bytes at %d: %v", f.name, typ, len(part), off, err)
				}
			}
			l, err := gguf.Parser{}.Parse(bytes.NewReader(whole), int64(len(whole)))
			if err != nil || l.Check(int64(len(whole))) != nil {
				t.Errorf("%s in %s: %v", f.name, typ, err)
			}
		}
	}
}

// What is not known to the byte is refused, by the name of its file.
func TestGGUFRefused(t *testing.T) {
	fallback, mixture, model := hubModels(t)[0], hubModels(t)[2], hubModels(t)[3]
	edit := func(file, from, to string) func(*hubModel) {
		return func(f *hubModel) {
			if !strings.Contains(f.Files[file], from) {
				t.Fatalf("%s has no %q", file, from)
			}
			f.Files[file] = strings.Replace(f.Files[file], from, to, 1)
		}
	}
	put := func(file, text string) func(*hubModel) { return func(f *hubModel) { f.Files[file] = text } }
	config := func(more string) func(*hubModel) { return edit("config.json", "{", "{"+more+",") }
	part := func(name string, specs ...spec) func(*hubModel) {
		return func(f *hubModel) { f.Parts[name] = append(slices.Clone(f.Parts[name]), specs...) }
	}
	one := func(name string, d formats.DType, shape ...int64) spec {
		return spec{Entry: safetensors.Entry{Name: name, DType: d, Shape: shape}, pattern: "bits"}
	}
	in := func(of hubModel, change func(*hubModel)) func(*hubModel) {
		return func(f *hubModel) {
			*f = of
			f.Files, f.Parts = maps.Clone(f.Files), maps.Clone(f.Parts)
			change(f)
		}
	}
	experts := func(change func(*hubModel)) func(*hubModel) { return in(mixture, change) }
	tokens := func(from, to string) func(*hubModel) { return in(fallback, edit("tokenizer.json", from, to)) }
	says := func(from, to string) func(*hubModel) { return in(fallback, edit("tokenizer_config.json", from, to)) }
	as := func(name string, i int, d formats.DType, shape ...int64) func(*hubModel) {
		return func(f *hubModel) {
			f.Parts[name] = slices.Clone(f.Parts[name])
			f.Parts[name][i].DType, f.Parts[name][i].Shape = d, shape
		}
	}
	for name, c := range map[string]struct {
		change func(*hubModel)
		says   string
	}{
		"no config":     {func(f *hubModel) { delete(f.Files, "config.json") }, "config.json: it is not there"},
		"no JSON":       {put("config.json", "{"), "config.json: not JSON"},
		"another model": {edit("config.json", "LlamaFor", "FooFor"), `"FooForCausalLM" of type "llama"`},
		"another type's keys": {edit("config.json", `"model_type": "llama"`, `"n_ctx": 1, "layer_norm_epsilon": 1, "model_type": "gpt2"`),
			`"LlamaForCausalLM" of type "gpt2"`},
		"another type":        {edit("config.json", `"llama"`, `"mistral"`), `"LlamaForCausalLM" of type "mistral"`},
		"quantised":           {config(`"quantization_config": {}`), "quantization_config"},
		"a foreign key":       {config(`"num_experts": null`), "num_experts"},
		"a method":            {config(`"to_dict": 1`), "to_dict"},
		"an int for a float":  {edit("config.json", "1e-05", "1"), "rms_norm_eps"},
		"a float for an int":  {edit("config.json", "131072", "131072.0"), "max_position_embeddings"},
		"a huge vocabulary":   {edit("config.json", `"vocab_size": 1024`, `"vocab_size": 99999999`), "vocab_size"},
		"dynamic embeddings":  {config(`"rope_scaling": {"type": "dynamic", "factor": 2}`), "dynamic"},
		"an unknown base":     {config(`"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}`), "base 10000"},
		"a key of embeddings": {config(`"rope_scaling": {"type": "linear", "factor": 2, "mscale": 1}`), "mscale"},
		"a card":              {put("README.md", "---\na: &b c\n---\n"), "README.md"},
		"a number as a name":  {put("README.md", "---\nname: 1\n---\n"), "README.md: name"},
		"a generation config": {put("generation_config.json", `{"top_k": 1.5}`), "generation_config.json: top_k"},
		"an index":            {put("model.safetensors.index.json", `{"weight_map": {"a": "b"}}`), "a file that it names"},
		"a missing tensor":    {put("model.safetensors.index.json", `{"weight_map": {"a": "model.safetensors"}}`), `"a" is not there`},
		"a folder's name":     {func(f *hubModel) { f.name = "ü" }, "folder's name"},
		"no vocabulary":       {func(f *hubModel) { f.Binary = nil }, "tokenizer"},
		"a broken vocabulary": {func(f *hubModel) { f.Binary = map[string][]byte{"tokenizer.model": {9}} }, "tokenizer.model"},
		"added tokens":        {put("added_tokens.json", `{"a": -1}`), "added_tokens.json"},
		"chat templates": {put("tokenizer_config.json",
			`{"chat_template": [{"name": "a", "template": ""}, {"name": "b", "template": ""}]}`), "no fixed order"},
		"quantised by others":       {put("hf_quant_config.json", "{}"), "hf_quant_config.json"},
		"an unknown tensor":         {part("model.safetensors", one("model.layers.0.mlp.experts.weight", "F32", 2)), "experts"},
		"one layer too many":        {part("model.safetensors", one("model.layers.1.mlp.up_proj.weight", "F32", 2, 2)), "layers.1"},
		"integers":                  {part("model.safetensors", one("lm_head.bias", "I32", 2)), "lm_head.bias"},
		"odd heads":                 {part("model.safetensors", one("model.layers.0.self_attn.q_proj.bias", "F32", 6)), "q_proj"},
		"labels":                    {config(`"id2label": {"x": "y"}`), `"x" is no number`},
		"labels of numbers":         {config(`"id2label": {"0": 1}`), "id2label"},
		"a tensor twice":            {part("model-2.safetensors", one("model.norm.weight", "F32", 64)), "another file"},
		"no fallback":               {tokens(`"byte_fallback": true`, `"byte_fallback": false`), "decoder"},
		"a fallback of Qwen":        {in(fallback, put("config.json", strings.NewReplacer("MistralFor", "Qwen2For", `"mistral"`, `"qwen2"`).Replace(fallback.Files["config.json"]))), "byte-level"},
		"another version":           {tokens(`"1.0"`, `"2.0"`), "version 2.0"},
		"truncation":                {tokens(`"truncation": null`, `"truncation": {}`), "truncation"},
		"a stride too long":         {tokens(`"truncation": null`, `"truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 8}`), "truncation"},
		"padding":                   {tokens(`"padding": null`, `"padding": {"strategy": {"Fixed": 9}}`), "padding"},
		"another normalizer":        {tokens(`"normalizer": null`, `"normalizer": {"type": "NFC"}`), "normalizer"},
		"another pre-tokenizer":     {tokens(`"split": false`, `"split": true`), "pre-tokenizer"},
		"another decoder":           {tokens(`"start": 1`, `"start": 2`), "decoder"},
		"another post-processor":    {tokens(`"ids": [1]`, `"ids": []`), "post-processor"},
		"a template of no token":    {tokens(`{"id": "<s>", "type_id"`, `{"id": "<t>", "type_id"`), "post-processor"},
		"dropout":                   {tokens(`"dropout": null`, `"dropout": 0.5`), "dropout"},
		"a merge of no token":       {tokens(`[["a", "b"]`, `[["a", "a"]`), "merge 0"},
		"a merge of three":          {tokens(`[["a", "b"]`, `[["a", "b", "a"]`), "merge 0"},
		"merges of two kinds":       {tokens(`["\u2581", "ab"]`, `"\u2581 ab"`), "merge 1"},
		"a hole in the vocabulary":  {tokens(`"ab": 8`, `"ab": 80`), `"ab"`},
		"two tokens of one id":      {tokens(`"ab": 8`, `"ab": 7`), `"ab"`},
		"an id that is a float":     {tokens(`"ab": 8`, `"ab": 8.0`), `"ab"`},
		"an added token far away":   {tokens(`"id": 10`, `"id": 1000000000`), "<|x|>"},
		"an added token's other id": {tokens(`"id": 2,`, `"id": 3,`), "</s>"},
		"an added token twice":      {tokens(`"<pad>"`, `"<|x|>"`), "<|x|>"},
		"a token without flags":     {tokens(`"lstrip": false, `, ``), "lstrip"},
		"a special token elsewhere": {says(`["b"]`, `["c"]`), "extra_special_tokens"},
		"no unk_token":              {says(`"unk_token": "<unk>", `, ``), "unk_token"},
		"another class":             {says(`LlamaTokenizer`, `GemmaTokenizer`), "GemmaTokenizer"},
		"a token of its own":        {says(`"legacy"`, `"image_token": "b", "legacy"`), "image_token"},
		"other added tokens":        {says(`"legacy"`, `"added_tokens_decoder": {"3": {"content": "b"}}, "legacy"`), "none of tokenizer.json"},
		"other special tokens":      {in(fallback, put("special_tokens_map.json", `{"bos_token": "</s>"}`)), "bos_token is another"},
		"other tokens in a file":    {in(fallback, put("added_tokens.json", `{"b": 6}`)), "none of tokenizer.json"},

		"experts of both names":     {experts(edit("config.json", "{", `{"num_experts": 11,`)), "num_experts"},
		"a width of experts":        {experts(config(`"moe_intermediate_size": 7`)), "moe_intermediate_size"},
		"no experts at a time":      {experts(edit("config.json", "num_experts_per_tok", "x")), "num_experts_per_tok"},
		"too many experts":          {experts(edit("config.json", "experts\": 11", "experts\": 1000000000")), "num_local_experts"},
		"an expert is missing":      {experts(edit("config.json", "experts\": 11", "experts\": 12")), "experts of layer 0"},
		"one expert too many":       {experts(edit("config.json", "experts\": 11", "experts\": 10")), "experts.10.w1"},
		"an unknown expert":         {experts(part("model-1.safetensors", one("model.layers.0.block_sparse_moe.experts.0.w4.weight", "F32", 2, 2))), "w4"},
		"an expert's bias":          {experts(part("model-1.safetensors", one("model.layers.0.block_sparse_moe.experts.0.w1.bias", "F32", 2))), "w1.bias"},
		"experts of several types":  {experts(as("model-2.safetensors", 0, "F16", 32, 64)), "another type or shape"},
		"experts of several shapes": {experts(as("model-2.safetensors", 0, "BF16", 31, 64)), "another type or shape"},
	} {
		f := model
		f.Files, f.Parts = maps.Clone(f.Files), maps.Clone(f.Parts)
		c.change(&f)
		_, err := f.plan(t, formats.F16)
		if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
