package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// MaxIndex bounds an index, in bytes.
const MaxIndex = 64 << 20

// ParseIndex reads the index of a sharded set and returns the file of each tensor:
//
//	{"metadata": {"total_size": 1000}, "weight_map": {"fc.weight": "model-00001-of-00002.safetensors"}}
//
// A name that occurs twice, and a file that is not a plain name beside the index, are errors: which tensor, or whose file, would be
// meant is not certain.
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
