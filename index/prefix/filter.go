package prefix

import "math/bits"

// maxPlanes is how many bits the counters of filter have.
const maxPlanes = 5

// filter weighs all architectures, 64 at a time, by the bitmaps of the lists that have one. It reports
// whether it did: false when an architecture in none of these could still win.
//
// The slack is what all lists weigh less the best length known. An architecture that lacks lists of more
// weight than that can't win. Each architecture has a counter of what it lacks; bit b of the 64 counters of a
// word is count[b]. A counter begins slack below its greatest value, and an architecture whose counter
// overflows is out. Most are out after few lists. Lists without a bitmap count as held, until the few
// architectures that are left are weighed.
//
// The same is done first with 64 words at once, which are counted by whether they have any architecture in a
// list: what was stored at another time mostly has none in many.
func (f *finder) filter() bool {
	f.bitmaps = f.bitmaps[:0]
	weight := 0
	high := uint32(0)
	for _, l := range f.asked.lists {
		if p := &f.x.classes[l.class].post; p.words != nil {
			f.bitmaps = append(f.bitmaps, filtered{p, l.weight})
			weight += l.weight
			high = max(high, p.base+uint32(len(p.words)))
		}
	}
	all := f.asked.rest[0]
	if weight <= all-f.best.length {
		return false
	}
	known := weight == all // no list is without a bitmap
	for first := high / block * block; ; first -= block {
		f.filterBlock(first, known)
		if first == 0 {
			return true
		}
	}
}

// block is how many words are filtered at a time: as many as posting.any has bits a word.
const block = 64

// filterBlock filters the archs of the words from first on.
func (f *finder) filterBlock(first uint32, known bool) {
	all := f.asked.rest[0]
	slack := all - f.best.length
	shift := 0
	for slack>>shift >= 1<<maxPlanes {
		shift++ // what is lacking is rounded down: some are weighed that need not be
	}
	most := slack >> shift
	planes := bits.Len(uint(most))
	begin := 1<<planes - 1 - most
	var out [block]uint64
	var live [block]uint8 // words in which some are not out
	n := 0
	for left := f.wordsLeft(first, shift, most); left != 0; left &= left - 1 {
		live[n%block] = uint8(bits.TrailingZeros64(left))
		n++
	}
	if n == 0 {
		return
	}
	var words [block]uint64
	// First the lists that no winner can lack.
	for i := range f.bitmaps {
		l := &f.bitmaps[i]
		if l.weight>>shift <= most {
			continue
		}
		p := l.post.block(first, &words)
		kept := 0
		for _, k := range live[:n] {
			k %= block
			out[k] |= ^p[k]
			live[kept%block] = k
			if out[k] != ^uint64(0) {
				kept++
			}
		}
		if n = kept; n == 0 {
			return
		}
	}
	var count [block][maxPlanes]uint64 // of words that are live
	for _, k := range live[:n] {
		for b := range planes {
			count[k][b] = -uint64(begin >> b & 1)
		}
	}
	for i := range f.bitmaps {
		l := &f.bitmaps[i]
		w := l.weight >> shift
		if w == 0 || w > most {
			continue
		}
		p := l.post.block(first, &words)
		kept := 0
		for _, k := range live[:n] {
			k %= block
			if lack := ^p[k] &^ out[k]; lack != 0 {
				out[k] |= countLack(&count[k], planes, lack, w)
			}
			live[kept%block] = k
			if out[k] != ^uint64(0) {
				kept++
			}
		}
		if n = kept; n == 0 {
			return
		}
	}
	for _, k := range live[:n] {
		for left := ^out[k]; left != 0; left &= left - 1 {
			i := bits.TrailingZeros64(left)
			lacking := -begin
			for b := range planes {
				lacking += int(count[k][b]>>i&1) << b
			}
			a, most := (first+uint32(k))*64+uint32(i), all-lacking<<shift
			if most >= f.best.length && int(a) < len(f.x.archs) {
				f.weigh(a, most, known && shift == 0)
			}
		}
	}
}

// wordsLeft says which words of a block may have an arch that lacks at most so much.
func (f *finder) wordsLeft(first uint32, shift, most int) uint64 {
	planes := bits.Len(uint(most))
	var count [maxPlanes]uint64
	for b := range planes {
		count[b] = -uint64((1<<planes - 1 - most) >> b & 1)
	}
	out := uint64(0)
	for i := range f.bitmaps {
		l := &f.bitmaps[i]
		lack := ^l.post.anyOf(first) &^ out
		w := l.weight >> shift
		if w > most {
			out |= lack
		} else if lack != 0 && w > 0 {
			out |= countLack(&count, planes, lack, w)
		}
		if out == ^uint64(0) {
			break
		}
	}
	return ^out
}

// countLack adds w to the counters whose bit is in lack. It returns those that overflow.
func countLack(count *[maxPlanes]uint64, planes int, lack uint64, w int) (over uint64) {
	for d := range planes {
		c, add := count[d], lack&-uint64(w>>d&1)
		count[d] = c ^ add ^ over
		over = c&add | (c|add)&over
	}
	return over
}

type filtered struct {
	post   *posting
	weight int
}
