package rans

import (
	"errors"
	"math/bits"
	"slices"
)

// Freqs are how often each value occurs among 4096: frequencies add up to that.
type Freqs [256]uint16

// Normalize sets f to the shares of c, which has at least two values. Every value that is counted has at
// least one 4096th.
func (f *Freqs) Normalize(c *Counts) {
	sum, top := f.shares(c, float64(probs)/float64(c.total()))
	left := probs - sum
	// The commonest value takes what rounding left over. Where that would distort it, many values take a
	// share.
	for least := uint16(16); left != 0; least = max(least/2, 2) {
		if t := int(f[top]) + left; t >= int(f[top])/8*7 && t <= int(f[top])/8*9 && t < probs && t > 0 {
			f[top] = uint16(t)
			return
		}
		for v := range f {
			switch {
			case left > 0 && f[v] >= min(least, f[top]):
				f[v]++
				left--
			case left < 0 && f[v] >= least:
				f[v]--
				left++
			}
		}
	}
}

// sharesPortable sets f to the counts times scale, rounded, but to at least one where there are any, and
// below 4096. It returns the sum of f and the first of the commonest values.
func (f *Freqs) sharesPortable(c *Counts, scale float64) (sum, top int) {
	for v, k := range c {
		f[v] = 0
		if k > 0 {
			n := float64(float64(k) * scale) // not fused with the sum: kernel and twin would differ
			f[v] = uint16(max(1, min(probs-1, int(n+0.5))))
			sum += int(f[v])
			if f[v] > f[top] {
				top = v
			}
		}
	}
	return sum, top
}

// valuesPortable is the set of values that f has.
func (f *Freqs) valuesPortable() (set values) {
	for v, n := range f {
		if n > 0 {
			set[v/64] |= 1 << (v % 64)
		}
	}
	return set
}

// mostFreqs is more bytes than frequencies take: 256 numbers of 34 bits, and as many of 17.
const mostFreqs = 2 << 10

// Append appends f to dst as it is stored (see the package comment), if that takes no more than most bytes.
func (f *Freqs) Append(dst []byte, most int) (_ []byte, ok bool) {
	var sum, used int
	p := 0
	for _, n := range f {
		n := int(n)
		sum += int(zigzag(n - p)) // of zeros, too: a branch would be mispredicted
		used += (n | p + probs - 1) / probs
		p = n
	}
	k := uint(min(7, max(0, bits.Len(uint(sum/used))-1)))
	dst = slices.Grow(dst, mostFreqs)
	w := bitWriter{buf: dst[len(dst) : len(dst)+mostFreqs]}
	w.put(uint64(k), 3)
	left := probs
	for v, p := 0, 0; left > 0; v++ {
		if w.at >= most {
			return dst, false
		}
		n := int(f[v])
		w.number(zigzag(n-p), k)
		p = n
		left -= n
		if n == 0 {
			run := 0
			for f[v+1] == 0 {
				v++
				run++
			}
			w.number(uint(run), 0)
		}
	}
	if w.end() > most {
		return dst, false
	}
	return dst[:len(dst)+w.end()], true
}

var errFreqs = errors.New("rans: frequencies")

// Read sets f to the frequencies that p begins with, and returns what follows them. They add up to 4096, and
// none is 4096.
func (f *Freqs) Read(p []byte) ([]byte, error) {
	*f = Freqs{}
	r := bitReader{src: p}
	k := uint(r.get(3))
	left := probs
	for v, p := 0, 0; left > 0; v++ {
		if v > 255 {
			return nil, errFreqs
		}
		n := p + unzigzag(r.number(k))
		if n < 0 || n > left || n == probs {
			return nil, errFreqs
		}
		f[v] = uint16(n)
		p = n
		left -= n
		if n == 0 {
			v += int(min(r.number(0), 256))
		}
	}
	return r.end()
}
