package codec

import (
	"errors"
	"math/bits"
	"slices"
)

// Frequencies are stored as bits, the lowest of a byte first:
//
//	3 bits   k
//	         for each value from 0 on, until 4096 is reached: the frequency less that of the value before, zigzag-coded, as
//	         a number of order k; and after a frequency of zero how many more zeros follow, as a number of order 0
//	         zeros to the end of the byte
//
// A number n of order k is (Exp-Golomb coding; Teuhola 1978) as many zeros as n >> k plus 1 has bits below its highest, a
// one, those bits, the lowest first, and the k lowest bits of n. Values that are next to each other mostly occur about as
// often.

// normalize sets f to shares of c, which add up to 4096: each that is counted at all has one at least. c has two values at
// least.
func (f *freqs) normalize(c *counts) {
	sum, top := f.shares(c, float64(probs)/float64(c.total()))
	left := probs - sum
	// What rounding left over goes to the commonest value, or is spread over many where it would distort that one.
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

// sharesPortable sets f to the counts times scale, rounded: to one at least where there are any, and below 4096. It returns
// what that adds up to, and the first of the commonest values.
func (f *freqs) sharesPortable(c *counts, scale float64) (sum, top int) {
	for v, k := range c {
		f[v] = 0
		if k > 0 {
			n := float64(float64(k) * scale) // not fused with what follows: kernel and twin would not be the same
			f[v] = uint16(max(1, min(probs-1, int(n+0.5))))
			sum += int(f[v])
			if f[v] > f[top] {
				top = v
			}
		}
	}
	return sum, top
}

// valuesPortable is which values f has.
func (f *freqs) valuesPortable() (set values) {
	for v, n := range f {
		if n > 0 {
			set[v/64] |= 1 << (v % 64)
		}
	}
	return set
}

// mostFreqs is more than frequencies ever take: 256 numbers of 34 bits, and as many of 17.
const mostFreqs = 2 << 10

// appendFreqs appends f, stored, to dst.
func appendFreqs(dst []byte, f *freqs) []byte {
	var sum, used int
	p := 0
	for _, n := range f {
		n := int(n)
		sum += int(zigzag(n - p)) // of zeros, too: asking would cost mispredictions
		used += (n | p + probs - 1) / probs
		p = n
	}
	k := uint(min(7, max(0, bits.Len(uint(sum/used))-1)))
	dst = slices.Grow(dst, mostFreqs)
	w := bitWriter{buf: dst[len(dst) : len(dst)+mostFreqs]}
	w.put(uint64(k), 3)
	left := probs
	for v, p := 0, 0; left > 0; v++ {
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
	return dst[:len(dst)+w.end()]
}

var errFreqs = errors.New("rans: frequencies")

// readFreqs sets f to what p begins with, and returns what is behind it.
func readFreqs(f *freqs, p []byte) ([]byte, error) {
	*f = freqs{}
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

func zigzag(v int) uint   { return uint(v<<1 ^ v>>63) }
func unzigzag(z uint) int { return int(z>>1) ^ -int(z&1) }

type bitWriter struct {
	buf []byte // has room for 8 bytes past the last
	at  int
	acc uint64
	n   uint // bits in acc, below 8
}

// put appends the lowest n bits of v, which has no others: 56 at most.
func (w *bitWriter) put(v uint64, n uint) {
	w.acc |= v << (w.n & 63)
	le.PutUint64(w.buf[w.at:], w.acc)
	n += w.n
	w.at += int(n / 8)
	w.acc >>= n &^ 7 & 63
	w.n = n % 8
}

func (w *bitWriter) number(v, k uint) {
	q := v>>(k&63) + 1
	n := uint(bits.Len(q)) - 1
	w.put(1<<(n&63)|uint64(q&^(1<<(n&63)))<<((n+1)&63)|uint64(v&(1<<(k&63)-1))<<((2*n+1)&63), 2*n+1+k)
}

// end returns how many bytes there are in buf.
func (w *bitWriter) end() int { return w.at + int(w.n+7)/8 }

// bitReader reads zeros past the end of src, and counts them.
type bitReader struct {
	src []byte
	at  int // of the next byte
	acc uint64
	n   uint // bits in acc; those above are of the next byte, or zeros
}

// fill sees to 56 bits at least.
func (r *bitReader) fill() {
	if len(r.src)-r.at >= 8 {
		r.acc |= le.Uint64(r.src[r.at:]) << (r.n & 63)
		r.at += int((63 - r.n) / 8)
		r.n |= 56
		return
	}
	for r.n < 56 {
		if r.at < len(r.src) {
			r.acc |= uint64(r.src[r.at]) << r.n
		}
		r.at++
		r.n += 8
	}
}

func (r *bitReader) take(n uint) {
	r.acc >>= n & 63
	r.n -= n
}

// get reads n bits, 16 at most.
func (r *bitReader) get(n uint) uint {
	r.fill()
	v := r.acc & (1<<n - 1)
	r.take(n)
	return uint(v)
}

// number reads a number of order k: one below 2^16 times 2^k, or 2^16 for what is longer.
func (r *bitReader) number(k uint) uint {
	if r.n < 40 { // as long as one gets
		r.fill()
	}
	n := uint(bits.TrailingZeros64(r.acc | 1<<16))
	if n >= 16 {
		r.take(17)
		return 1 << 16
	}
	q := uint(r.acc>>(n+1))&(1<<n-1) | 1<<n
	low := uint(r.acc>>(2*n+1)) & (1<<k - 1)
	r.take(2*n + 1 + k)
	return (q-1)<<k | low
}

// end returns what is behind the byte that was read last, of which the bits that were not read are zero.
func (r *bitReader) end() ([]byte, error) {
	r.at -= int(r.n / 8)
	if r.at > len(r.src) || r.acc&(1<<(r.n%8)-1) != 0 {
		return nil, errFreqs
	}
	return r.src[r.at:], nil
}
