package llamacpp

import (
	"errors"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/gguf"
)

// Whatever a tokenizer that falls back to bytes is, it is converted or refused, and what is converted has a
// type and a score for each token.
func FuzzFallback(f *testing.F) {
	f.Add([]byte(`{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{"id": 0, "content": "<s>", "single_word": false,
		"lstrip": false, "rstrip": false, "normalized": false, "special": true}, {"id": 4, "content": "<x>", "single_word": false,
		"lstrip": false, "rstrip": false, "normalized": false, "special": false}], "normalizer": {"type": "Prepend", "prepend": "▁"},
		"pre_tokenizer": null, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
		{"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
		"special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}, "decoder": {"type": "Sequence", "decoders": [
		{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
		"model": {"type": "BPE", "byte_fallback": true, "vocab": {"<s>": 0, "<0x0A>": 1, "a": 2, "aa": 3}, "merges": ["a a"]}}`),
		[]byte(`{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "<s>"},
		"unk_token": null, "extra_special_tokens": ["a"], "added_tokens_decoder": {"4": {"content": "<x>"}}}`),
		[]byte(`{"bos_token": "<s>"}`))
	f.Fuzz(func(t *testing.T, tokenizer, config, special []byte) {
		m, err := Convert(small(map[string][]byte{fileConfig: smallConfig, fileTokenizer: tokenizer, fileTokenizing: config,
			fileSpecial: special}), formats.F16)
		if err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			return
		}
		n := map[string]int{}
		for _, p := range m.Pairs {
			switch v := p.Value.(type) {
			case []string:
				n[p.Key] = len(v)
			case []int32:
				n[p.Key] = len(v)
			case []float32:
				n[p.Key] = len(v)
			}
		}
		const of = "tokenizer.ggml."
		if n[of+"tokens"] == 0 || n[of+"tokens"] != n[of+"scores"] || n[of+"tokens"] != n[of+"token_type"] {
			t.Errorf("%v", n)
		}
		if _, err := gguf.AppendHeader(nil, m.Pairs, nil); err != nil {
			t.Fatal(err)
		}
	})
}
