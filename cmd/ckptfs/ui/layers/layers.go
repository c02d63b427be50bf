// Package layers puts the tensors of a model together by the layers that their names tell of.
package layers

import (
	"strings"
)

// Of is the layer of a tensor: its name up to the first number in it, or else all but its last part.
//
//	model.layers.3.self_attn.q_proj.weight   model.layers.3
//	layer1.0.conv1.weight                    layer1.0
//	fc.weight                                fc
//	weight                                   weight
func Of(name string) string {
	end, from := -1, 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' && name[i] != '/' {
			continue
		}
		if part := name[from:i]; part != "" && strings.Trim(part, "0123456789") == "" {
			return name[:i]
		}
		if i < len(name) {
			end = i
		}
		from = i + 1
	}
	if end <= 0 {
		return name
	}
	return name[:end]
}
