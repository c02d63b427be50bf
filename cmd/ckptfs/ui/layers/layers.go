// Package layers puts the tensors of a model together by the layers that their names tell of.
package layers

import (
	"math"
	"strings"

	"ckptfs/fs/control"
)

// Squares are |Δ|² and |A|² of a tensor that changed, which add up to those of its layer. Not ok: they are
// not known, or beyond a float64.
func Squares(c *control.TensorChange) (by, from float64, ok bool) {
	if c.RelNorm == nil || c.Norm == nil {
		return 0, 0, false
	}
	norm := float64(*c.Norm)
	by = float64(*c.RelNorm) * norm
	by, from = by*by, norm*norm
	return by, from, by <= math.MaxFloat64 && from <= math.MaxFloat64 // neither infinite nor NaN
}

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
