package recipes

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/formats"
)

// maxScales bounds the groups of a tensor.
const maxScales = 1 << 22

// scaleNames are what stands behind a tensor's name in that of its scales.
var scaleNames = []string{"_scale", "_scale_inv"}

// scale finds the scales of t, a tensor in FP8: one for all, one a row, or one for squares of 128 by 128.
func (p *Plan) scale(t *Target) (ok bool, err error) {
	if t.Beside == nil {
		return false, nil
	}
	for _, end := range scaleNames {
		s, content, err := t.Beside(t.Tensor.Name + end)
		if err != nil {
			return false, err
		}
		if s == nil {
			continue
		}
		g, fits := geometry(t.Tensor, s)
		if !fits {
			continue
		}
		var as bool
		if g.Type, p.scales, as = scalesAs(s.DType, content); as {
			p.quantiser.Scales = g
			return true, nil
		}
	}
	return false, nil
}

// isScales reports whether a tensor of that name may hold the scales of another.
func isScales(name string) bool {
	return slices.ContainsFunc(scaleNames, func(end string) bool { return strings.HasSuffix(name, end) })
}

// scaleTypes are the types of scales.
var scaleTypes = map[formats.DType]quant.Type{formats.F32: quant.F32, formats.BF16: quant.BF16,
	formats.F16: quant.F16}

// geometry is which elements of t share which of the scales s; ok is false where they are not its scales.
func geometry(t, s *formats.Tensor) (g quant.Scales, ok bool) {
	rows, cols := int64(1), int64(1)
	for i, n := range t.Shape {
		if i < len(t.Shape)-1 {
			rows *= n
		} else {
			cols = n
		}
	}
	if rows < 1 || cols < 1 || rows > 1<<30 || cols > 1<<30 || s.NumElements() > maxScales {
		return g, false
	}
	g = quant.Scales{Type: scaleTypes[s.DType], Rows: int(rows), Cols: int(cols)}
	switch n := s.NumElements(); {
	case n == 1:
		g.Tall, g.Wide = g.Rows, g.Cols
	case n == rows:
		g.Tall, g.Wide = 1, g.Cols
	case n == (rows+127)/128*((cols+127)/128):
		g.Tall, g.Wide = 128, 128
	default:
		return g, false
	}
	return g, true
}

// scalesAs are numbers of a type that scales may have.
func scalesAs(t formats.DType, p []byte) (as quant.Type, x []float32, ok bool) {
	le := binary.LittleEndian
	switch t {
	case formats.F32:
		for ; len(p) >= 4; p = p[4:] {
			x = append(x, math.Float32frombits(le.Uint32(p)))
		}
		return quant.F32, x, true
	case formats.BF16:
		for ; len(p) >= 2; p = p[2:] {
			x = append(x, half.FromBF16(le.Uint16(p)))
		}
		return quant.BF16, x, true
	case formats.F16:
		for ; len(p) >= 2; p = p[2:] {
			x = append(x, half.FromF16(le.Uint16(p)))
		}
		return quant.F16, x, true
	}
	return 0, nil, false
}
