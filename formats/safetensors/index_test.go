package safetensors

import (
	"maps"
	"testing"
)

func TestParseIndex(t *testing.T) {
	got, err := ParseIndex([]byte(`{"metadata": {"total_size": 10}, "weight_map": {"a": "m-1.safetensors", "größe": "m-2.safetensors"}}`))
	if err != nil || !maps.Equal(got, map[string]string{"a": "m-1.safetensors", "größe": "m-2.safetensors"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, p := range []string{
		``, `{}`, `[]`, `{"weight_map": []}`, `{"weight_map": {"a": 1}}`, `{"weight_map": {"a": {"b": "c"}}}`,
		`{"weight_map": {"a": "x", "a": "y"}}`, `{"weight_map": {"a": "../x"}}`,
		`{"weight_map": {"a": "/x"}}`, `{"weight_map": {"a": ""}}`, `{"weight_map": {"a": ".."}}`,
		"{\"weight_map\": {\"a\": \"\xff\"}}", `{"weight_map": {"a": "x"}} x`,
	} {
		if got, err := ParseIndex([]byte(p)); err == nil {
			t.Errorf("%s: %v", p, got)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map": {"a": "x", "b": "y"}}`))
	f.Fuzz(func(_ *testing.T, p []byte) { _, _ = ParseIndex(p) })
}

// The names that libraries give to indexes, and what the one file would be called.
func TestIndexNames(t *testing.T) {
	for name, want := range map[string]string{
		"model.safetensors.index.json":                        "model.safetensors",
		"pytorch_model.bin.index.json":                        "pytorch_model.bin",
		"model.safetensors.index.fp16.json":                   "model.fp16.safetensors",
		"diffusion_pytorch_model.bin.index.fp16.json":         "diffusion_pytorch_model.fp16.bin",
		"diffusion_pytorch_model.safetensors.fp16.index.json": "diffusion_pytorch_model.fp16.safetensors",
		"diffusion_pytorch_model.fp16.safetensors.index.json": "diffusion_pytorch_model.fp16.safetensors",
		"model.safetensors.index.non.ema.json":                "model.non.ema.safetensors",
		"model.safetensors":                                   "",
		"model.safetensors.json":                              "",
		"model.safetensors.fp16.json":                         "",
		"model.safetensors.index":                             "",
		"index.json":                                          "",
		"safetensors.index.json":                              "",
		"model.index.json":                                    "",
		"":                                                    "",
	} {
		if got, ok := IndexedFile("runs/a.bin/" + name); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", name, got, ok, want)
		}
	}
}
