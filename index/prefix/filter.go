package prefix

import (
	"cmp"
	"math/bits"
	"slices"
)

// filter weighs all architectures, 64 at a time, by the bitmaps of the lists that have one. It reports
// whether it did: false when an architecture in none of these could still win.
//
// The slack is what all lists weigh less the best length known. An architecture that lacks lists of more
// weight than that can't win, and most are out after few lists. Lists without a bitmap count as held, until
// the few architectures that are left are weighed.
//
// The same is done first with 64 words at once, which are counted by whether they have any architecture in a
// list: what was stored at another time mostly has none in many.
func (f *finder) filter() bool {
	f.bitmaps, f.blocks = f.bitmaps[:0], f.blocks[:0]
	weight := 0
	high := uint32(0)
	for _, l := range f.asked.lists {
		if p := &f.x.classes[l.class].post; p.words != nil {
			f.bitmaps = append(f.bitmaps, filtered{post: p, words: p.words, base: p.base, weight: l.weight})
			weight += l.weight
			high = max(high, p.base+uint32(len(p.words)))
		}
	}
	all := f.asked.rest[0]
	slack := all - f.best.length
	if weight <= slack {
		return false
	}
	f.order(slack)
	for _, l := range f.bitmaps {
		f.blocks = append(f.blocks, filtered{words: l.post.any, base: l.base / 64, weight: l.weight})
	}
	known := weight == all // no list is without a bitmap
	var words, archs lacking
	for block := int(high / 64); block >= 0; block-- {
		for left := words.count(f.blocks, uint32(block), all-f.best.length); left != 0; {
			i := bits.Len64(left) - 1
			left &^= 1 << i
			f.filterWord(uint32(block*64+i), &archs, known)
		}
	}
	return true
}

// order sorts the bitmaps: those first that put most archs out.
func (f *finder) order(slack int) {
	for i := range f.bitmaps {
		l := &f.bitmaps[i]
		l.out = min(l.weight, slack+1) * (len(f.x.archs) - l.post.n)
	}
	slices.SortFunc(f.bitmaps, func(a, b filtered) int { return cmp.Compare(b.out, a.out) })
}

// filterWord weighs the archs of a word that may win.
func (f *finder) filterWord(word uint32, l *lacking, known bool) {
	all := f.asked.rest[0]
	for left := l.count(f.bitmaps, word, all-f.best.length); left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		a, most := word*64+uint32(i), all-l.of(i)
		if most >= f.best.length && int(a) < len(f.x.archs) {
			f.weigh(a, most, known && l.shift == 0)
		}
	}
}

// filtered is a bitmap, and what those lack that are not in it.
type filtered struct {
	post   *posting
	words  []uint64
	base   uint32 // the place of words[0]; none is in the words before
	weight int
	out    int // how much it puts out, about
}

// at is word k of the bitmap.
func (l *filtered) at(k uint32) uint64 {
	if i := k - l.base; i < uint32(len(l.words)) {
		return l.words[i]
	}
	return 0
}

// levels bounds the counters of lacking.
const levels = 16

// lacking is what each of 64 archs lacks: bit i of may[j] says that arch i may lack j more.
type lacking struct {
	may   [levels]uint64
	most  int
	shift int // weights are counted shifted right by so much, what is lacking rounded down
}

// count counts what the archs of a word lack. It returns those that lack at most so much, by what is counted.
func (l *lacking) count(lists []filtered, word uint32, most int) (left uint64) {
	l.shift = 0
	for most>>l.shift >= levels {
		l.shift++
	}
	if l.most = most >> l.shift; l.most < 4 && l.shift == 0 {
		return l.countFew(lists, word)
	}
	m := l.may[:l.most+1]
	for j := range m {
		m[j] = ^uint64(0)
	}
	for i := range lists {
		p, w := lists[i].at(word), lists[i].weight>>l.shift
		if w == 0 {
			continue
		}
		for j := range m {
			if j+w < len(m) {
				m[j] &= p | m[j+w]
			} else {
				m[j] &= p
			}
		}
		if m[0] == 0 {
			return 0
		}
	}
	return m[0]
}

// countFew is count where at most 3 may be lacking: so it mostly is.
func (l *lacking) countFew(lists []filtered, word uint32) uint64 {
	m0 := ^uint64(0)
	m1, m2, m3 := m0, m0, m0
	switch l.most {
	case 0:
		m1, m2, m3 = 0, 0, 0
	case 1:
		m2, m3 = 0, 0
	case 2:
		m3 = 0
	}
	for i := range lists {
		p := lists[i].at(word)
		switch lists[i].weight {
		case 1:
			m0 &= p | m1
			m1 &= p | m2
			m2 &= p | m3
		case 2:
			m0 &= p | m2
			m1 &= p | m3
			m2 &= p
		case 3:
			m0 &= p | m3
			m1 &= p
			m2 &= p
		default:
			m0 &= p
			m1 &= p
			m2 &= p
		}
		m3 &= p
		if m0 == 0 {
			return 0
		}
	}
	l.may[1], l.may[2], l.may[3] = m1, m2, m3
	return m0
}

// of is what arch i, of those that are left, lacks at least.
func (l *lacking) of(i int) int {
	n := l.most
	for _, m := range l.may[1 : l.most+1] {
		n -= int(m >> i & 1)
	}
	return n << l.shift
}
