package llamacpp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/pyjson"
)

// The converter's text becomes the tokens that the library makes of it, by each pre-tokenizer that is known.
func TestEncode(t *testing.T) {
	text, err := os.ReadFile("testdata/bpe.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct {
		Tokenizer json.RawMessage
		IDs       []int64
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != len(cuts) {
		t.Errorf("of %d pre-tokenizers %d are tried", len(cuts), len(all))
	}
	for name, x := range all {
		v, err := pyjson.Parse(x.Tokenizer, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		o := v.(*pyjson.Object)
		model := o.Value("model").(*pyjson.Object)
		parts, ignore, err := levelParts(o, model, false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, ids, err := vocabOf(model.Value("vocab").(*pyjson.Object))
		if err != nil {
			t.Fatal(err)
		}
		merges, err := mergesOf(model)
		if err != nil {
			t.Fatal(err)
		}
		b := bpe{ids: ids, ignoreMerges: ignore}
		b.take(merges, parts)
		if got, err := b.encode(parts); err != nil || !slices.Equal(got, x.IDs) {
			t.Errorf("%s: %v, %v, want %v", name, err, got, x.IDs)
		}
	}
}

// A tokenizer that may make another text of what is known is refused, and one that the converter has no name
// for.
func TestByteLevelRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/bpe.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	added := func(content string) string {
		return fmt.Sprintf(`"added_tokens": [{"id": 420, "content": %q, "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": false}]`, content)
	}
	const none = `"added_tokens": []`
	const config = `{"tokenizer_class": "TokenizersBackend"}`
	for _, x := range []struct{ from, to, config, says string }{
		{"", "", config, "has no name"}, {"", "", `{"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true}`, "has no name"},
		{none, added("<x>"), config, "has no name"}, {none, added("<\uff5ca\u2581b\uff5c>"), config, "has no name"},
		{none, added("tea"), config, `"tea" is in texts`}, {none, added("<a b>"), config, "odd characters"},
		{none, added("<\u00e9>"), config, "odd characters"},
		{none, added("<x>"), `{"tokenizer_class": "TokenizersBackend", "eos_token": "<x>"}`, "no special token"},
		{none, added("<x>"), `{"tokenizer_class": "TokenizersBackend", "added_tokens_decoder": {"420": {"content": "<x>"}}}`, "is another"},
		{"", "", `{"tokenizer_class": "TokenizersBackend", "eos_token": "<y>"}`, "no token of"},
		{"", "", `{"tokenizer_class": "Qwen2Tokenizer"}`, "Qwen2Tokenizer"}, {"", "", `{"tokenizer_class": "GPT2Tokenizer"}`, "GPT2Tokenizer"},
		{"", "", `{"tokenizer_class": "TokenizersBackend", "split_special_tokens": true}`, "what a text becomes"},
		{"", "", `{"tokenizer_class": "TokenizersBackend", "fix_mistral_regex": true}`, "fix_mistral_regex"},
		{`"normalizer": null`, `"normalizer": {"type": "NFKC"}`, config, "normalizer"},
		{`"invert": false`, `"invert": true`, config, "pre-tokenizer"}, {`{1,3}`, `{1,4}`, config, "pre-tokenizer"},
		{`"post_processor": null`, `"post_processor": {"type": "BertProcessing"}`, config, "post-processor"},
		{`"unk_token": null`, `"unk_token": "a"`, config, "unk_token"}, {`"dropout": null`, `"dropout": 0.1`, config, "dropout"},
		{`"merges": [[`, `"merges": [["q", "\u00e9"], [`, config, "merge 0"},
	} {
		tokenizer := string(all["llama3"].Tokenizer)
		if !strings.Contains(tokenizer, x.from) {
			t.Fatalf("there is no %s", x.from)
		}
		tokenizer = strings.Replace(tokenizer, x.from, x.to, 1)
		_, err := Convert(small(map[string][]byte{fileConfig: bytes.Replace(smallConfig, []byte(`"vocab_size": 40`), []byte(`"vocab_size": 500`), 1),
			fileTokenizer: []byte(tokenizer), fileTokenizing: []byte(x.config)}), formats.F16)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%.60s, %s: %v", x.to, x.config, err)
		}
	}
}
