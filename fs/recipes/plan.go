package recipes

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
)

// Plan is how a tensor is computed from others.
type Plan struct {
	sources []*source // of one type
	layout  layout
	via     half.Type // that the numbers were rounded to on the way; 0: none
	len     int64     // bytes of the target
	step    int64     // of a chunk
	right   float64   // the share of samples that comes out
	codes   *codes    // of the first source, nil: it has none
	loose   bool      // some numbers differ

	// One of these:
	quantiser *quant.Quantiser
	scales    aside   // of all its groups, where they lie apart and do not follow
	beside    *beside // of AWQ
	to        recipe.Type
}

// typ is the type of the sources.
func (p *Plan) typ() recipe.Type { return p.sources[0].typ }

// block is how many elements a block of the target has, and in how many bytes.
func (p *Plan) block() (elems, size int64) {
	switch {
	case p.codes != nil:
		return p.codes.elems, p.codes.elems * int64(p.to.Size())
	case p.quantiser == nil:
		return 1, int64(p.to.Size())
	}
	n, k := p.quantiser.Block()
	return int64(n), int64(k)
}

// Chunk is how chunk k of the target is computed; nil: it is better stored alone.
func (p *Plan) Chunk(k int64) *cas.Recipe {
	if p == nil {
		return nil
	}
	elems, size := p.block()
	from := k * p.step
	to := min(from+p.step, p.len)
	first, last := (from+size-1)/size, to/size // whole blocks
	if last <= first || (last-first)*elems > recipe.MaxValue/4 {
		return nil
	}
	most, turns := maxBases, recipe.Program(nil)
	if _, wide := p.layout.(byEights); wide {
		most = maxWide
	}
	of := func(add func(source int, first, n int64)) { p.runs(first*elems, (last-first)*elems, add) }
	if l, ok := p.layout.(reversed); ok {
		var from, cols int64
		from, cols, turns = l.turned(first*elems, (last-first)*elems)
		most, of = maxWide, func(add func(source int, first, n int64)) { l.columns(from, cols, add) }
	}
	bases, runs := p.bases(of, most)
	if bases == nil {
		return nil
	}
	if p.beside != nil {
		var op recipe.Op
		if bases, op = p.asides(bases, first*elems, (last-first)*elems); bases == nil {
			return nil
		}
		turns = append(turns, op)
	}
	g, ok := groups(runs)
	if !ok {
		return nil
	}
	prog := append(recipe.Program{recipe.Take{Type: p.typ(), Groups: g}}, turns...)
	var scales []byte
	switch {
	case p.quantiser != nil:
		op := recipe.Quantise{Quantiser: *p.quantiser, Head: int(first*size - from)}
		if op.Quantiser.Format.Apart() {
			op.Quantiser.Scales.At = int(first * elems)
			for _, x := range p.scaling(&op.Quantiser, int((last-first)*elems)) {
				scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(x))
			}
		}
		prog = append(append(prog, p.rounds()...), recipe.Widen{}, op)
	case first*size != from || last*size != to:
		return nil
	default:
		prog = append(prog, p.numbersOf(first*elems, (last-first)*elems)...)
	}
	return &cas.Recipe{Bases: bases, Program: append(prog.Append(nil), scales...)}
}

// rounds are the ops that round the numbers of what is quantised on the way.
func (p *Plan) rounds() recipe.Program {
	if p.via == 0 {
		return nil
	}
	return recipe.Program{recipe.Widen{}, recipe.Round{To: p.via}}
}

// place is a chunk of a source.
type place struct {
	source int
	chunk  int64
}

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.chunk, b.chunk))
}

// bases are the chunks in which runs of the sources are, and where in these, one behind the other; nil: there
// are more than most, or some are in none.
func (p *Plan) bases(of func(add func(source int, first, n int64)), most int) (bases []cas.Hash, runs []run) {
	w := p.typ().Size()
	per := int64(cas.ChunkSize / w)
	// In the order in which they lie in the sources, so that what goes on there goes on here.
	var used []place
	ok := true
	of(func(source int, first, n int64) {
		if source < 0 {
			ok = ok && source == zeros
			return
		}
		for k := first / per; k <= (first+n-1)/per && len(used) < maxUsed; k++ {
			if at := (place{source, k}); len(used) == 0 || used[len(used)-1] != at {
				used = append(used, at)
			}
		}
	})
	slices.SortFunc(used, place.compare)
	used = slices.Compact(used)
	if !ok || len(used) == 0 || len(used) > most {
		return nil, nil
	}
	begins := make([]int, len(used)) // in elements
	known := map[cas.Hash]int{}
	end := 0
	for i, at := range used {
		chunks := p.sources[at.source].chunks
		if at.chunk >= int64(len(chunks)) {
			return nil, nil
		}
		c := chunks[at.chunk]
		begin, twice := known[c.Hash]
		if !twice {
			begin = end
			known[c.Hash] = begin
			bases = append(bases, c.Hash)
			end += int(c.Len) / w
		}
		begins[i] = begin
	}
	of(func(source int, first, n int64) {
		if source < 0 {
			runs = append(runs, run{end, int(n)}) // behind all of them are zeros
			return
		}
		for n > 0 {
			k := first / per
			i, found := slices.BinarySearchFunc(used, place{source, k}, place.compare)
			m := min(n, (k+1)*per-first)
			ok = ok && found
			if found {
				runs = appendRun(runs, begins[i]+int(first-k*per), int(m))
			}
			first, n = first+m, n-m
		}
	})
	if !ok {
		return nil, nil
	}
	return bases, runs
}

// maxUsed bounds the places that are gone through for a chunk.
const maxUsed = 1 << 16
