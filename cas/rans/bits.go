package rans

import "math/bits"

func zigzag(v int) uint   { return uint(v<<1 ^ v>>63) }
func unzigzag(z uint) int { return int(z>>1) ^ -int(z&1) }

// bitWriter writes bits, the lowest of a byte first.
type bitWriter struct {
	buf []byte // with room for 8 bytes past the last
	at  int
	acc uint64
	n   uint // bits in acc, below 8
}

// put appends the n bits of v, 56 at most.
func (w *bitWriter) put(v uint64, n uint) {
	w.acc |= v << (w.n & 63)
	le.PutUint64(w.buf[w.at:], w.acc)
	n += w.n
	w.at += int(n / 8)
	w.acc >>= n &^ 7 & 63
	w.n = n % 8
}

// number appends v as a number of order k.
func (w *bitWriter) number(v, k uint) {
	q := v>>(k&63) + 1
	n := uint(bits.Len(q)) - 1
	w.put(1<<(n&63)|uint64(q&^(1<<(n&63)))<<((n+1)&63)|uint64(v&(1<<(k&63)-1))<<((2*n+1)&63), 2*n+1+k)
}

// end is how many bytes buf holds.
func (w *bitWriter) end() int { return w.at + int(w.n+7)/8 }

// bitReader reads bits, zeros past the end of src; end tells.
type bitReader struct {
	src []byte
	at  int // of the next byte
	acc uint64
	n   uint // bits in acc; those above are of the next byte, or zeros
}

// fill reads until acc has at least 56 bits.
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

// take drops n bits.
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

// number reads a number of order k: one below 2^16 times 2^k, or 2^16 for any that is longer.
func (r *bitReader) number(k uint) uint {
	if r.n < 40 { // the longest number
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

// end returns what follows the byte that was read last. The bits of that which were not read must be zero.
func (r *bitReader) end() ([]byte, error) {
	r.at -= int(r.n / 8)
	if r.at > len(r.src) || r.acc&(1<<(r.n%8)-1) != 0 {
		return nil, errFreqs
	}
	return r.src[r.at:], nil
}
