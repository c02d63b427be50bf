package recipes

import (
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
)

// codes are what a source has that is quantised: blocks, or codes whose scales lie in another tensor of its
// file. Others are computed from them as what they stand for.
type codes struct {
	format      quant.Format
	elems, size int64 // of a block
	scales      quant.Scales
	beside      *source // nil: there are no scales apart
}

// file is one of which tensors were added.
type file struct {
	scales map[string]*source // those that hold the scales of others
	// vain is how many tensors of a type in a row were looked for, or passed over, and nothing found.
	vain map[formats.DType]int
}

// Next says that what is added from now on is of another file.
func (f *Finder) Next() { f.file = newFile() }

func newFile() *file { return &file{map[string]*source{}, map[formats.DType]int{}} }

// addCodes makes s one of codes, if it is quantised, or notes that it may be scales.
func (s *source) addCodes() (known bool) {
	format, ok := formatOf(s.t)
	if !ok {
		return false
	}
	n, size := format.Block()
	s.typ, s.codes = recipe.Bytes1, &codes{format: format, elems: int64(n), size: int64(size)}
	return true
}

// resolve finds the scales of s; false: they are not there.
func (f *Finder) resolve(s *source) bool {
	c := s.codes
	if c == nil || !c.format.FP8() {
		return true
	}
	for _, end := range scaleNames {
		beside := s.file.scales[s.t.Name+end]
		if beside == nil {
			continue
		}
		if g, ok := geometry(s.t, beside.t); ok && f.use(beside) {
			c.scales, c.beside = g, &source{t: beside.t, typ: recipe.Bytes1, chunks: beside.chunks}
			return true
		}
		return false
	}
	return true
}

// all are the sources that are read: s, and its scales.
func (s *source) all() []*source {
	if s.codes == nil || s.codes.beside == nil {
		return []*source{s}
	}
	return []*source{s, s.codes.beside}
}

// runs calls add with where n elements of the target from first on are, in order, in elements of the type of
// the sources: of codes, in bytes, and behind them where their scales are.
func (p *Plan) runs(first, n int64, add func(source int, first, n int64)) {
	c := p.codes
	if c == nil {
		p.layout.runs(first, n, add)
		return
	}
	p.layout.runs(first, n, func(source int, first, n int64) {
		if first%c.elems != 0 || n%c.elems != 0 {
			source = unknown
		}
		add(source, first/c.elems*c.size, n/c.elems*c.size)
	})
	if c.beside == nil {
		return
	}
	g := c.scales
	g.At = int(first)
	size := int64(g.Type.Size())
	for _, group := range g.Groups(int(n)) {
		p.layout.runs(p.within8(int64(group), first), 1, func(_ int, at, _ int64) {
			add(1, p.groupOf(at)*size, size)
		})
	}
}

// across is how many groups of FP8 lie beside each other, and how large they are.
func (c *codes) across() (groups, cols, tall, wide int64) {
	g := &c.scales
	return int64((g.Cols + g.Wide - 1) / g.Wide), int64(g.Cols), int64(g.Tall), int64(g.Wide)
}

// within8 is the first element of a group from first on.
func (p *Plan) within8(group, first int64) int64 {
	across, cols, tall, wide := p.codes.across()
	row, col := max(group/across*tall, first/cols), group%across*wide
	at := row*cols + col
	if at < first {
		if at = first; first%cols/wide != group%across {
			at = (row+1)*cols + col
		}
	}
	return at
}

// groupOf is the group that an element is of.
func (p *Plan) groupOf(at int64) int64 {
	across, cols, tall, wide := p.codes.across()
	return at/cols/tall*across + at%cols/wide
}

// numbersOf are the ops that make the target's numbers of n elements from first on that were taken.
func (p *Plan) numbersOf(first, n int64) (prog recipe.Program) {
	c, to := p.codes, halfOf(p.to)
	switch {
	case c != nil:
		op := recipe.Dequantise{Format: c.format}
		if c.format.FP8() {
			op.Scales, op.N = c.scales, int(n)
			op.Scales.At = int(first)
		}
		prog = append(prog, op)
		if p.via != 0 {
			prog = append(prog, recipe.Round{To: p.via}, recipe.Widen{})
		}
	case p.to == p.typ():
		return nil
	default:
		prog = append(prog, recipe.Widen{})
	}
	switch {
	case p.loose:
		return append(prog, recipe.Combine{Form: recipe.Sum, C: []float32{1}, To: p.to})
	case to != 0:
		return append(prog, recipe.Round{To: to})
	}
	return prog
}

// halfOf is the type of half precision that a type is; 0: it is none.
func halfOf(t recipe.Type) half.Type {
	switch t {
	case recipe.BF16:
		return half.BF16
	case recipe.F16:
		return half.F16
	}
	return 0
}

// follows is which share of samples, of numbers that are not quantised, p explains, and sets how.
func (f *Finder) follows(p *Plan, samples []sample) (best float64) {
	ways := []half.Type{0}
	if p.codes != nil {
		ways = []half.Type{0, half.BF16, half.F16}
	}
	if len(samples) > 1 && f.follows(p, samples[:1]) < Fits/2 {
		return 0 // the others are not read
	}
	read := make([][]byte, len(samples))
	for i := range samples {
		if read[i] = f.numbers(p, samples[i:i+1]); read[i] == nil {
			return 0
		}
	}
	p.loose = false
	via := half.Type(0)
	for _, p.via = range ways {
		same, all := 0, 0
		for i, s := range samples {
			prog := append(recipe.Program{recipe.Run(p.typ(), 0, len(read[i])/p.typ().Size())},
				p.numbersOf(s.first, s.n)...)
			got, err := recipe.Decode(nil, append(prog.Append(nil), 0), read[i], len(s.bytes))
			if err != nil {
				return 0
			}
			same, all = same+alike(got, s.bytes, p.to.Size()), all+int(s.n)
		}
		if share := float64(same) / float64(all); share > best {
			best, via = share, p.via
		}
		if best == 1 {
			break
		}
	}
	p.via = via
	if p.to == p.typ() && best < 1 {
		return 0 // numbers that are taken are the same
	}
	// What was rounded from bfloat16 to binary16 comes back but for the least numbers, which few samples have.
	p.loose = best < 1 || p.typ() == recipe.F16 && p.to == recipe.BF16
	return best
}

// alike is how many elements of so many bytes are the same in both.
func alike(a, b []byte, size int) (n int) {
	for i := 0; i+size <= len(a); i += size {
		if string(a[i:i+size]) == string(b[i:i+size]) {
			n++
		}
	}
	return n
}
