package recipes

import (
	"encoding/binary"
	"encoding/json"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/quant"
	"ckptfs/formats"
)

// Codes of quantisers that safetensors has no type for lie in bytes or in whole numbers, and what they are is
// told by names and by other tensors of the file:
//
//	X.weight         U8   two codes a byte, with X.weight.quant_state.bitsandbytes__nf4 or __fp4, a JSON
//	                      object that says the shape and how many elements share a scale (bitsandbytes)
//	X.weight.absmax  F32  the scales of those
//	X.weight         I8   with X.SCB, the greatest magnitude of each row (bitsandbytes), or X.weight_scale
//	X.weight_packed  I32  codes of four or eight bits, along rows, whose shape is X.weight_shape
//	X.weight_packed  U8   two numbers of four bits a byte; with X.weight_global_scale NVFP4, else MXFP4
//	X.weight_scale        the scales of those, and of FP8: one for each group of a row, for a row or for all
//	X.qweight        I32  codes of four bits of eight inputs (GPTQ), a row for each eight, with X.scales: a
//	                      row for each group of inputs; or of eight outputs (AWQ, see awq.go)
//
// All but the first four and the last are those of compressed-tensors. All are made of X.weight.
const (
	nf4State   = ".quant_state.bitsandbytes__nf4"
	fp4State   = ".quant_state.bitsandbytes__fp4"
	absmax     = ".absmax"
	rowMax     = ".SCB"
	weight     = ".weight"
	packed     = "_packed"
	scaleOf    = "_scale"
	globalOf   = "_global_scale"
	shapeOf    = "_shape"
	eights     = ".qweight"
	scalesOf   = ".scales"
	maxState   = 64 << 10 // bytes of a description
	minScales  = 1 << 10  // bytes of scales that are computed
	fineLen    = 32 << 10
	fineHalf   = 16 << 10
	maxShared  = 1 << 20 // elements that share a scale that is computed
	levelsFP8  = 448
	levelsFour = 6
)

// Step is how many bytes of a tensor a chunk has: fewer than of others where its numbers are the scales of
// many elements each, and so may be computed of that many. Those of rows are few.
func Step(t *formats.Tensor) int64 {
	cols := int64(0)
	if n := len(t.Shape); n > 1 {
		cols = t.Shape[n-1]
	}
	switch {
	case strings.HasSuffix(t.Name, absmax) && t.DType == formats.F32:
		return fineLen
	case !strings.HasSuffix(t.Name, weight+scaleOf) || cols < 2:
		return cas.ChunkSize
	case t.DType == formats.U8, t.DType == formats.F8E4M3, t.DType == formats.F32:
		return fineLen
	case t.DType == formats.BF16, t.DType == formats.F16:
		return fineHalf
	}
	return cas.ChunkSize
}

// MadeOf is the name of the tensor that codes, or their scales, are made of, if their own tells; else "".
func MadeOf(name string) string {
	for _, of := range [...]struct{ end, by string }{{packed, ""}, {scaleOf, ""}, {absmax, ""}, {rowMax, weight},
		{eights, weight}} {
		if stem, ok := strings.CutSuffix(name, of.end); ok {
			return stem + of.by
		}
	}
	return ""
}

// mayBeCodes reports whether a tensor may have codes that lie in bytes or whole numbers.
func mayBeCodes(t *formats.Tensor) bool {
	switch t.DType {
	case formats.U8:
		return strings.HasSuffix(t.Name, packed) || strings.HasSuffix(t.Name, weight) && len(t.Shape) == 2 &&
			t.Shape[1] == 1
	case formats.I8:
		return strings.HasSuffix(t.Name, weight)
	case formats.I32:
		return strings.HasSuffix(t.Name, packed) || strings.HasSuffix(t.Name, eights) && len(t.Shape) == 2
	}
	return false
}

// mayBeScales reports whether a tensor may have the scales of codes.
func mayBeScales(t *formats.Tensor) bool {
	if _, ok := scaleTypes[t.DType]; ok && strings.HasSuffix(t.Name, weight+scaleOf) {
		return true
	}
	return t.DType == formats.F32 && (strings.HasSuffix(t.Name, absmax) || strings.HasSuffix(t.Name, rowMax))
}

// coding is how a tensor has codes or their scales, as its file tells.
type coding struct {
	name       string // of what it was made of
	rows, cols int64  // of that; 0: the scales are of any
	quantiser  quant.Quantiser
	scales     aside
	n          int64   // of scales, how many they are
	inputs     int64   // 0, or how many the rows have of what codes of eight inputs were made of
	beside     *beside // of AWQ: its scales and zeros
}

// aside are scales that lie elsewhere.
type aside struct {
	typ quant.Type
	raw []byte
}

func (a aside) count() int64 {
	if n := a.typ.Size(); n > 0 {
		return int64(len(a.raw) / n)
	}
	return 0
}

func (a aside) at(i int) float32 { return a.typ.Number(a.raw[i*a.typ.Size():]) }

// coding is how t has codes or scales; nil: it has none, as far as its file tells. The error is of reading.
func (t *Target) coding() (*coding, error) {
	if t.asked || t.Beside == nil {
		return t.coded, nil
	}
	var c *coding
	var err error
	switch x := t.Tensor; {
	case mayBeScales(x):
		c, err = t.ofScales()
	case !mayBeCodes(x):
	case x.DType == formats.U8 && strings.HasSuffix(x.Name, weight):
		c, err = t.bitsandbytes4()
	case x.DType == formats.I8:
		c, err = t.whole8()
	case strings.HasSuffix(x.Name, eights):
		c, err = t.ofEights()
	default:
		c, err = t.packed()
	}
	t.asked, t.coded = true, c
	return c, err
}

// state is what bitsandbytes says of four-bit codes.
type state struct {
	Type  string  `json:"quant_type"`
	Block int64   `json:"blocksize"`
	Shape []int64 `json:"shape"`
}

// state is that of the codes with a name.
func (t *Target) state(name string) (s state, ok bool, err error) {
	for _, end := range []string{nf4State, fp4State} {
		x, p, err := t.Beside(name + end)
		if err != nil {
			return s, false, err
		}
		if x != nil && len(p) <= maxState && json.Unmarshal(p, &s) == nil {
			return s, s.Block > 0 && s.Block <= maxShared, nil
		}
	}
	return s, false, nil
}

func (t *Target) bitsandbytes4() (*coding, error) {
	s, ok, err := t.state(t.Tensor.Name)
	if !ok || err != nil {
		return nil, err
	}
	n := 2 * t.Tensor.NumElements()
	rows, cols, ok := matrix(s.Shape)
	if !ok || rows*cols != n {
		return nil, nil
	}
	c := &coding{name: t.Tensor.Name, rows: rows, cols: cols}
	switch s.Type {
	case "nf4":
		c.quantiser.Format = quant.NF4
	case "fp4":
		c.quantiser.Format = quant.FP4
	default:
		return nil, nil
	}
	// The scales follow, and nothing needs to be known of them.
	c.quantiser.Scales = quant.Scales{Rows: int((n + s.Block - 1) / s.Block), Cols: int(s.Block), Tall: 1,
		Wide: int(s.Block), Rule: quant.Rule{Kind: quant.Over, Levels: 1, Global: 1}}
	return c, nil
}

// matrix is a shape as rows of the last dimension.
func matrix(shape []int64) (rows, cols int64, ok bool) {
	rows, cols = 1, 1
	for i, n := range shape {
		if n < 1 || n > 1<<30 {
			return 0, 0, false
		}
		if i == len(shape)-1 {
			cols = n
		} else if rows *= n; rows > 1<<30 {
			return 0, 0, false
		}
	}
	return rows, cols, true
}

// whole8 is of whole numbers of eight bits.
func (t *Target) whole8() (*coding, error) {
	rows, cols, ok := matrix(t.Tensor.Shape)
	if !ok {
		return nil, nil
	}
	c := &coding{name: t.Tensor.Name, rows: rows, cols: cols}
	c.quantiser.Format = quant.Int8
	stem := strings.TrimSuffix(t.Tensor.Name, weight)
	x, p, err := t.Beside(stem + rowMax)
	if err != nil {
		return nil, err
	}
	if x != nil && x.DType == formats.F32 && x.NumElements() == rows {
		c.scales = aside{quant.F32, p}
		c.quantiser.Scales.Rule = quant.Rule{Kind: quant.Over, Levels: 1, Global: 1}
		return c.grouped(), nil
	}
	return t.scaled(c, t.Tensor.Name+scaleOf, quant.OverOr)
}

// scaled is c with the scales of a name, by a kind of rule; nil: there are none.
func (t *Target) scaled(c *coding, name string, kind quant.RuleKind) (*coding, error) {
	x, p, err := t.Beside(name)
	if x == nil || err != nil {
		return nil, err
	}
	typ, ok := scaleTypes[x.DType]
	if !ok {
		return nil, nil
	}
	c.scales = aside{typ, p}
	c.quantiser.Scales.Rule = quant.Rule{Kind: kind, Levels: 1, Global: 1}
	return c.grouped(), nil
}

var scaleTypes = map[formats.DType]quant.Type{formats.F32: quant.F32, formats.BF16: quant.BF16,
	formats.F16: quant.F16, formats.F8E4M3: quant.E4M3, formats.U8: quant.E8M0}

// grouped sets which elements share a scale, which the number of scales tells; nil: it does not.
func (c *coding) grouped() *coding {
	g, n := &c.quantiser.Scales, c.scales.count()
	g.Type, g.Rows, g.Cols, g.Tall = c.scales.typ, int(c.rows), int(c.cols), 1
	switch {
	case n == 0 || n > maxScales:
		return nil
	case n == 1:
		g.Tall, g.Wide = g.Rows, g.Cols
	case n%c.rows == 0 && c.cols%(n/c.rows) == 0:
		g.Wide = int(c.cols / (n / c.rows))
	default:
		return nil
	}
	return c
}

// packed is of codes of compressed-tensors.
func (t *Target) packed() (*coding, error) {
	name := strings.TrimSuffix(t.Tensor.Name, packed)
	rows, cols, ok := matrix(t.Tensor.Shape)
	if !ok {
		return nil, nil
	}
	if t.Tensor.DType == formats.U8 {
		c := &coding{name: name, rows: rows, cols: 2 * cols}
		x, p, err := t.Beside(name + globalOf)
		if err != nil {
			return nil, err
		}
		if x == nil {
			c.quantiser.Format = quant.MXFP4Pairs
			return t.scaled(c, name+scaleOf, quant.Power)
		}
		c.quantiser.Format = quant.NVFP4
		if c, err = t.scaled(c, name+scaleOf, quant.Global); c != nil {
			c.global(x, p)
		}
		return c, err
	}
	x, p, err := t.Beside(name + shapeOf)
	if x == nil || err != nil {
		return nil, err
	}
	wide, ok := wholes(x, p)
	if !ok || len(wide) != len(t.Tensor.Shape) {
		return nil, nil
	}
	all, was, ok := matrix(wide)
	c := &coding{name: name, rows: rows, cols: was}
	switch {
	case !ok || all != rows:
		return nil, nil
	case was == 8*cols:
		c.quantiser.Format = quant.Int4
	case was == 4*cols:
		c.quantiser.Format = quant.UInt8
	default:
		return nil, nil
	}
	return t.scaled(c, name+scaleOf, quant.OverOr)
}

// global sets the scale of scales.
func (c *coding) global(x *formats.Tensor, p []byte) {
	r := &c.quantiser.Scales.Rule
	r.Levels = levelsFour
	if typ, ok := scaleTypes[x.DType]; ok && x.NumElements() == 1 {
		r.Global = typ.Number(p)
	}
}

// wholes are the numbers of a tensor of some whole ones.
func wholes(t *formats.Tensor, p []byte) (all []int64, ok bool) {
	size := t.DType.Bits() / 8
	if t.DType != formats.I64 && t.DType != formats.I32 || len(p) > 8*size {
		return nil, false
	}
	for ; len(p) >= size; p = p[size:] {
		if size == 8 {
			all = append(all, int64(binary.LittleEndian.Uint64(p)))
		} else {
			all = append(all, int64(int32(binary.LittleEndian.Uint32(p))))
		}
	}
	return all, true
}

// ofScales is of scales themselves.
func (t *Target) ofScales() (*coding, error) {
	typ, ok := scaleTypes[t.Tensor.DType]
	if !ok {
		return nil, nil
	}
	c := &coding{n: t.Tensor.NumElements()}
	c.quantiser = quant.Quantiser{Format: quant.ScalesOf}
	g := &c.quantiser.Scales
	g.Type, g.Tall, g.Rule = typ, 1, quant.Rule{Kind: quant.OverOr, Levels: 1, Global: 1}
	if name, ok := strings.CutSuffix(t.Tensor.Name, absmax); ok {
		s, ok, err := t.state(name)
		if !ok || err != nil {
			return nil, err
		}
		c.name, g.Wide, g.Rule.Kind = name, int(s.Block), quant.Over
		return c, nil
	}
	if stem, ok := strings.CutSuffix(t.Tensor.Name, rowMax); ok {
		c.name, g.Rule.Kind = stem+weight, quant.Over
		return c, nil
	}
	c.name = strings.TrimSuffix(t.Tensor.Name, scaleOf)
	switch typ {
	case quant.E8M0:
		g.Rule.Kind = quant.Power
	case quant.E4M3:
		x, p, err := t.Beside(c.name + globalOf)
		if x == nil || err != nil {
			return nil, err
		}
		g.Rule.Kind = quant.Global
		c.global(x, p)
	}
	return c, nil
}

// of is c for what was made of s; nil: it was not, as far as sizes tell.
func (c *coding) of(s *source) *coding {
	rows, cols, ok := matrix(s.t.Shape)
	all := s.t.NumElements()
	if !ok || all == 0 || s.codes != nil {
		return nil
	}
	if c.quantiser.Format != quant.ScalesOf {
		if all != c.rows*c.cols {
			return nil
		}
		return c
	}
	to := *c
	g := &to.quantiser.Scales
	if g.Wide == 0 {
		if c.n%rows != 0 || cols%(c.n/rows) != 0 {
			return nil
		}
		g.Wide = int(cols / (c.n / rows))
	}
	if g.Wide > maxShared || int64(g.Wide)*c.n != all {
		return nil
	}
	g.Rows, g.Cols = int(c.n), g.Wide
	return &to
}
