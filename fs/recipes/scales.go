package recipes

import (
	"encoding/binary"
	"math"

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
	shape := t.Tensor.Shape
	rows, cols := int64(1), int64(1)
	for i, n := range shape {
		if i < len(shape)-1 {
			rows *= n
		} else {
			cols = n
		}
	}
	if rows < 1 || cols < 1 || rows > 1<<30 || cols > 1<<30 {
		return false, nil
	}
	for _, end := range scaleNames {
		s, content, err := t.Beside(t.Tensor.Name + end)
		if err != nil {
			return false, err
		}
		if s == nil || s.NumElements() > maxScales {
			continue
		}
		g := quant.Scales{Rows: int(rows), Cols: int(cols)}
		switch n := s.NumElements(); {
		case n == 1:
			g.Tall, g.Wide = g.Rows, g.Cols
		case n == rows:
			g.Tall, g.Wide = 1, g.Cols
		case n == (rows+127)/128*((cols+127)/128):
			g.Tall, g.Wide = 128, 128
		default:
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
