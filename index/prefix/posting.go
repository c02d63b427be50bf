package prefix

import (
	"math/bits"
	"slices"
)

// posting is the set of architectures that hold a class: a list of four bytes each, or a bitmap where that is
// smaller.
type posting struct {
	list  []uint32
	words []uint64 // bit i of words[k] is arch (base+k)*64 + i; nil: list holds
	base  uint32
	// bit i of any[k] says that word (base/64+k)*64 + i, counted from arch 0, is not 0
	any []uint64
	n   int
}

// dense is the least size of a bitmap; a list is replaced by one of no more bytes, and a bitmap by a list of
// half its bytes.
const dense = 64

func (p *posting) add(a uint32) {
	p.n++
	if p.words == nil {
		if len(p.list) < cap(p.list) || p.n < dense {
			p.list = append(p.list, a)
			return
		}
		low, high := min(slices.Min(p.list), a), max(slices.Max(p.list), a)
		if int(high/64-low/64+1)*2 > p.n {
			p.list = append(p.list, a)
			return
		}
		p.base = low / 64
		p.words = make([]uint64, high/64-p.base+1)
		p.sumUp()
		for _, b := range p.list {
			p.set(b)
		}
		p.list = nil
	}
	switch k := a / 64; {
	case k < p.base:
		p.words = append(make([]uint64, p.base-k), p.words...)
		p.base = k
		p.sumUp()
	case int(k-p.base) >= len(p.words):
		p.words = append(p.words, make([]uint64, int(k-p.base)+1-len(p.words))...)
		p.any = append(p.any, make([]uint64, int(k/64-p.base/64)+1-len(p.any))...)
	}
	p.set(a)
	if len(p.words) > 2*p.n {
		p.list = p.all(make([]uint32, 0, p.n+1))
		p.words, p.any = nil, nil
	}
}

func (p *posting) set(a uint32) {
	k := a / 64
	p.words[k-p.base] |= 1 << (a % 64)
	p.any[k/64-p.base/64] |= 1 << (k % 64)
}

// sumUp sets any.
func (p *posting) sumUp() {
	p.any = make([]uint64, (int(p.base)+len(p.words)-1)/64-int(p.base)/64+1)
	for i, w := range p.words {
		if w != 0 {
			k := p.base + uint32(i)
			p.any[k/64-p.base/64] |= 1 << (k % 64)
		}
	}
}

// count is the number of bits that are set.
func (p *posting) count() (n int) {
	for _, w := range p.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// all appends the archs to out.
func (p *posting) all(out []uint32) []uint32 {
	out = append(out, p.list...)
	for k, w := range p.words {
		for ; w != 0; w &= w - 1 {
			out = append(out, (p.base+uint32(k))*64+uint32(bits.TrailingZeros64(w)))
		}
	}
	return out
}

// latest appends up to n archs that were added last, or have the highest numbers.
func (p *posting) latest(n int, out []uint32) []uint32 {
	out = append(out, p.list[max(0, len(p.list)-n):]...)
	for k := len(p.words) - 1; k >= 0; k-- {
		for w := p.words[k]; w != 0; {
			if len(out) == n {
				return out
			}
			i := bits.Len64(w) - 1
			out = append(out, (p.base+uint32(k))*64+uint32(i))
			w &^= 1 << i
		}
	}
	return out
}

// clone is a copy to which one arch more can be added.
func (p *posting) clone() posting {
	q := *p
	if p.words != nil {
		q.words, q.any = slices.Clone(p.words), slices.Clone(p.any)
	} else {
		q.list = append(make([]uint32, 0, len(p.list)+1), p.list...)
	}
	return q
}

// keep removes the archs that are not kept.
func (p *posting) keep(kept func(a uint32) bool) {
	all := slices.DeleteFunc(p.all(make([]uint32, 0, p.n)), func(a uint32) bool { return !kept(a) })
	*p = posting{list: all, n: len(all)}
	if cap(all) > 2*len(all) {
		p.list = slices.Clip(slices.Clone(all))
	}
	if len(all) >= dense { // as add would have it
		last := all[len(all)-1]
		p.list, p.n = slices.Clip(all[:len(all)-1]), p.n-1
		p.add(last)
	}
}
