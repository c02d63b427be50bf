package recipes

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// Mixed is how a tensor is combined of others of its type and shape.
type Mixed struct {
	typ   recipe.Type
	op    recipe.Combine
	grids [][]manifest.Span // of the parents, in the order of the vectors
}

// NewMixed is m of parents whose chunks lie on these grids; nil where one has none.
func NewMixed(t formats.DType, m *Mix, grids [][]manifest.Span) *Mixed {
	for _, g := range grids {
		if len(g) == 0 || len(g) != len(grids[0]) {
			return nil
		}
	}
	return &Mixed{types[t], m.Op, grids}
}

// TypeOf is the type of floats that a tensor's are; 0: they are none that are combined.
func TypeOf(t formats.DType) recipe.Type { return types[t] }

// Chunk is how chunk k of the target is combined; nil: it is better stored otherwise.
func (p *Mixed) Chunk(k int64) *cas.Recipe {
	if p == nil || k >= int64(len(p.grids[0])) {
		return nil
	}
	n := int(p.grids[0][k].Len) / p.typ.Size()
	if n*len(p.grids)*4 > recipe.MaxValue {
		return nil
	}
	r := &cas.Recipe{}
	g := recipe.Group{Repeat: 1}
	for _, grid := range p.grids {
		i := slices.Index(r.Bases, grid[k].Hash)
		if i < 0 {
			i = len(r.Bases)
			r.Bases = append(r.Bases, grid[k].Hash)
		}
		g.Stretches = append(g.Stretches, recipe.Stretch{First: i * n, Len: n})
	}
	r.Program = recipe.Program{recipe.Take{Type: p.typ, Groups: []recipe.Group{g}}, recipe.Widen{}, p.op}.Append(nil)
	return r
}

// Floats are the numbers of a type in p.
func Floats(p []byte, t formats.DType) []float32 {
	typ := types[t]
	if typ == 0 {
		return nil
	}
	n := len(p) / typ.Size()
	got, err := recipe.Decode(nil, append(recipe.Program{recipe.Run(typ, 0, n), recipe.Widen{}}.Append(nil), 0), p, 4*n)
	if err != nil {
		return nil
	}
	return floats(got)
}
