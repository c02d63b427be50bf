package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxIndex bounds an index, in bytes.
const MaxIndex = 64 << 20

// indexed are the files that an index may be of.
var indexed = []string{".safetensors", ".bin", ".pt", ".pth"}

// IndexedFile is what the one file would be called that has all tensors of an index of this name.
//
//	model.safetensors.index.json          model.safetensors       transformers, huggingface_hub, diffusers …
//	model.safetensors.index.fp16.json     model.fp16.safetensors  transformers, diffusers: a variant
//	model.safetensors.fp16.index.json     model.fp16.safetensors  diffusers, once
//	model.fp16.safetensors.index.json     model.fp16.safetensors  huggingface_hub: a pattern with a variant
func IndexedFile(p string) (name string, ok bool) {
	stem, ok := strings.CutSuffix(path.Base(p), ".json")
	if !ok {
		return "", false
	}
	words := strings.Split(stem, ".")
	for i := len(words) - 2; i > 0; i-- {
		if !slices.Contains(indexed, "."+words[i]) {
			continue
		}
		variant := words[i+1:]
		switch last := len(variant) - 1; {
		case variant[0] == "index":
			variant = variant[1:]
		case variant[last] == "index":
			variant = variant[:last]
		default:
			return "", false
		}
		return strings.Join(slices.Concat(words[:i], variant, words[i:i+1]), "."), true
	}
	return "", false
}

// IsIndex reports whether a file of this name is an index.
func IsIndex(p string) bool {
	_, ok := IndexedFile(p)
	return ok
}

// ParseIndex reads the index of a sharded set and returns the file of each tensor:
//
//	{"metadata": {"total_size": 1000}, "weight_map": {"fc.weight": "model-00001-of-00002.safetensors"}}
//
// A name that occurs twice, and a file that is not a plain name beside the index, are errors: which tensor,
// or whose file, would be meant is not certain.
func ParseIndex(p []byte) (map[string]string, error) {
	if len(p) > MaxIndex || !utf8.Valid(p) {
		return nil, fmt.Errorf("safetensors index: %d bytes, or not UTF-8", len(p))
	}
	var doc struct {
		Weights json.RawMessage `json:"weight_map"`
	}
	if err := json.Unmarshal(p, &doc); err != nil {
		return nil, fmt.Errorf("safetensors index: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(doc.Weights))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("safetensors index: no weight_map")
	}
	files := make(map[string]string)
	for d.More() {
		var pair [2]string
		for i := range pair {
			t, err := d.Token()
			if err != nil && err != io.EOF {
				return nil, fmt.Errorf("safetensors index: %w", err)
			}
			var ok bool
			if pair[i], ok = t.(string); !ok {
				return nil, fmt.Errorf("safetensors index: tensor %.64q: no file", pair[0])
			}
		}
		name, file := pair[0], pair[1]
		if _, twice := files[name]; twice {
			return nil, fmt.Errorf("safetensors index: tensor %.64q twice", name)
		}
		if file == "" || file == "." || file == ".." || strings.ContainsAny(file, "/\x00") {
			return nil, fmt.Errorf("safetensors index: tensor %.64q: file %.64q", name, file)
		}
		files[name] = file
	}
	return files, nil
}
