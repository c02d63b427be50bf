package recipes

import (
	"strings"

	"ckptfs/cas/quant"
	"ckptfs/formats"
)

// ofEights is of codes of which eight inputs of an output lie in a word, and the words of all outputs in a
// row. A row of these is taken for one of eight elements for each output. The codes are 8 more than they are;
// those with other zeros do not fit.
func (t *Target) ofEights() (*coding, error) {
	stem := strings.TrimSuffix(t.Tensor.Name, eights)
	x, p, err := t.Beside(stem + scalesOf)
	if x == nil || err != nil {
		return nil, err
	}
	if len(x.Shape) == 2 && x.Shape[1] == 8*t.Tensor.Shape[1] {
		return t.ofLanes(stem, x, p)
	}
	typ, ok := scaleTypes[x.DType]
	rows, outputs := t.Tensor.Shape[0], t.Tensor.Shape[1]
	if !ok || typ > quant.F16 || len(x.Shape) != 2 || x.Shape[1] != outputs || x.Shape[0] < 1 ||
		rows%x.Shape[0] != 0 || rows < 1 || outputs < 1 || rows > maxCols || outputs > maxCols ||
		x.NumElements() > maxScales {
		return nil, nil
	}
	c := &coding{name: stem + weight, rows: rows, cols: 8 * outputs, inputs: 8 * rows, scales: aside{typ, p}}
	c.quantiser.Format = quant.Int4
	c.quantiser.Scales = quant.Scales{Type: typ, Rows: int(rows), Cols: int(8 * outputs),
		Tall: int(rows / x.Shape[0]), Wide: 8, Rule: quant.Rule{Kind: quant.OverOr, Levels: 1, Global: 1}}
	return c, nil
}

// byEights is the layout of such codes, of a source with rows of so many inputs.
type byEights struct{ outputs, inputs int64 }

func (l byEights) runs(first, n int64, add func(source int, first, n int64)) {
	for n > 0 {
		row, output, k := first/(8*l.outputs), first/8%l.outputs, first%8
		m := min(n, 8-k)
		add(0, output*l.inputs+8*row+k, m)
		first, n = first+m, n-m
	}
}

// layoutOf is the layout in which t is looked for in s; nil: it cannot be of it.
func (t *Target) layoutOf(s *formats.Tensor) layout {
	c := t.coded
	if c == nil || c.inputs == 0 {
		return straight{}
	}
	rows, cols, ok := matrix(s.Shape)
	if !ok || cols != c.inputs || 8*rows != c.cols {
		return nil
	}
	return byEights{rows, cols}
}
