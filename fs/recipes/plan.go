package recipes

import (
	"encoding/binary"
	"math"

	"ckptfs/cas"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
)

// Plan is how a tensor is computed from another.
type Plan struct {
	source *source
	layout layout
	via    half.Type // that the numbers were rounded to on the way; 0: none
	len    int64     // bytes of the target

	// One of these:
	quantiser *quant.Quantiser
	scales    []float32 // of all its groups, where it is FP8
	to        recipe.Type
}

// elems is how many elements a block of the target has, and in how many bytes.
func (p *Plan) block() (elems, size int64) {
	if p.quantiser == nil {
		return 1, int64(p.to.Size())
	}
	n, k := p.quantiser.Format.Block()
	return int64(n), int64(k)
}

// Chunk is how chunk k of the target is computed; nil: it is better stored alone.
func (p *Plan) Chunk(k int64) *cas.Recipe {
	if p == nil {
		return nil
	}
	elems, size := p.block()
	from := k * cas.ChunkSize
	to := min(from+cas.ChunkSize, p.len)
	first, last := (from+size-1)/size, to/size // whole blocks
	if last <= first {
		return nil
	}
	bases, runs := p.bases(first*elems, (last-first)*elems)
	if bases == nil {
		return nil
	}
	g, ok := groups(runs)
	if !ok {
		return nil
	}
	prog := append(recipe.Program{recipe.Take{Type: p.source.typ, Groups: g}}, p.rounds()...)
	var scales []byte
	switch {
	case p.quantiser != nil:
		op := recipe.Quantise{Quantiser: *p.quantiser, Head: int(first*size - from)}
		if op.Quantiser.Format.FP8() {
			op.Quantiser.Scales.At = int(first)
			for _, at := range op.Quantiser.Scales.Groups(int(last - first)) {
				scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(p.scales[at]))
			}
		}
		prog = append(prog, recipe.Widen{}, op)
	case p.to == recipe.F32:
		prog = append(prog, recipe.Widen{})
	case first*size != from || last*size != to:
		return nil
	}
	return &cas.Recipe{Bases: bases, Program: append(prog.Append(nil), scales...)}
}

// rounds are the ops that round the numbers on the way.
func (p *Plan) rounds() recipe.Program {
	to := p.via
	if p.quantiser == nil {
		switch {
		case p.to == p.source.typ:
			return nil
		case p.to == recipe.BF16:
			to = half.BF16
		case p.to == recipe.F16:
			to = half.F16
		}
	}
	if to == 0 {
		return nil
	}
	return recipe.Program{recipe.Widen{}, recipe.Round{To: to}}
}

// bases are the chunks in which n elements of the target from first on are, and where in these, one behind the
// other; nil: there are too many.
func (p *Plan) bases(first, n int64) (bases []cas.Hash, runs []run) {
	per := int64(cas.ChunkSize / p.source.typ.Size())
	at := map[int64]int{} // where chunks begin in elements, for those that are among the bases
	known := map[cas.Hash]int{}
	end, ok := 0, true
	place := func(k int64) int {
		if at, ok := at[k]; ok {
			return at
		}
		if k >= int64(len(p.source.chunks)) {
			ok = false
			return 0
		}
		c := p.source.chunks[k]
		begin, twice := known[c.Hash]
		if !twice {
			begin = end
			known[c.Hash] = begin
			bases = append(bases, c.Hash)
			end += int(c.Len) / p.source.typ.Size()
			ok = ok && len(bases) <= maxBases
		}
		at[k] = begin
		return begin
	}
	// In the order in which they lie in the source, so that what goes on there goes on here.
	var used []int64
	p.layout.runs(first, n, func(first, n int64) {
		for k := first / per; k <= (first+n-1)/per; k++ {
			if len(used) == 0 || used[len(used)-1] != k {
				used = append(used, k)
			}
		}
	})
	used = sorted(used)
	if len(used) > maxBases {
		return nil, nil
	}
	for _, k := range used {
		place(k)
	}
	p.layout.runs(first, n, func(first, n int64) {
		for n > 0 {
			k := first / per
			m := min(n, (k+1)*per-first)
			runs = appendRun(runs, place(k)+int(first-k*per), int(m))
			first, n = first+m, n-m
		}
	})
	if !ok {
		return nil, nil
	}
	return bases, runs
}
