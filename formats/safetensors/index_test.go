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
		`{"weight_map": {"a": "x", "a": "y"}}`, `{"weight_map": {"a": "../x"}}`, `{"weight_map": {"a": "/x"}}`,
		`{"weight_map": {"a": ""}}`, `{"weight_map": {"a": ".."}}`, "{\"weight_map\": {\"a\": \"\xff\"}}", `{"weight_map": {"a": "x"}} x`,
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
