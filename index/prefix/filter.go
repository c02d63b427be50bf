package prefix

import (
	"math/bits"
	"slices"
)

// filter weighs all architectures, 128 at a time, by the bitmaps of the lists that have one. It reports
// whether it did: false when an architecture in none of these could still win.
//
// The slack is what all lists weigh less the best length known. An architecture that lacks lists of more
// weight than that can't win, and most are out after few lists. Lists without a bitmap count as held, until
// the few architectures that are left are weighed.
//
// The same is done first with 128 words at once, which are counted by whether they have any architecture in a
// list: what was stored at another time mostly has none in many.
func (f *finder) filter() bool {
	f.ranks, f.bitmaps, f.blocks = f.ranks[:0], f.bitmaps[:0], f.blocks[:0]
	weight, high := 0, uint32(0)
	all := f.asked.rest[0]
	slack := all - f.best.length
	for i, l := range f.asked.lists {
		if p := &f.x.classes[l.class].post; p.words != nil {
			weight += l.weight
			high = max(high, p.base+uint32(len(p.words)))
			out := min(l.weight, slack+1) * (len(f.x.archs) - p.n)
			f.ranks = append(f.ranks, uint64(out)<<16|uint64(i))
		}
	}
	if weight <= slack {
		return false
	}
	// those first that put most archs out
	slices.Sort(f.ranks)
	for _, rank := range slices.Backward(f.ranks) {
		l := f.asked.lists[uint16(rank)]
		p := &f.x.classes[l.class].post
		f.bitmaps = append(f.bitmaps, filtered{p.words, p.base, l.weight})
		f.blocks = append(f.blocks, filtered{p.any, p.base / 64, l.weight})
	}
	known := weight == all // no list is without a bitmap
	var words, archs lacking
	for block := high / 64 &^ 1; ; block -= 2 {
		found := words.count(f.blocks, block, all-f.best.length)
		for half, left := range slices.Backward(found[:]) {
			for left != 0 {
				i := uint32(bits.Len64(left)-1) &^ 1
				left &^= 3 << i
				f.filterWords((block+uint32(half))*64+i, &archs, known)
			}
		}
		if block == 0 {
			return true
		}
	}
}

// filterWords weighs the archs of a word and the next that may win. Two at once take hardly longer than one:
// what is done with them does not wait for each other.
func (f *finder) filterWords(word uint32, l *lacking, known bool) {
	all := f.asked.rest[0]
	found := l.count(f.bitmaps, word, all-f.best.length)
	for half, left := range found {
		for ; left != 0; left &= left - 1 {
			i := bits.TrailingZeros64(left)
			a, most := (word+uint32(half))*64+uint32(i), all-l.of(half, i)
			if most >= f.best.length && int(a) < len(f.x.archs) {
				f.weigh(a, most, known && l.shift == 0)
			}
		}
	}
}

// filtered is a bitmap, and what those lack that are not in it.
type filtered struct {
	words  []uint64
	base   uint32 // the place of words[0]; none is in the words before
	weight int
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

// lacking is what each arch of two words lacks: bit i of may[j] says that arch i may lack j more.
type lacking struct {
	may   [levels][2]uint64
	most  int
	shift int // weights are counted shifted right by so much, what is lacking rounded down
}

// count counts what the archs of a word and the next lack. It returns those that lack at most so much, by
// what is counted.
func (l *lacking) count(lists []filtered, word uint32, most int) (left [2]uint64) {
	l.shift = 0
	for most>>l.shift >= levels {
		l.shift++
	}
	if l.most = most >> l.shift; l.most < 4 && l.shift == 0 {
		return l.countFew(lists, word)
	}
	m := l.may[:l.most+1]
	for j := range m {
		m[j] = [2]uint64{^uint64(0), ^uint64(0)}
	}
	for i := range lists {
		p, q := lists[i].at(word), lists[i].at(word+1)
		w := lists[i].weight >> l.shift
		if w == 0 {
			continue
		}
		for j := range m {
			var less [2]uint64
			if j+w < len(m) {
				less = m[j+w]
			}
			m[j][0] &= p | less[0]
			m[j][1] &= q | less[1]
		}
		if m[0] == left {
			break
		}
	}
	return m[0]
}

// countFew is count where at most 3 may be lacking: so it mostly is.
func (l *lacking) countFew(lists []filtered, word uint32) (left [2]uint64) {
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
	n0, n1, n2, n3 := m0, m1, m2, m3
	for i := range lists {
		var p, q uint64
		if b := &lists[i]; word-b.base < uint32(len(b.words)-1) {
			p, q = b.words[word-b.base], b.words[word-b.base+1]
		} else {
			p, q = b.at(word), b.at(word+1)
		}
		switch lists[i].weight {
		case 1:
			m0, n0 = m0&(p|m1), n0&(q|n1)
			m1, n1 = m1&(p|m2), n1&(q|n2)
			m2, n2 = m2&(p|m3), n2&(q|n3)
		case 2:
			m0, n0 = m0&(p|m2), n0&(q|n2)
			m1, n1 = m1&(p|m3), n1&(q|n3)
			m2, n2 = m2&p, n2&q
		case 3:
			m0, n0 = m0&(p|m3), n0&(q|n3)
			m1, n1 = m1&p, n1&q
			m2, n2 = m2&p, n2&q
		default:
			m0, n0 = m0&p, n0&q
			m1, n1 = m1&p, n1&q
			m2, n2 = m2&p, n2&q
		}
		m3, n3 = m3&p, n3&q
		if m0|n0 == 0 {
			return left
		}
	}
	l.may[1], l.may[2], l.may[3] = [2]uint64{m1, n1}, [2]uint64{m2, n2}, [2]uint64{m3, n3}
	return [2]uint64{m0, n0}
}

// of is what arch i of the first or the second word, of those that are left, lacks at least.
func (l *lacking) of(half, i int) int {
	n := l.most
	for _, m := range l.may[1 : l.most+1] {
		n -= int(m[half] >> i & 1)
	}
	return n << l.shift
}
