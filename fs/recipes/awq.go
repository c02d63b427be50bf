package recipes

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
)

// # AWQ
//
// A layer of AutoAWQ has three tensors, all with the inputs first:
//
//	X.qweight  I32  inputs by outputs: words of eight outputs each
//	X.scales        groups of inputs by outputs
//	X.qzeros   I32  the same, in words
//
// Codes are computed of X.weight, transposed, and of the scales and zeros, which the store has as chunks of the
// same file. The factors by which inputs were multiplied are found chunk by chunk (package quant).

const zerosOf = ".qzeros"

// beside are the scales and zeros of a layer, as the store has them.
type beside struct {
	names [2]string
	parts [2][]byte     // scales, zeros
	size  [2]int64      // bytes of a group
	grid  [2][]cas.Hash // of its chunks, once they were asked for
}

// ofLanes is of codes of eight outputs in a word; nil: they are not. scales are those of the layer.
func (t *Target) ofLanes(stem string, scales *formats.Tensor, p []byte) (*coding, error) {
	typ, ok := scaleTypes[scales.DType]
	inputs, words := t.Tensor.Shape[0], t.Tensor.Shape[1]
	if !ok || typ > quant.F16 || len(scales.Shape) != 2 || scales.Shape[1] != 8*words || scales.Shape[0] < 1 ||
		inputs < 1 || words < 1 || inputs%scales.Shape[0] != 0 || inputs > maxCols || words > maxCols {
		return nil, nil
	}
	x, zeros, err := t.Beside(stem + zerosOf)
	if x == nil || err != nil {
		return nil, err
	}
	groups, size := scales.Shape[0], 8*words*int64(typ.Size())
	if x.DType != formats.I32 || len(x.Shape) != 2 || x.Shape[0] != groups || x.Shape[1] != words ||
		int64(len(p)) != groups*size || int64(len(zeros)) != groups*4*words {
		return nil, nil
	}
	c := &coding{name: stem + weight, rows: inputs, cols: 8 * words,
		beside: &beside{names: [2]string{scales.Name, x.Name}, parts: [2][]byte{p, zeros},
			size: [2]int64{size, 4 * words}}}
	c.quantiser.Format = quant.AWQ
	c.quantiser.Scales = quant.Scales{Type: typ, Rows: int(inputs), Cols: int(8 * words),
		Tall: int(inputs / groups), Wide: 1}
	return c, nil
}

// chunks are the chunks of part i.
func (b *beside) chunks(i int) []cas.Hash {
	if b.grid[i] == nil {
		for p := b.parts[i]; len(p) > 0; {
			n := min(len(p), cas.ChunkSize)
			b.grid[i], p = append(b.grid[i], cas.Sum(p[:n])), p[n:]
		}
	}
	return b.grid[i]
}

// after appends to bases, which have so many bytes, the chunks in which the scales and zeros of some groups are;
// where tells where these are then.
func (b *beside) after(bases []cas.Hash, end int64, first, groups int64) (all []cas.Hash, where []recipe.Stretch) {
	for i := range b.parts {
		from, to := first*b.size[i], (first+groups)*b.size[i]
		chunks := b.chunks(i)
		for k := from / cas.ChunkSize; k*cas.ChunkSize < to; k++ {
			begin := k * cas.ChunkSize
			stop := min(begin+cas.ChunkSize, int64(len(b.parts[i])))
			if slices.Contains(bases, chunks[k]) {
				return nil, nil // it is also one of the weights': not of AWQ
			}
			bases = append(bases, chunks[k])
			where = append(where, recipe.Stretch{First: int(end + max(from, begin) - begin),
				Len: int(min(to, stop) - max(from, begin))})
			end += stop - begin
		}
	}
	return bases, where
}

// asides are the bases of n elements from first on, those of the weights and behind them those of scales and
// zeros, and the op that puts the latter aside; nil: there are too many.
func (p *Plan) asides(bases []cas.Hash, first, n int64) ([]cas.Hash, recipe.Op) {
	sizes := map[cas.Hash]int64{}
	for _, c := range p.sources[0].chunks {
		sizes[c.Hash] = int64(c.Len)
	}
	end := int64(0)
	for _, h := range bases {
		end += sizes[h]
	}
	g := p.quantiser.Scales
	g.At = int(first)
	group, groups, _, _ := g.AsideOf(int(n))
	all, where := p.beside.after(bases, end, int64(group), int64(groups))
	if all == nil || len(all) > maxWide || len(where) > recipe.MaxStretches {
		return nil, nil
	}
	return all, recipe.Aside{Take: recipe.Take{Type: recipe.Bytes1,
		Groups: []recipe.Group{{Repeat: 1, Stretches: where}}}}
}

// Waits are the names of tensors of the same file whose chunks the target's are computed of.
func (p *Plan) Waits() []string {
	if p.beside == nil {
		return nil
	}
	return p.beside.names[:]
}

// A patch is some inputs and outputs that lie beside each other. Those of the first tell whether there is
// anything in common, those of the second which variant it is.
const (
	patchInputs  = 64
	patchOutputs = 64
	patchWide    = 512
)

// probeAWQ is probe.
func (f *Finder) probeAWQ(t *Target, s *source) (*Plan, error) {
	c := t.coded.of(s)
	if c == nil || len(s.t.Shape) != 2 || s.t.Shape[0] != c.cols || s.t.Shape[1] != c.rows ||
		len(s.chunks) > maxWide-len(c.beside.parts) {
		return nil, nil
	}
	p, err := newPlan(t, []*source{s}, reversed{c.rows, 1, c.cols})
	if p == nil || err != nil {
		return nil, err
	}
	p.beside = c.beside
	for i, at := range places {
		outputs := int64(patchOutputs)
		if i == len(places)-1 {
			outputs = patchWide
		}
		q, src, words, err := f.patch(t, p, at, min(outputs, c.cols))
		if err != nil || src == nil {
			return nil, err
		}
		vias := []half.Type{p.via}
		if i == 0 || i == len(places)-1 {
			vias = []half.Type{0, half.F16}
			if p.typ() == recipe.F32 {
				vias = append(vias, half.BF16)
			}
		}
		p.right = 0
		best := p.via
		for _, p.via = range vias {
			fit, share, err := quant.Fits(q, words, across(p.widened(src), q.Scales.Cols))
			if err != nil {
				return nil, nil
			}
			if share > p.right {
				best, p.right, p.quantiser.Variant = p.via, share, fit.Variant
			}
			if share < Fits/2 || share == 1 {
				break
			}
		}
		p.via = best
		if p.right < Fits {
			return nil, nil
		}
	}
	return p, nil
}

// patch are the numbers of a patch, output by output, its words, and how it is quantised; nil when the source
// cannot be read.
func (f *Finder) patch(t *Target, p *Plan, at float64, outputs int64) (q quant.Quantiser, src, words []byte,
	err error) {
	g := p.quantiser.Scales
	inputs, rows, cols := int64(min(patchInputs, g.Tall)), int64(g.Rows), int64(g.Cols)
	group := int64(float64(rows/int64(g.Tall)) * at)
	input, output := group*int64(g.Tall), int64(float64(cols-outputs)*at)/8*8
	for i := range inputs {
		w, err := t.Read(((input+i)*cols+output)/2, int(outputs/2))
		if err != nil {
			return q, nil, nil, err
		}
		words = append(words, w...)
	}
	for o := range outputs {
		some := f.read(p.sources[0], (output+o)*rows+input, inputs)
		if some == nil {
			return q, nil, nil, nil
		}
		src = append(src, some...)
	}
	q = quant.Quantiser{Format: quant.AWQ, Scales: quant.Scales{Type: g.Type, Rows: int(inputs), Cols: int(outputs),
		Tall: int(inputs), Wide: 1}}
	for i, part := range p.beside.parts {
		size := p.beside.size[i]
		from, n := group*size+output*size/cols, outputs*size/cols
		q.Aside = append(q.Aside, part[from:from+n]...)
	}
	return q, src, words, nil
}

// across is a matrix of so many rows as its transpose.
func across(x []float32, rows int) []float32 {
	to, cols := make([]float32, len(x)), len(x)/rows
	for i, v := range x {
		to[i%cols*rows+i/cols] = v
	}
	return to
}
